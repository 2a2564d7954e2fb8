//! Bounded numbers: the field keeps its own type, and a file cannot name a value outside the bounds.
//!
//! ```
//! use std::num::NonZeroUsize;
//!
//! use parm_durations::Whole;
//! use serde::Deserialize;
//!
//! #[derive(Deserialize)]
//! struct Server {
//!     #[serde(with = "Whole::<1, 1_000_000>")]
//!     max_connections: NonZeroUsize,
//! }
//!
//! assert_eq!(toml::from_str::<Server>("max_connections = 8").unwrap().max_connections.get(), 8);
//! assert!(toml::from_str::<Server>("max_connections = 1000001").is_err());
//! ```
//!
//! A count without a bound reaches code that reserves memory for it, starts so many threads, or multiplies it. The bound
//! belongs to the setting, not to the code that uses it: the operator reads it in the error and in the reference.

use std::borrow::Cow;
use std::fmt;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserializer, Serializer};

/// A whole number from `LEAST` to `MOST`.
#[derive(Debug)]
pub enum Whole<const LEAST: u64, const MOST: u64> {}

/// A finite number from `LEAST` to `MOST`.
#[derive(Debug)]
pub enum Real<const LEAST: u64, const MOST: u64> {}

/// A type of a field that holds whole numbers.
pub trait Unsigned: Copy {
    /// The field's value, if its type has the number.
    fn read(number: u64) -> Option<Self>;

    /// The number.
    fn number(self) -> u64;
}

macro_rules! unsigned {
    ($($plain:ty, $nonzero:ty;)*) => {$(
        impl Unsigned for $plain {
            fn read(number: u64) -> Option<Self> {
                Self::try_from(number).ok()
            }

            fn number(self) -> u64 {
                self as u64
            }
        }

        impl Unsigned for $nonzero {
            fn read(number: u64) -> Option<Self> {
                Self::new(<$plain>::try_from(number).ok()?)
            }

            fn number(self) -> u64 {
                self.get() as u64
            }
        }
    )*};
}

unsigned! {
    u32, NonZeroU32;
    u64, NonZeroU64;
    usize, NonZeroUsize;
}

impl<const LEAST: u64, const MOST: u64> Whole<LEAST, MOST> {
    /// Writes a number.
    pub fn serialize<T: Unsigned, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(value.number())
    }

    /// Reads a number within the bounds.
    pub fn deserialize<'de, T: Unsigned, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        let number = from.deserialize_u64(WholeReader::<LEAST, MOST>)?;
        T::read(number)
            .ok_or_else(|| D::Error::invalid_value(Unexpected::Unsigned(number), &WholeReader::<LEAST, MOST>))
    }
}

impl<const LEAST: u64, const MOST: u64> Real<LEAST, MOST> {
    /// Writes a number.
    pub fn serialize<T: Copy + Into<f64>, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64((*value).into())
    }

    /// Reads a finite number within the bounds.
    pub fn deserialize<'de, T: Narrow, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        from.deserialize_f64(RealReader::<LEAST, MOST>).map(T::narrow)
    }
}

/// A type of a field that holds numbers with a fraction.
pub trait Narrow {
    /// The closest number of the type.
    fn narrow(number: f64) -> Self;
}

impl Narrow for f64 {
    fn narrow(number: f64) -> Self {
        number
    }
}

impl Narrow for f32 {
    fn narrow(number: f64) -> Self {
        number as f32
    }
}

struct WholeReader<const LEAST: u64, const MOST: u64>;

impl<const LEAST: u64, const MOST: u64> Visitor<'_> for WholeReader<LEAST, MOST> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from {LEAST} to {MOST}")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        let fits = (LEAST..=MOST).contains(&number);
        if fits { Ok(number) } else { Err(E::invalid_value(Unexpected::Unsigned(number), &self)) }
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        let refused = || E::invalid_value(Unexpected::Signed(number), &self);
        u64::try_from(number).map_err(|_| refused())?;
        self.visit_u64(number as u64)
    }
}

struct RealReader<const LEAST: u64, const MOST: u64>;

impl<const LEAST: u64, const MOST: u64> Visitor<'_> for RealReader<LEAST, MOST> {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a number from {LEAST} to {MOST}")
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<f64, E> {
        let fits = (LEAST as f64..=MOST as f64).contains(&number);
        if fits { Ok(number) } else { Err(E::invalid_value(Unexpected::Float(number), &self)) }
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<f64, E> {
        self.visit_f64(number as f64)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<f64, E> {
        self.visit_f64(number as f64)
    }
}

impl<const LEAST: u64, const MOST: u64> JsonSchema for Whole<LEAST, MOST> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Whole{LEAST}To{MOST}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "format": "uint64", "minimum": LEAST, "maximum": MOST })
    }
}

impl<const LEAST: u64, const MOST: u64> JsonSchema for Real<LEAST, MOST> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Real{LEAST}To{MOST}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "minimum": LEAST, "maximum": MOST })
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(default)]
    struct Settings {
        #[serde(with = "Whole::<1, 9>")]
        slots: NonZeroUsize,
        #[serde(with = "Whole::<0, 9>")]
        burst: u32,
        #[serde(with = "Real::<0, 60>")]
        share: f32,
    }

    impl Default for Settings {
        fn default() -> Self {
            Self { slots: NonZeroUsize::MIN, burst: 0, share: 0.0 }
        }
    }

    #[test]
    fn bounded_numbers_are_read_and_written() {
        let settings: Settings = toml::from_str("slots = 9\nburst = 0\nshare = 2").unwrap();
        assert_eq!((settings.slots.get(), settings.burst, settings.share), (9, 0, 2.0));
        let written = serde_json::to_string(&settings).unwrap();
        assert_eq!(serde_json::from_str::<Settings>(&written).unwrap(), settings);
    }

    #[test]
    fn bounded_number_error_states_the_range() {
        for (text, allowed) in [
            ("slots = 0", "a whole number from 1 to 9"),
            ("slots = 10", "a whole number from 1 to 9"),
            ("slots = 1.5", "a whole number from 1 to 9"),
            ("burst = -1", "a whole number from 0 to 9"),
            ("burst = 9223372036854775807", "a whole number from 0 to 9"),
            ("share = -0.1", "a number from 0 to 60"),
            ("share = nan", "a number from 0 to 60"),
            ("share = inf", "a number from 0 to 60"),
            ("share = 1e300", "a number from 0 to 60"),
        ] {
            let error = toml::from_str::<Settings>(text).unwrap_err().to_string();
            assert!(error.contains(allowed), "{text}: {error}");
        }
    }
}
