//! From a deployed graph to a parity graph.
//!
//! A parity model is the deployed network with other weights, so that every engine that runs the one runs the other.
//! For codes that keep the k queries of a group apart ("slots") there are two ways. In *lanes* one thinner network
//! answers the queries one by one, as rows of a larger batch. *Mixed*, the first layer reads k times the features and the
//! last layer makes k predictions; all between is as deployed.
//!
//! The contract with the encoder and the decoder is one of bytes: the parity's input is the k queries' rows one after
//! another, `[N, k * d1, d2, ..]` for rows of `[d1, d2, ..]`, and its output is the k predictions one after another,
//! `[N, k, ..]`. Where layers are mixed, what lies between the input and the first layer that mixes features
//! (normalisation, a transpose, an embedding) is not understood but *copied*: once for each slot, before the slots meet.
//! So is what follows the last such layer. Understanding each operator instead, how it commutes with laying rows side by
//! side, was the rejected alternative: a table that is never complete, and wrong where it is wrong silently. The common
//! cases where nothing needs to be copied (`Flatten`, casts, a bias, a softmax) are recognised and cost nothing.

mod activation;
mod divide;
mod draft;
mod follow;
mod head;
mod initial;
mod lanes;
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

use super::{Error, Model};

/// What a parity graph's weights start from.
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

/// The end of a parity graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As deployed: a trailing softmax stays, for each slot its own.
    AsDeployed,
    /// A trailing softmax or sigmoid is taken away: a sum of predictions is no distribution, and losses want raw
    /// outputs. Weights trained so fit the graph that keeps it, name by name.
    Raw,
}

/// What lies between the slots' way in and their way out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Body {
    /// The deployed layers, each of which reads the features of all slots.
    Mixed,
    /// One network for all slots, which reads them one by one. It keeps a share of every layer's features.
    Lanes {
        /// The share, above 0 and up to 1.
        width: f32,
    },
}

impl Body {
    /// Lanes for `slots` that together, but for the first and the last layer, multiply as often as the deployed network:
    /// a layer's weights are as many as the features that it reads times those that it makes.
    pub fn lanes(slots: NonZeroUsize) -> Self {
        Self::Lanes { width: (slots.get() as f32).sqrt().recip() }
    }
}

/// How a parity graph differs from the deployed one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Design {
    /// Queries that the input holds side by side; 1 for codes that mix them into one.
    pub stem: NonZeroUsize,
    /// Predictions that the output holds; 1 for codes that subtract.
    pub head: NonZeroUsize,
    /// What lies between. Lanes want as many predictions as queries.
    pub body: Body,
    /// The end.
    pub end: End,
    /// The initial weights.
    pub start: Weights,
}

/// Derives a parity graph from a deployed one.
pub fn derive(deployed: &Model, parity: &Design) -> Result<Model, Error> {
    let mut draft = Draft::new(deployed)?;
    if parity.end == End::Raw {
        draft.strip_activation();
    }
    // Only slots that come apart and leave apart can have features of their own.
    let are_apart = parity.stem == parity.head;
    match parity.body {
        Body::Lanes { .. } if !are_apart => return Err(Error::UnequalLanes),
        Body::Lanes { width } => {
            if width < 1.0 {
                draft.thin(width)?;
            }
            draft.lay_lanes(parity.stem.get())?;
        }
        Body::Mixed => {
            draft.widen_stem(parity.stem)?;
            draft.widen_head(parity.head)?;
        }
    }
    match (parity.start, parity.body) {
        (Weights::Scratch { seed }, _) => draft.reinitialise(seed)?,
        (Weights::Divided, Body::Mixed) if are_apart => draft.divide(parity.stem)?,
        (Weights::Deployed | Weights::Divided, _) => {}
    }
    draft.finish()
}
