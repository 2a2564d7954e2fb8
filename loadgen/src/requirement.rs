//! Thresholds that a run must meet, for scripts: `p99.9<=20ms`, `failed<=0.1%`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::Error;

/// One threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Requirement {
    /// This share of the requests took at most this long.
    Quantile(f64, Duration),
    /// At most this share of the requests failed.
    Failed(f64),
}

impl FromStr for Requirement {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refused = || Error::BadRequirement { text: text.to_owned() };
        let (what, limit) = text.split_once("<=").ok_or_else(refused)?;
        let number =
            |text: &str| text.trim().parse::<f64>().ok().filter(|value| *value >= 0.0).ok_or_else(refused);
        if what.trim() == "failed" {
            let share = limit.trim().strip_suffix('%').ok_or_else(refused)?;
            return Ok(Requirement::Failed(number(share)? / 100.0));
        }
        let share = number(what.trim().strip_prefix('p').ok_or_else(refused)?)? / 100.0;
        let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
        let (digits, unit) = units
            .into_iter()
            .find_map(|(suffix, unit)| Some((limit.trim().strip_suffix(suffix)?, unit)))
            .ok_or_else(refused)?;
        if share > 1.0 {
            return Err(refused());
        }
        Ok(Requirement::Quantile(share, Duration::from_secs_f64(number(digits)? * unit)))
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Requirement::Quantile(share, limit) => {
                write!(f, "p{}<={}ms", (share * 1e5).round() / 1e3, limit.as_secs_f64() * 1e3)
            }
            Requirement::Failed(share) => write!(f, "failed<={}%", (share * 1e8).round() / 1e6),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_are_read_as_people_write_them() {
        let ms = Duration::from_millis;
        for (text, want) in [
            ("p99.9<=20ms", Requirement::Quantile(0.999, ms(20))),
            ("p50 <= 1.5s", Requirement::Quantile(0.5, ms(1500))),
            ("p99<=250us", Requirement::Quantile(0.99, Duration::from_micros(250))),
            ("failed<=0.1%", Requirement::Failed(0.001)),
        ] {
            let read: Requirement = text.parse().unwrap();
            match (read, want) {
                (Requirement::Quantile(a, x), Requirement::Quantile(b, y)) => {
                    assert!((a - b).abs() < 1e-9 && x == y)
                }
                (Requirement::Failed(a), Requirement::Failed(b)) => assert!((a - b).abs() < 1e-9),
                _ => panic!("{text}: {read}"),
            }
            assert_eq!(
                read.to_string().parse::<Requirement>().map(|again| again.to_string()),
                Ok(read.to_string())
            );
        }
        for bad in ["", "p99", "p101<=1ms", "p99<=1", "p99<=-1ms", "failed<=3", "q9<=1ms"] {
            assert!(bad.parse::<Requirement>().is_err(), "{bad}");
        }
    }
}
