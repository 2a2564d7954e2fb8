//! What a code's runs cost beside a run of the deployed model, on the engines at hand.

use std::collections::BTreeMap;
use std::path::Path;

use crate::Array;

/// Two models, and a row for each.
#[derive(Clone, Copy, Debug)]
pub struct Runs<'a> {
    /// The deployed model's file.
    pub deployed: &'a Path,
    /// A query.
    pub query: &'a Array<f32>,
    /// The parity model's.
    pub parity: &'a Path,
    /// A coded query.
    pub coded: &'a Array<f32>,
}

/// Whoever can time models: what a run of the parity model takes on one thread as a share of the deployed model's, by engine. An engine
/// that cannot is left out.
pub type Clock<'a> = dyn Fn(Runs<'_>) -> BTreeMap<String, f64> + Sync + 'a;
