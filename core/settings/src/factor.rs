//! A finite number from 0 to 1000, which multiplies durations.
//!
//! A negative, infinite or huge number makes the multiplication panic, and a panic in the dispatcher ends the process. The
//! type is read like [`Fraction`](super::Fraction), so that files, flags and changes at run time refuse such a number alike.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many times something: 0 to 1000, both included.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "f64", into = "f64")]
#[schemars(inline, extend("minimum" = 0.0, "maximum" = 1000.0))]
pub struct Factor(f64);

/// The number is not a factor.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{0} is not a factor: give a number from 0 to 1000")]
pub struct NotAFactor(pub f64);

/// The largest factor. No useful setting comes near it.
const MOST: f64 = 1000.0;

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
        if (0.0..=MOST).contains(&value) { Ok(Self(value)) } else { Err(NotAFactor(value)) }
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
