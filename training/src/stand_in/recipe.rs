//! Settings for the training of a stand-in.

use parm_parity_models::bundle::{Meaning, Start};
use parm_parity_models::onnx::rewrite::{self, Design, End, Weights};
use parm_parity_models::onnx::{Defect, Model};
use serde::{Deserialize, Serialize};

use crate::fit::Settings;
use crate::{Augmentation, Error, Loss};

/// Settings for the training of a stand-in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StandInRecipe {
    /// The initial weights: `deployed`, those of the graph, or `scratch`. Default `deployed`.
    pub start: Start,
    /// The loss: `kl`, `mse` or `huber`. Default: `kl` for a classifier, otherwise `mse`.
    pub loss: Option<Loss>,
    /// Divisor of the teacher's and the stand-in's scores before the softmax of `kl`. Default 1.
    pub temperature: f32,
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

impl Default for StandInRecipe {
    fn default() -> Self {
        Self {
            start: Start::Deployed,
            loss: None,
            temperature: 1.0,
            augment: Augmentation::default(),
            held_out: 5000,
            meaning: None,
            run: Settings::default(),
        }
    }
}

impl StandInRecipe {
    /// The graph before the first step.
    pub(super) fn derive(&self, graph: &Model, end: End) -> Result<Model, Defect> {
        let start = match self.start {
            Start::Deployed => Weights::Deployed,
            Start::Scratch => Weights::Scratch { seed: self.run.seed },
        };
        rewrite::derive(graph, &Design::single(end, start))
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        if self.temperature <= 0.0 || !self.temperature.is_finite() {
            return Err(Error::Setting { message: "temperature must be a number above 0".into() });
        }
        self.augment.check()?;
        self.run.check()
    }
}
