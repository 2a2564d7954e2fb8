//! Settings of the emulated chat server.

use std::num::NonZeroUsize;

use parm_durations::{Real, Whole};
use parm_workload::chat::Costs;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An emulated server of a language model, for experiments: OpenAI's chats on `server.http`, with made-up words.
///
/// An iteration takes `iteration_ms`, plus `stream_ms` for each stream that gets a token, plus `prompt_token_ms` for each
/// token of a prompt that it reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Name of the emulated model. Default: none, the routes are off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Time of an iteration. Default 18.
    #[serde(with = "Real::<0, 60_000>")]
    pub iteration_ms: f64,
    /// Time that each decoding stream adds to an iteration. Default 0.3.
    #[serde(with = "Real::<0, 60_000>")]
    pub stream_ms: f64,
    /// Time that each token of a prompt adds to the iteration that reads it. Default 0.1.
    #[serde(with = "Real::<0, 60_000>")]
    pub prompt_token_ms: f64,
    /// Most streams at a time. Default 256.
    #[serde(with = "Whole::<1, 65_536>")]
    pub streams: NonZeroUsize,
}

impl Default for Config {
    fn default() -> Self {
        let Costs { base_ms, stream_ms, prompt_token_ms, .. } = Costs::default();
        Self {
            model: None,
            iteration_ms: base_ms,
            stream_ms,
            prompt_token_ms,
            streams: const { NonZeroUsize::new(256).unwrap() },
        }
    }
}

impl Config {
    pub(super) fn costs(&self) -> Costs {
        Costs {
            base_ms: self.iteration_ms,
            stream_ms: self.stream_ms,
            prompt_token_ms: self.prompt_token_ms,
            streams: self.streams.get(),
            ..Costs::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_costs_are_those_of_the_model() {
        assert_eq!(Config::default().costs(), Costs::default());
        assert_eq!(toml::from_str::<Config>("").unwrap(), Config::default());
        for bad in ["chunk = 9", "iteration_ms = -1", "streams = 0", "modle = 'm'"] {
            assert!(toml::from_str::<Config>(bad).is_err(), "{bad}");
        }
    }
}
