//! Numbers with limits, checked only when they are read: files, flags and changes at run time refuse a wrong one alike. A negative,
//! infinite or huge number makes a multiplication of durations panic, and a panic in the dispatcher ends the process.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A share of something: 0 to 1, both included.
pub type Fraction = Bounded<1>;

/// How many times something: 0 to 1000, both included.
pub type Factor = Bounded<1000>;

/// A number from 0 to a largest one, both included.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "f64", into = "f64")]
#[schemars(inline, extend("minimum" = 0.0, "maximum" = f64::from(MOST)))]
pub struct Bounded<const MOST: u16>(f64);

/// The number is out of its bounds.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{given} is out of range: give a number from 0 to {most}")]
pub struct OutOfBounds {
    /// The number.
    pub given: f64,
    /// The largest one.
    pub most: u16,
}

impl<const MOST: u16> Bounded<MOST> {
    /// A number in percent: larger values count as the largest one.
    pub const fn percent(percent: u8) -> Self {
        let number = percent as f64 / 100.0;
        Self(if number > MOST as f64 { MOST as f64 } else { number })
    }

    /// The number.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl<const MOST: u16> TryFrom<f64> for Bounded<MOST> {
    type Error = OutOfBounds;

    fn try_from(given: f64) -> Result<Self, OutOfBounds> {
        let is_within = (0.0..=f64::from(MOST)).contains(&given);
        if is_within { Ok(Self(given)) } else { Err(OutOfBounds { given, most: MOST }) }
    }
}

impl<const MOST: u16> From<Bounded<MOST>> for f64 {
    fn from(bounded: Bounded<MOST>) -> f64 {
        bounded.0
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
        assert_eq!((Factor::percent(125).get(), Fraction::percent(125).get()), (1.25, 1.0));
    }
}
