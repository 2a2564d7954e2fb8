//! Numbers in files: durations with their unit in the name, bounded counts, and the range that a setting allows. And [`Time`], a
//! moment for the dispatcher and the simulator.
//!
//! A [`Duration`] in code is a whole number in the file, with its unit in the name. [`Whole`] and [`Real`] bound counts and
//! other numbers in the same way, and [`range`] says which values a setting takes, for error messages.
//!
//! ```
//! use std::time::Duration;
//!
//! use parm_durations::{Millis, PositiveMillis};
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize, JsonSchema)]
//! struct Patience {
//!     /// Milliseconds that an answer may take.
//!     #[serde(rename = "timeout_ms", with = "PositiveMillis")]
//!     timeout: Duration,
//!     /// Milliseconds between two looks; 0 turns them off.
//!     #[serde(rename = "interval_ms", with = "Millis")]
//!     interval: Duration,
//! }
//! ```
//!
//! A configuration file needs the unit in the name, and the code needs none. Serde takes a type for `with` as well as a
//! module, and schemars needs a type. One attribute therefore defines the form of a setting, its range and its entry in
//! the reference. Newtypes would do the same, but each reader would have to unwrap them, and text such as `"5s"` could be
//! written in many ways.

mod bounded;
mod schema;
mod time;

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserializer, Serializer};

pub use bounded::{Real, Unsigned, Whole};
pub use schema::{Leaf, leaves, range, with_range};
pub use time::Time;

/// Whole milliseconds.
pub type Millis = Count<1_000_000, 0>;
/// Whole milliseconds, one or more.
pub type PositiveMillis = Count<1_000_000, 1>;
/// Whole microseconds.
pub type Micros = Count<1_000, 0>;
/// Whole seconds, one or more.
pub type PositiveSeconds = Count<NANOS_IN_A_SECOND, 1>;

const NANOS_IN_A_SECOND: u64 = 1_000_000_000;
/// The longest duration that a file may name, in seconds: a year.
///
/// Runtimes wait for at most 2.2 years in one piece, and a duration without a bound overflows the moment that it is added to.
/// Sums of two settings, and a setting that is drawn a tenth longer, stay below that.
const LONGEST: u64 = 365 * 24 * 3600;

/// A duration as a number of units, which are so many nanoseconds long; `LEAST` is the smallest number allowed.
#[derive(Debug)]
pub enum Count<const UNIT: u64, const LEAST: u64> {}

impl<const UNIT: u64, const LEAST: u64> Count<UNIT, LEAST> {
    const NAME: &str = match UNIT {
        1_000 => "microseconds",
        1_000_000 => "milliseconds",
        NANOS_IN_A_SECOND => "seconds",
        _ => panic!("a unit without a name"),
    };

    /// The largest number allowed.
    const MOST: u64 = LONGEST * (NANOS_IN_A_SECOND / UNIT);

    /// Writes a duration. A part of a unit counts as a whole one: 0 often means something else than a short time.
    pub fn serialize<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
        let count = value.as_nanos().div_ceil(UNIT.into());
        to.serialize_u64(u64::try_from(count).unwrap_or(u64::MAX))
    }

    /// Reads a duration.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        from.deserialize_u64(Reader::<UNIT, LEAST>)
    }
}

impl<const UNIT: u64, const LEAST: u64> JsonSchema for Count<UNIT, LEAST> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Self::NAME.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "format": "uint64", "minimum": LEAST, "maximum": Self::MOST })
    }
}

struct Reader<const UNIT: u64, const LEAST: u64>;

