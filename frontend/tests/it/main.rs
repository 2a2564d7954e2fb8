//! The frontend over scripted instances: time is paused, the test decides what every instance answers and when.

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
mod switches;
mod tokens;
mod updates;
