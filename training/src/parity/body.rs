//! What lies between the way in and the way out of a parity model's slots.

use std::fmt;
use std::num::NonZeroUsize;

use parm_encoder::Head;
use parm_parity_models::onnx::rewrite::End;
use parm_parity_models::onnx::{Error, Model, rewrite};
use serde::{Deserialize, Serialize};

use super::ParityRecipe;

/// A choice of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Body {
    /// Layers as the deployed ones, which read the features of all slots.
    Mixed,
    /// One thinner network, which reads the slots one by one.
    Lanes,
}

/// The body of a parity model with slots, and why it is no other.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    pub(super) body: rewrite::Body,
    /// Why lanes, which nobody ruled out, cannot be had.
    pub(super) obstacle: Option<Error>,
}

impl Chosen {
    /// What was asked for. Otherwise lanes wherever the graph allows them, for queries that have nothing to do with one
    /// another gain nothing from being mixed. None where the code has no slots.
    pub(super) fn of(deployed: &Model, recipe: &ParityRecipe) -> Option<Self> {
        let k = NonZeroUsize::new(recipe.k).filter(|_| recipe.has_slots())?;
        let lanes = match recipe.width {
            Some(width) => rewrite::Body::Lanes { width },
            None => rewrite::Body::lanes(k),
        };
        // A width is one of lanes.
        let asked = recipe.body.or(recipe.width.map(|_| Body::Lanes));
        let obstacle = match asked {
            Some(_) => None,
            None => recipe.derive(deployed, 0, lanes, End::Raw).err(),
        };
        let is_mixed = asked == Some(Body::Mixed) || obstacle.is_some();
        Some(Self { body: if is_mixed { rewrite::Body::Mixed } else { lanes }, obstacle })
    }
}

impl ParityRecipe {
    /// Whether queries come in and go out apart, so that they may be apart all the way.
    fn has_slots(&self) -> bool {
        self.encoder.is_side_by_side() && self.head() == Head::Slots
    }

    pub(super) fn check_body(&self) -> Result<(), crate::Error> {
        let wrong = |message: &str| Err(crate::Error::Setting { message: message.into() });
        if !self.has_slots() && (self.body == Some(Body::Lanes) || self.width.is_some()) {
            return wrong("lanes keep queries apart all the way: they want encoder `slots` and head `slots`");
        }
        if self.width.is_some_and(|width| !(width > 0.0 && width <= 1.0) || self.body == Some(Body::Mixed)) {
            return wrong("width is the share of features that lanes keep: a number above 0 and up to 1");
        }
        Ok(())
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.body, &self.obstacle) {
            (rewrite::Body::Lanes { width }, _) => {
                write!(f, "lanes: each query by itself through {width:.2} of the features")
            }
            (rewrite::Body::Mixed, None) => write!(f, "mixed: every layer reads all queries' features"),
            (rewrite::Body::Mixed, Some(obstacle)) => {
                write!(f, "mixed: every layer reads all queries' features, for {obstacle}")
            }
        }
    }
}
