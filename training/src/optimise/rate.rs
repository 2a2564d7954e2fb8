//! Schedules of the step size.

use serde::{Deserialize, Serialize};

/// The schedule after the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Course {
    /// Constant, as in ParM's recipe.
    Constant,
    /// Falls to zero along half a cosine.
    #[default]
    Cosine,
}

/// A schedule of the step size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// The maximum.
    pub peak: f32,
    /// Number of steps in which it rises from zero to the maximum.
    pub warm_up: u64,
    /// Total number of steps.
    pub steps: u64,
    /// The schedule after the warm-up.
    pub shape: Course,
}

impl Rate {
    /// The step size of step `at`, counted from 0.
    pub fn at(&self, at: u64) -> f32 {
        if at < self.warm_up {
            return self.peak * (at + 1) as f32 / self.warm_up as f32;
        }
        match self.shape {
            Course::Constant => self.peak,
            Course::Cosine => {
                let rest = self.steps.saturating_sub(self.warm_up).max(1);
                let share = ((at - self.warm_up) as f64 / rest as f64).min(1.0);
                (f64::from(self.peak) * 0.5 * (1.0 + (std::f64::consts::PI * share).cos())) as f32
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_rises_to_the_peak_and_falls_to_zero() {
        let rate = Rate { peak: 0.5, warm_up: 10, steps: 110, shape: Course::Cosine };
        assert_eq!(rate.at(4), 0.25);
        assert_eq!(rate.at(9), 0.5);
        assert_eq!(rate.at(10), 0.5);
        assert!((rate.at(60) - 0.25).abs() < 1e-6);
        assert!(rate.at(110) < 1e-9);
        assert_eq!(Rate { shape: Course::Constant, ..rate }.at(1000), 0.5);
    }
}
