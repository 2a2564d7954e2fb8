//! Tests of the frontend over scripted instances with paused time: each test scripts the instances' answers.

mod admin;
mod bundles;
mod capture;
mod cluster;
mod coded;
mod console;
mod followed;
mod frontends;
mod hangs;
mod instances;
mod kubernetes;
mod metrics;
mod neighbours;
mod recording;
mod requests;
mod resilience;
mod rig;
mod scripted;
mod shares;
mod sources;
mod stand_in;
mod stress;
mod tokens;
mod updates;
