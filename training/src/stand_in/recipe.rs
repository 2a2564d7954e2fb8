//! How a stand-in is trained.

use parm_parity_models::bundle::{Meaning, Start};
use parm_parity_models::onnx::rewrite::{self, End, Student, Weights};
use parm_parity_models::onnx::{Defect, Model};
use serde::{Deserialize, Serialize};

use crate::fit::Settings;
use crate::{Augmentation, Error, Loss};

/// How a stand-in is trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StandInRecipe {
    /// Share of every layer's features that it keeps. Default 0.5, at which it multiplies about a quarter as often.
    pub width: f32,
    /// What the weights start from: `deployed` (the first features of each layer) or `scratch`. Default `deployed`.
    pub start: Start,
    /// The loss: `kl`, `mse` or `huber`. Default: `kl` for a classifier, else `mse`.
    pub loss: Option<Loss>,
    /// By what the teacher's and the stand-in's scores are divided before the softmax of `kl`. Default 1.
    pub temperature: f32,
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

impl Default for StandInRecipe {
    fn default() -> Self {
        Self {
            width: 0.5,
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
    /// The loss for outputs of this meaning.
    pub(super) fn loss(&self, meaning: Meaning) -> Loss {
        self.loss.unwrap_or(if meaning.has_classes() { Loss::Kl } else { Loss::Mse })
    }

    /// The graph as it is before the first step.
    pub(super) fn derive(&self, graph: &Model, end: End) -> Result<Model, Defect> {
        let start = match self.start {
            Start::Deployed => Weights::Deployed,
            Start::Scratch => Weights::Scratch { seed: self.run.seed },
        };
        rewrite::student(graph, &Student { width: self.width, end, start })
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let wrong = |message: &str| Err(Error::Setting { message: message.into() });
        if !(self.width > 0.0 && self.width <= 1.0) {
            return wrong(
                "width is the share of features that a stand-in keeps: a number above 0 and up to 1",
            );
        }
        if self.temperature <= 0.0 || !self.temperature.is_finite() {
            return wrong("temperature is a number above 0");
        }
        self.augment.check()?;
        self.run.check()
    }
}
