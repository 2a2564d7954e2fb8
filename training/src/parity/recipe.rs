//! Settings for the training of parity models.

use parm_encoder::{CodeSpec, Head, Kind};
use parm_parity_models::bundle::{Meaning, Start};
use serde::{Deserialize, Serialize};

use crate::fit::Settings;
use crate::{Augmentation, Loss};

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
}
