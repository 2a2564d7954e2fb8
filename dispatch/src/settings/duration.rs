//! Durations in configuration files: whole milliseconds or microseconds, with the unit in the field's name.

macro_rules! unit {
    ($name:ident, $from:ident, $as:ident) => {
        pub(crate) mod $name {
            use std::time::Duration;

            use serde::{Deserialize, Deserializer, Serialize, Serializer};

            pub(crate) fn serialize<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
                u64::try_from(value.$as()).unwrap_or(u64::MAX).serialize(to)
            }

            pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
                u64::deserialize(from).map(Duration::$from)
            }
        }
    };
}

unit!(millis, from_millis, as_millis);
unit!(micros, from_micros, as_micros);
