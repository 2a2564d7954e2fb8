//! Integration tests of the real binary, in one test program.

// `pub` marks items for the other modules; a test program exports nothing.
#![allow(unreachable_pub, missing_docs)]

mod budgets;
mod capture;
mod chaos;
mod coded;
mod codes;
mod commands;
mod conditions;
mod console;
mod crate_graph;
mod demo;
mod discovery;
mod doctor;
mod documents;
mod draining;
mod experiment;
mod first_contact;
mod floods;
mod frontends;
mod fuzz;
mod grids;
mod keys;
mod links;
mod listeners;
mod load;
mod opaque;
mod opaque_calls;
mod profiles;
mod recording;
mod robustness;
mod run;
mod serving;
mod silent_faults;
mod stand_in;
mod support;
mod texts;
mod tls;
mod tracing;
mod tuning;
