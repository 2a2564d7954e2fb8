//! Tests of the frontend over scripted instances, with paused time.

mod admin;
mod bundles;
mod cluster;
mod coded;
mod console;
mod fuzz;
mod grants;
mod instances;
mod kubernetes;
mod metrics;
mod recording;
mod requests;
mod rig;
mod scripted;
mod sources;
mod stand_in;
mod updates;
mod upstreams;
