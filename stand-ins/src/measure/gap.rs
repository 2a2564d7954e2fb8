//! Gap: how much more often the deployed model is right than a stand-in, on the same rows.

use serde::Serialize;

use super::agreement::Z;

/// A difference of two shares of the same rows, with its 95 % interval. Rows on which both models are right, or both
/// wrong, do not affect it, so the interval is far narrower than those of the shares.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gap {
    /// The difference: above zero where the deployed model is right more often.
    pub value: f64,
    /// The interval's lower bound.
    pub low: f64,
    /// The interval's upper bound.
    pub high: f64,
}

impl Gap {
    /// The gap over rows that both models answered. Half a row more on either side keeps the interval valid if few
    /// rows differ (Agresti and Min).
    pub(crate) fn of(deployed: &[bool], other: &[bool]) -> Self {
        let count = |wanted: (bool, bool)| {
            deployed.iter().zip(other).filter(|(a, b)| (**a, **b) == wanted).count() as f64
        };
        let (only_deployed, only_other, rows) =
            (count((true, false)), count((false, true)), deployed.len() as f64);
        let (more, less, all) = (only_deployed + 0.5, only_other + 0.5, rows + 2.0);
        let middle = (more - less) / all;
        let half = Z * ((more + less - (more - less).powi(2) / all).max(0.0)).sqrt() / all;
        Self { value: (only_deployed - only_other) / rows.max(1.0), low: middle - half, high: middle + half }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rows_that_differ_make_the_interval_wide() {
        let deployed = [[true; 900].as_slice(), &[false; 100]].concat();
        let same = Gap::of(&deployed, &deployed);
        assert!(same.value == 0.0 && same.high < 0.003 && same.low > -0.003, "{same:?}");
        let mut other = deployed.clone();
        other[..20].fill(false);
        other[900..910].fill(true);
        let gap = Gap::of(&deployed, &other);
        // 30 of 1,000 rows differ: 1.0 points, and 1.96 * sqrt(31 / 1000^2) around it.
        assert!((gap.value - 0.010).abs() < 1e-12, "{gap:?}");
        assert!((gap.high - gap.low - 2.0 * 0.0109).abs() < 3e-4, "{gap:?}");
        assert_eq!(Gap::of(&[], &[]).value, 0.0);
    }
}
