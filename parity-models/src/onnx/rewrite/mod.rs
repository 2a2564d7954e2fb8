//! From a deployed graph to that of a parity model, or of a thinner student.
//!
//! A parity model is the deployed network with other weights, so that every engine that runs the one runs the other.
//! For codes that lay the k queries of a group side by side ("slots"), the first layer reads k times the features and the
//! last layer makes k predictions; all between is as deployed, and mixes what it reads of the queries. A student answers
//! each query by itself with fewer features in every layer ([`student`]): that is no code, but what a stand-in can be.
//!
//! The contract with the encoder and the decoder is one of bytes: the parity's input is the k queries' rows one after
//! another, `[N, k * d1, d2, ..]` for rows of `[d1, d2, ..]`, and its output is the k predictions one after another,
//! `[N, k, ..]`. What lies between the input and the first layer that mixes features (normalisation, a transpose, an
//! embedding) is not understood but *copied*: once for each slot, before the slots meet. So is what follows the last such
//! layer. Understanding each operator instead, how it commutes with laying rows side by side, was the rejected
//! alternative: a table that is never complete, and wrong where it is wrong silently. The common cases where nothing
//! needs to be copied (`Flatten`, casts, a bias, a softmax) are recognised and cost nothing.

mod activation;
mod divide;
mod draft;
mod follow;
mod head;
mod initial;
mod linear;
mod plain;
mod repeat;
mod slot;
mod stem;
mod tail;
mod thin;
mod unshare;

use std::num::NonZeroUsize;

pub use draft::Draft;

use super::{Defect, Model};

/// What a derived graph's weights start from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// The deployed weights: repeated for each slot, those of the first layer scaled by 1/k, so that k equal queries
    /// give the deployed prediction in every slot.
    Deployed,
    /// Likewise, and every layer divided between the slots: the features of one begin with no weight for another's.
    Divided,
    /// Random weights, the same for the same seed.
    Scratch {
        /// Seed.
        seed: u64,
    },
}

/// The end of a derived graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As deployed: a trailing softmax stays, for each slot its own.
    AsDeployed,
    /// A trailing softmax or sigmoid is taken away: a sum of predictions is no distribution, and losses want raw
    /// outputs. Weights trained so fit the graph that keeps it, name by name.
    Raw,
}

/// How a parity graph differs from the deployed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Design {
    /// Queries that the input holds side by side; 1 for codes that mix them into one.
    pub stem: NonZeroUsize,
    /// Predictions that the output holds; 1 for codes that subtract.
    pub head: NonZeroUsize,
    /// The end.
    pub end: End,
    /// The initial weights.
    pub start: Weights,
}

/// How a student differs from the deployed network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Student {
    /// Share of every layer's features that it keeps, above 0 and up to 1; the last layer keeps all.
    pub width: f32,
    /// The end.
    pub end: End,
    /// The initial weights. Nothing is divided where there is one slot: [`Weights::Divided`] is as deployed.
    pub start: Weights,
}

/// Derives a parity graph from a deployed one.
pub fn derive(deployed: &Model, parity: &Design) -> Result<Model, Defect> {
    let mut draft = begin(deployed, parity.end)?;
    draft.widen_stem(parity.stem)?;
    draft.widen_head(parity.head)?;
    match parity.start {
        Weights::Scratch { seed } => draft.reinitialise(seed)?,
        // Only slots that come apart and leave apart can have features of their own.
        Weights::Divided if parity.stem == parity.head => draft.divide(parity.stem)?,
        Weights::Deployed | Weights::Divided => {}
    }
    draft.finish()
}

/// Derives a thinner network for the same task from a deployed one. It begins with the first of the deployed features of
/// every layer, scaled up to make up for those that are missing.
pub fn student(deployed: &Model, student: &Student) -> Result<Model, Defect> {
    let mut draft = begin(deployed, student.end)?;
    if student.width < 1.0 {
        draft.thin(student.width)?;
        draft.forget(|_| true);
    }
    if let Weights::Scratch { seed } = student.start {
        draft.reinitialise(seed)?;
    }
    draft.finish()
}

fn begin(deployed: &Model, end: End) -> Result<Draft, Defect> {
    let mut draft = Draft::new(deployed)?;
    if end == End::Raw {
        draft.strip_activation();
    }
    Ok(draft)
}
