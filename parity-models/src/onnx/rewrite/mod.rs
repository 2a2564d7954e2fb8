//! Derives the graph of a parity model from a deployed graph.
//!
//! A parity model is the deployed network with other weights, so every engine that runs one runs the other. For codes
//! that concatenate the k queries of a group ("slots"), the first layer reads k times the features and the last layer
//! produces k predictions; the layers in the middle are unchanged.
//!
//! The encoder and the decoder rely on the layout of bytes. The parity's input is the k queries' rows in sequence, `[N,
//! k * d1, d2, ..]` for rows of `[d1, d2, ..]`, and its output is the k predictions in sequence, `[N, k, ..]`.
//! Operators before the first layer that mixes features (normalisation, a transpose, an embedding) are *copied* for
//! each slot, and so are those after the last such layer.
//!
//! *Rejected.* A table of how each operator commutes with concatenating rows: it is never complete, and its errors are
//! silent. Only the common cases that need no copy (`Flatten`, casts, a bias, a softmax) are recognised.

mod draft;
mod slots;
mod weights;

use std::num::NonZeroUsize;

pub use draft::Draft;
pub use slots::Names;

use super::{Defect, Model};

/// The initial weights of a derived graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// The deployed weights, repeated for each slot; those of the first layer are divided by k, so that k equal queries
    /// give the deployed prediction in every slot.
    Deployed,
    /// As `Deployed`, with every layer divided between the slots: weights between features of different slots start at
    /// zero.
    Divided,
    /// Random weights, equal for equal seeds.
    Scratch {
        /// Seed.
        seed: u64,
    },
}

/// The output side of a derived graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As deployed: each slot keeps a trailing softmax.
    AsDeployed,
    /// Without a trailing softmax or sigmoid, for sums of predictions and for losses on raw outputs. The trained
    /// weights fit the graph with it, name by name.
    Raw,
}

/// The difference of a parity graph from the deployed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Design {
    /// Queries that the input concatenates; 1 for codes that add them up.
    pub stem: NonZeroUsize,
    /// Predictions in the output; 1 for codes that subtract.
    pub head: NonZeroUsize,
    /// The output side.
    pub end: End,
    /// The initial weights.
    pub start: Weights,
}

impl Design {
    /// One query and one prediction: a network that learns the task of the deployed one.
    pub fn single(end: End, start: Weights) -> Self {
        Self { stem: NonZeroUsize::MIN, head: NonZeroUsize::MIN, end, start }
    }
}

/// Derives a parity graph from a deployed one.
pub fn derive(deployed: &Model, parity: &Design) -> Result<Model, Defect> {
    let mut draft = Draft::new(deployed)?;
    if parity.end == End::Raw {
        draft.strip_activation();
    }
    draft.widen_stem(parity.stem)?;
    draft.widen_head(parity.head)?;
    match parity.start {
        Weights::Scratch { seed } => draft.reinitialise(seed)?,
        // Slots need features of their own only if they are separate in the input and in the output.
        Weights::Divided if parity.stem == parity.head => draft.divide(parity.stem)?,
        Weights::Deployed | Weights::Divided => {}
    }
    draft.finish()
}
