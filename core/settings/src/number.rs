//! Numbers with limits, checked only when they are read: files, flags and changes at run time refuse a wrong one alike. A negative,
//! infinite or huge number makes a multiplication of durations panic, and a panic in the dispatcher ends the process.

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

/// How many times something: 0 to 1000, both included.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "f64", into = "f64")]
#[schemars(inline, extend("minimum" = 0.0, "maximum" = 1000.0))]
pub struct Factor(f64);

/// The number is not a factor.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{0} is not a factor: give a number from 0 to 1000")]
pub struct NotAFactor(pub f64);

impl Factor {
    /// A factor in percent: values over 100000 count as that.
    pub const fn percent(percent: u32) -> Self {
        let percent = if percent > 100_000 { 100_000 } else { percent };
        Self(percent as f64 / 100.0)
    }

    /// The number.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Factor {
    type Error = NotAFactor;

    fn try_from(value: f64) -> Result<Self, NotAFactor> {
        if (0.0..=1000.0).contains(&value) { Ok(Self(value)) } else { Err(NotAFactor(value)) }
    }
}

impl From<Factor> for f64 {
    fn from(factor: Factor) -> f64 {
        factor.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factor_is_finite_and_not_negative() {
        for good in [0.0, 1.25, 1000.0] {
            assert_eq!(Factor::try_from(good).map(Factor::get), Ok(good));
        }
        for bad in [-1.0, -f64::MIN_POSITIVE, 1000.5, 1e300, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            let error = Factor::try_from(bad).unwrap_err().to_string();
            assert!(error.contains("0 to 1000") && error.contains(&bad.to_string()), "{error}");
        }
        assert_eq!(Factor::percent(125).get(), 1.25);
    }
}