impl<const UNIT: u64, const LEAST: u64> Visitor<'_> for Reader<UNIT, LEAST> {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a whole number of {} from {LEAST} to {}",
            Count::<UNIT, LEAST>::NAME,
            Count::<UNIT, LEAST>::MOST
        )
    }

    fn visit_u64<E: Error>(self, count: u64) -> Result<Duration, E> {
        if !(LEAST..=Count::<UNIT, LEAST>::MOST).contains(&count) {
            return Err(E::invalid_value(Unexpected::Unsigned(count), &self));
        }
        let in_a_second = NANOS_IN_A_SECOND / UNIT;
        // Less than a second, so that it fits.
        let nanos = (count % in_a_second * UNIT) as u32;
        Ok(Duration::new(count / in_a_second, nanos))
    }

    fn visit_i64<E: Error>(self, count: i64) -> Result<Duration, E> {
        match u64::try_from(count) {
            Ok(count) => self.visit_u64(count),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(count), &self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use schemars::schema_for;
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(default)]
    struct Settings {
        #[serde(rename = "pause_ms", with = "Millis")]
        pause: Duration,
        #[serde(rename = "timeout_ms", with = "PositiveMillis")]
        timeout: Duration,
        #[serde(rename = "delay_us", with = "Micros")]
        delay: Duration,
        #[serde(rename = "retry_s", with = "PositiveSeconds")]
        retry: Duration,
    }

    #[test]
    fn a_file_says_whole_numbers_and_the_code_durations() {
        let settings: Settings =
            toml::from_str("pause_ms = 0\ntimeout_ms = 1500\ndelay_us = 2000001\nretry_s = 3").unwrap();
        let (timeout, delay) = (Duration::from_millis(1500), Duration::from_micros(2_000_001));
        let want = Settings { pause: Duration::ZERO, timeout, delay, retry: Duration::from_secs(3) };
        assert_eq!(settings, want);
        let written = toml::to_string(&settings).unwrap();
        assert_eq!(written, "pause_ms = 0\ntimeout_ms = 1500\ndelay_us = 2000001\nretry_s = 3\n");
        let longest: Settings = toml::from_str("delay_us = 31536000000000").unwrap();
        assert_eq!(longest.delay, Duration::from_secs(LONGEST));
    }

    #[test]
    fn duration_error_states_the_allowed_range() {
        for (text, allowed) in [
            ("timeout_ms = 0", "a whole number of milliseconds from 1 to 31536000000"),
            ("timeout_ms = -5", "a whole number of milliseconds from 1 to 31536000000"),
            ("retry_s = 0", "a whole number of seconds from 1 to 31536000"),
            ("pause_ms = -1", "a whole number of milliseconds from 0 to 31536000000"),
            ("pause_ms = 0.5", "a whole number of milliseconds from 0 to 31536000000"),
            ("retry_s = 31536001", "a whole number of seconds from 1 to 31536000"),
            ("pause_ms = 9223372036854775807", "a whole number of milliseconds from 0 to 31536000000"),
            ("delay_us = \"5ms\"", "a whole number of microseconds from 0 to 31536000000000"),
        ] {
            let error = toml::from_str::<Settings>(text).unwrap_err().to_string();
            assert!(error.contains(allowed), "{text}: {error}");
        }
        let text = format!("{{\"delay_us\": {}}}", u64::MAX);
        let error = serde_json::from_str::<Settings>(&text).unwrap_err().to_string();
        assert!(error.contains("microseconds from 0 to 31536000000000"), "{error}");
    }

    #[test]
    fn a_part_of_a_unit_is_not_written_as_none() {
        let brief = Settings { timeout: Duration::from_nanos(1), ..Settings::default() };
        assert_eq!(serde_json::to_value(&brief).unwrap()["timeout_ms"], 1);
    }

    #[test]
    fn the_schema_tells_the_range() {
        let schema = schema_for!(Settings).to_value();
        assert_eq!(schema["properties"]["timeout_ms"]["minimum"], 1);
        assert_eq!(schema["properties"]["timeout_ms"]["maximum"], 31_536_000_000u64);
        assert_eq!(schema["properties"]["pause_ms"]["minimum"], 0);
        assert_eq!(schema["properties"]["pause_ms"]["type"], "integer");
    }
}
