//! Costs of a code's models relative to the deployed model, on the available engines.

use std::collections::BTreeMap;
use std::path::Path;

use crate::Array;

/// Two models, with one row for each.
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

/// Times models: a run of the parity model on one thread as a share of the deployed model's, by engine. An engine
/// that cannot run them is left out.
pub type Clock<'a> = dyn Fn(Runs<'_>) -> BTreeMap<String, f64> + Sync + 'a;
