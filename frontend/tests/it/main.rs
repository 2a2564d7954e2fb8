//! Tests of the frontend over scripted instances, with paused time.

mod admin;
mod bundles;
mod capture;
mod cluster;
mod coded;
mod console;
mod fleet;
mod followed;
mod hung_instances;
mod instances;
mod kubernetes;
mod metrics;
mod neighbour_load;
mod recording;
mod requests;
mod resilience;
mod rig;
mod scripted;
mod shared_batches;
mod shares;
mod sources;
mod stand_in;
mod stress;
mod switches;
mod tokens;
mod updates;
