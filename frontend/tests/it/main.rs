//! Tests of the frontend over scripted instances, with paused time.

mod admin;
mod bundles;
mod capture;
mod cluster;
mod coded;
mod console;
mod fleet;
mod followed;
mod fuzz;
mod grants;
mod instances;
mod kubernetes;
mod metrics;
mod recording;
mod replaced;
mod requests;
mod rig;
mod scripted;
mod shared_batches;
mod shares;
mod sources;
mod stand_in;
mod stress;
mod unequal;
mod updates;
mod upstreams;
