//! How parity models are trained.

use parm_encoder::{CodeSpec, Head, Kind};
use parm_parity_models::bundle::{Meaning, Start};
use serde::{Deserialize, Serialize};

use crate::fit::Settings;
use crate::{Augmentation, Loss};

/// How the parity models of one code are trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ParityRecipe {
    /// How queries become a parity query: `sum`, `weighted`, `tiles` or `slots`. Default `slots`.
    pub encoder: Kind,
    /// What a parity model puts out: `sum` (ParM: one output, from which others are subtracted) or `slots` (one
    /// prediction for each query). Default `slots` where the encoder keeps queries apart.
    pub head: Option<Head>,
    /// Queries in a group. Default 2.
    pub k: usize,
    /// Parities of a group. Default 1.
    pub r: usize,
    /// What the weights start from: `deployed` or `scratch`. Default `deployed`.
    pub start: Start,
    /// The loss: `kl`, `mse` or `huber`. Default: `kl` for slots of a classifier, else `mse`.
    pub loss: Option<Loss>,
    /// By what the teacher's and the parity model's scores are divided before the softmax of `kl`. Default 1.
    pub temperature: f32,
    /// Groups in an epoch, as a multiple of what gives each row once. Default 1.
    pub passes: f32,
    /// Share of groups with blank slots. Default 0.
    pub blanks: f32,
    /// Changes of images between epochs, on which the teacher is asked again. Default none.
    pub augment: Augmentation,
    /// Rows held out to choose the best epoch and to calibrate confidence. Default 5000, and at most a sixth.
    pub held_out: usize,
    /// What the deployed model's output means: `logits`, `probabilities` or `values`. Default: `probabilities` if the
    /// graph ends in a softmax, else `logits`.
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
    /// The code that the parity models are for.
    pub fn code(&self) -> CodeSpec {
        let mut code = CodeSpec::new(self.encoder, self.k, self.r);
        code.head = self.encoder.chooses_head().then(|| self.head());
        code
    }

    /// What the parity models put out.
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
