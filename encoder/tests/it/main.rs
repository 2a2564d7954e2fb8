//! Tests of the codes through the public API: recovery, placement and errors.

mod approximate;
mod kernels;
mod kinds;
mod placement;
mod recovery;
mod specs;
mod support;
