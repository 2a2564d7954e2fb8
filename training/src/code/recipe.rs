//! Settings for the training of a learned code.

use serde::{Deserialize, Serialize};

use crate::fit::Settings;

/// The encoder network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Encoder {
    /// Two fully connected layers on all values of all queries.
    #[default]
    Mlp,
    /// Convolutions of growing reach, channel by channel; for images.
    Conv,
}

/// The target of decoded predictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CodeLoss {
    /// The deployed model's probabilities.
    #[default]
    Kl,
    /// The deployed model's outputs.
    Mse,
    /// The labels.
    Xent,
}

/// Settings for the training of a learned code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CodeRecipe {
    /// The encoder: `mlp` or `conv`. Default `mlp`.
    pub encoder: Encoder,
    /// Queries in a group. Default 2.
    pub k: usize,
    /// Coded queries of a group. Default 1.
    pub r: usize,
    /// The target of decoded predictions: `kl`, `mse` or `xent`. Default `kl`.
    pub loss: CodeLoss,
    /// Groups in an epoch, as a multiple of the number that uses each row once. Default 1.
    pub passes: f32,
    /// Rows held out to choose the best epoch and to calibrate confidence. Default 5000, and at most a sixth.
    pub held_out: usize,
    /// The run.
    pub run: Settings,
}

impl Default for CodeRecipe {
    fn default() -> Self {
        Self {
            encoder: Encoder::Mlp,
            k: 2,
            r: 1,
            loss: CodeLoss::Kl,
            passes: 1.0,
            held_out: 5000,
            run: Settings::default(),
        }
    }
}
