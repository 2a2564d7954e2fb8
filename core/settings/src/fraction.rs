//! A number from 0 to 1, checked only when a configuration file is read.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A share of something: 0 to 1, both included.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "f64", into = "f64")]
#[schemars(inline, extend("minimum" = 0.0, "maximum" = 1.0))]
pub struct Fraction(f64);

/// The number is not a fraction.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{0} is not a share: give a number from 0 to 1, such as 0.1 for 10 %")]
pub struct NotAFraction(pub f64);

impl Fraction {
    /// A fraction in percent: values over 100 count as 100.
    pub const fn percent(percent: u8) -> Self {
        let percent = if percent > 100 { 100 } else { percent };
        Self(percent as f64 / 100.0)
    }

    /// A fraction in billionths: values over 1000000000 count as that.
    pub const fn billionths(count: u32) -> Self {
        let count = if count > 1_000_000_000 { 1_000_000_000 } else { count };
        Self(count as f64 / 1e9)
    }

    /// The number.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Fraction {
    type Error = NotAFraction;

    fn try_from(value: f64) -> Result<Self, NotAFraction> {
        if (0.0..=1.0).contains(&value) { Ok(Self(value)) } else { Err(NotAFraction(value)) }
    }
}

impl From<Fraction> for f64 {
    fn from(fraction: Fraction) -> f64 {
        fraction.0
    }
}
