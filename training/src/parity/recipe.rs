//! Settings for the training of parity models.

use std::num::NonZeroUsize;

use parm_encoder::{CodeSpec, Head, Kind};
use parm_parity_models::bundle::{Meaning, Start};
use parm_parity_models::onnx::rewrite::{self, Design, End};
use parm_parity_models::onnx::{Defect, Model};
use serde::{Deserialize, Serialize};

use crate::fit::Settings;
use crate::{Augmentation, Error, Loss};

/// Settings for the parity models of one code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ParityRecipe {
    /// The encoder: `sum`, `weighted`, `tiles` or `slots`. Default `slots`.
    pub encoder: Kind,
    /// The output of a parity model: `sum` (ParM: one output, from which others are subtracted) or `slots` (one
    /// prediction per query). Default `slots` if the encoder keeps queries apart.
    pub head: Option<Head>,
    /// Queries in a group. Default 2.
    pub k: usize,
    /// Parities of a group. Default 1.
    pub r: usize,
    /// The initial weights: `deployed` or `scratch`. Default `deployed`.
    pub start: Start,
    /// The loss: `kl`, `mse` or `huber`. Default: `kl` for slots of a classifier, otherwise `mse`.
    pub loss: Option<Loss>,
    /// Divisor of the teacher's and the parity model's scores before the softmax of `kl`. Default 1.
    pub temperature: f32,
    /// Groups in an epoch, as a multiple of the number that uses each row once. Default 1.
    pub passes: f32,
    /// Share of groups with blank slots. Default 0.
    pub blanks: f32,
    /// Changes of images between epochs, which the teacher answers again. Default none.
    pub augment: Augmentation,
    /// Rows held out to choose the best epoch and to calibrate confidence. Default 5000, and at most a sixth.
    pub held_out: usize,
    /// The meaning of the deployed model's output: `logits`, `probabilities` or `values`. Default: `probabilities` if
    /// the graph ends in a softmax, otherwise `logits`.
    pub meaning: Option<Meaning>,
    /// The run.
    pub run: Settings,
}

impl Default for ParityRecipe {
    fn default() -> Self {
        Self {
            encoder: Kind::Slots,
            head: None,
            k: 2,
            r: 1,
            start: Start::Deployed,
            loss: None,
            temperature: 1.0,
            passes: 1.0,
            blanks: 0.0,
            augment: Augmentation::default(),
            held_out: 5000,
            meaning: None,
            run: Settings::default(),
        }
    }
}

impl ParityRecipe {
    /// The code of the parity models.
    pub fn code(&self) -> CodeSpec {
        let mut code = CodeSpec::new(self.encoder, self.k, self.r);
        code.head = self.encoder.chooses_head().then(|| self.head());
        code
    }

    /// The output of the parity models.
    pub fn head(&self) -> Head {
        if self.encoder.chooses_head() { self.head.unwrap_or(Head::Slots) } else { Head::Sum }
    }

    /// The loss for outputs of this meaning.
    pub fn loss(&self, meaning: Meaning) -> Loss {
        let usual = match (self.head(), meaning) {
            (Head::Slots, Meaning::Logits | Meaning::Probabilities) => Loss::Kl,
            _ => Loss::Mse,
        };
        self.loss.unwrap_or(usual)
    }

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

    pub(super) fn check(&self) -> Result<(), Error> {
        let wrong = |message: &str| Err(Error::Setting { message: message.into() });
        if self.k < 2 {
            return wrong("k must be at least 2");
        }
        if !(self.passes > 0.0 && self.passes <= 1000.0) {
            return wrong("passes must be above 0 and at most 1000");
        }
        if !(0.0..=1.0).contains(&self.blanks) {
            return wrong("blanks must be a share from 0 to 1");
        }
        if self.temperature <= 0.0 || !self.temperature.is_finite() {
            return wrong("temperature must be a number above 0");
        }
        if !self.encoder.has_parity_models() {
            return Err(Error::Untrained { kind: self.encoder });
        }
        self.augment.check()?;
        // Before the graphs are derived, since their sizes grow with k and r.
        self.code().build()?;
        self.run.check()
    }
}
