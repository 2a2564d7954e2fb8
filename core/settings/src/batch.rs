//! Settings of batching.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU16;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Batching of queries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BatchSettings {
    /// Largest number of queries in a batch. `auto` chooses it from the load and from the measured times of batches. 1
    /// turns batching off. `server` sends queries one by one, two of the server's largest batches at a time, for servers
    /// that batch themselves, such as Triton. Default `auto`.
    pub max_size: BatchSize,
}

/// The largest number of queries in a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", expecting = "give \"auto\", \"server\" or a whole number from 1 to 65535")]
pub enum BatchSize {
    /// Chosen for each batch.
    #[default]
    Auto,
    /// One query in each batch: the server batches what it gets at a time.
    Server,
    /// This one.
    #[serde(untagged)]
    Fixed(NonZeroU16),
}

impl BatchSize {
    /// One query in each batch.
    pub const ONE: Self = Self::Fixed(NonZeroU16::MIN);

    /// The size, if it is fixed.
    pub const fn fixed(self) -> Option<NonZeroU16> {
        match self {
            Self::Auto => None,
            Self::Server => Some(NonZeroU16::MIN),
            Self::Fixed(size) => Some(size),
        }
    }
}

impl From<NonZeroU16> for BatchSize {
    fn from(size: NonZeroU16) -> Self {
        Self::Fixed(size)
    }
}

impl fmt::Display for BatchSize {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Server => f.write_str("server"),
            Self::Fixed(size) => size.fmt(f),
        }
    }
}

impl JsonSchema for BatchSize {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "BatchSize".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["integer", "string"], "minimum": 1, "maximum": 65535, "pattern": "^auto$|^server$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<BatchSize, String> {
        let read = toml::from_str::<BatchSettings>(&format!("max_size = {text}"));
        read.map(|read| read.max_size).map_err(|error| error.to_string())
    }

    #[test]
    fn batch_size_is_a_word_or_a_positive_number() {
        assert_eq!(read("\"auto\""), Ok(BatchSize::Auto));
        assert_eq!(read("\"server\""), Ok(BatchSize::Server));
        assert_eq!(read("8"), Ok(BatchSize::Fixed(NonZeroU16::new(8).unwrap())));
        for size in ["0", "-1", "65536", "\"8\"", "1.5"] {
            let error = read(size).unwrap_err();
            assert!(
                error.contains("\"auto\", \"server\" or a whole number from 1 to 65535"),
                "{size}: {error}"
            );
        }
    }

    #[test]
    fn batch_settings_are_written_as_they_are_read() {
        for settings in [
            BatchSettings::default(),
            BatchSettings { max_size: BatchSize::ONE },
            BatchSettings { max_size: BatchSize::Server },
        ] {
            let written = toml::to_string(&settings).unwrap();
            assert_eq!(toml::from_str::<BatchSettings>(&written).unwrap(), settings);
        }
    }
}
