//! The codes from outside: what they recover, where they put things, what they refuse.

mod approximate;
mod kernels;
mod kinds;
mod learned;
mod placement;
mod recovery;
mod specs;
mod support;
