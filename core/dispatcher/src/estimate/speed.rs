//! The speed of an instance: how much longer a model's run takes there than at the median instance.
//!
//! Problem: one instance of twelve is 1.4 to 2.5 times slower than its peers for good, because of its host, its card or a
//! neighbour. It answers every query, so it neither fails nor hangs. Single times say little, because they vary from run to
//! run by as much.
//!
//! Choice: a running mean of ln(run / base) for each instance and model, over 60 runs. A run moves the mean by at most two
//! standard deviations (Huber), so one straggler changes it little. Two runs in a row that contradict the mean on the same
//! side, by more than three standard deviations, start it anew: an instance that becomes slow, or well again, is known
//! after two runs. A difference from the median instance counts only if it exceeds 2.5 standard errors and a tenth;
//! otherwise twelve equal instances would get an order by chance.
//!
//! Without the estimate the gap between p99.9 and p50 is 221 % larger where one of twelve instances is 2.4 times slower at
//! half load, and 47 % larger where two hosts are 1.6 times slower (docs/results/tail.md). With three contradictions
//! instead of two it is 18 % larger where instances are five times slower for two seconds.
//!
//! Cold start: an instance counts as fast as its peers until its runs prove the opposite.

const WINDOW: f32 = 60.0;
const STEP: f32 = 2.0;
const BEYOND: f32 = 3.0;
const CONTRADICTIONS: i8 = 2;
const ERRORS: f32 = 2.5;
/// The least difference that counts, as the logarithm of 1.1.
const LEAST: f32 = 0.095;

/// The speed of one model at one instance.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Speed {
    mean: f32,
    /// Runs in the mean.
    pub(crate) runs: f32,
    /// Contradictions in a row; negative if they were faster.
    streak: i8,
    streak_sum: f32,
}

impl Speed {
    /// Learns from a run, given as ln(run / base), where such logarithms have this standard deviation. Returns how much the
    /// run differs from the mean of its instance.
    pub(crate) fn learn(&mut self, log: f32, deviation: f32) -> f32 {
        let residual = log - self.mean;
        let side = match residual {
            _ if self.runs < 1.0 || residual.abs() <= BEYOND * deviation => 0,
            _ if residual > 0.0 => 1,
            _ => -1,
        };
        if side * self.streak <= 0 {
            (self.streak, self.streak_sum) = (0, 0.0);
        }
        if side != 0 {
            self.streak += side;
            self.streak_sum += log;
            if self.streak.abs() == CONTRADICTIONS {
                self.runs = f32::from(CONTRADICTIONS);
                self.mean = self.streak_sum / self.runs;
                (self.streak, self.streak_sum) = (0, 0.0);
                return residual;
            }
        }
        self.runs = (self.runs + 1.0).min(WINDOW);
        self.mean += residual.clamp(-STEP * deviation, STEP * deviation) / self.runs;
        residual
    }

    /// The mean, once it means something.
    pub(crate) fn mean(&self) -> Option<f32> {
        (self.runs >= f32::from(CONTRADICTIONS)).then_some(self.mean)
    }

    /// Whether the latest run was much faster than the mean: the instance may be well again.
    pub(crate) fn may_be_well(&self) -> bool {
        self.streak < 0
    }

    /// The logarithm of how many times as long as at the median instance a run takes; 0 if the instance does not differ from that one.
    pub(crate) fn slower(&self, median: f32, deviation: f32) -> f32 {
        let difference = self.mean - median;
        let counts = self.mean().is_some()
            && difference.abs() > LEAST
            && difference.abs() > ERRORS * deviation / self.runs.sqrt();
        if counts { difference } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVIATION: f32 = 0.1;

    fn factor_after(runs: impl IntoIterator<Item = f32>) -> f32 {
        let mut speed = Speed::default();
        for factor in runs {
            speed.learn(factor.ln(), DEVIATION);
        }
        speed.slower(0.0, DEVIATION).exp()
    }

    #[test]
    fn slow_instance_is_known_after_two_runs_and_so_is_its_recovery() {
        let slow = || (0..50).map(|_| 1.0).chain([2.4; 2]);
        assert_eq!(factor_after(slow().take(51)), 1.0);
        assert!((factor_after(slow()) - 2.4).abs() < 0.01);
        assert_eq!(factor_after(slow().chain([1.0; 2])), 1.0);
    }

    #[test]
    fn stragglers_and_chance_are_no_difference() {
        let straggler = |n: u32| if n % 20 == 7 { 8.0 } else { 1.0 + 0.1 * (n % 3) as f32 - 0.1 };
        assert_eq!(factor_after((0..400).map(straggler)), 1.0);
        assert_eq!(factor_after([1.15; 3]), 1.0, "three runs do not prove a small difference");
        assert!(factor_after([1.15; 60]) > 1.1);
    }
}
