//! Derives the graphs that a recipe trains.

use std::num::NonZeroUsize;

use parm_encoder::Head;
use parm_parity_models::onnx::rewrite::{self, Design, End};
use parm_parity_models::onnx::{Defect, Model};

use super::{ParityRecipe, Start};

impl ParityRecipe {
    /// The graph of parity `at` before the first step.
    pub(super) fn derive(&self, deployed: &Model, at: usize, end: End) -> Result<Model, Defect> {
        let one = NonZeroUsize::MIN;
        let k = NonZeroUsize::new(self.k).unwrap_or(one);
        let seed = self.run.seed.wrapping_add(at as u64 * 1000);
        let design = Design {
            stem: if self.encoder.is_side_by_side() { k } else { one },
            head: if self.head() == Head::Slots { k } else { one },
            // A sum of probabilities is not a distribution.
            end: if self.head() == Head::Slots { end } else { End::Raw },
            start: match self.start {
                Start::Deployed => rewrite::Weights::Divided,
                Start::Scratch => rewrite::Weights::Scratch { seed },
            },
        };
        rewrite::derive(deployed, &design)
    }
}
