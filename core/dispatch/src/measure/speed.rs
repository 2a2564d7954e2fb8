//! Speed of an instance: the usual time of a model's run there, relative to the other instances.
//!
//! Problem: one instance of twelve is 1.4 to 2.5 times slower than its peers for good, because of its host, its
//! card or a neighbour. It answers every query, so it is neither failing nor hung. Single times say little, because
//! they vary from run to run by as much.
//!
//! Choice: a running mean of log(run / expected run) for each instance and model. A run moves the mean by at most
//! two standard deviations (Huber), so one straggler changes it little. It has a window of 60 runs. Three
//! residuals in a row beyond three standard deviations on one side start the mean anew from these three: an
//! instance that becomes slow, or well again, is known after three runs. A difference from the median instance
//! counts only if it exceeds 2.5 standard errors and a tenth: otherwise twelve equal instances would get an order by
//! chance.
//!
//! Rejected: the median of each instance's latest times (it needs as many runs to notice a change as it averages);
//! an exponential mean of times (one straggler of ten times moves it for long); a configured factor above which an
//! instance is slow (1.4 is right at half load, and wrong at 0.7 where the capacity of the slow one is needed).
//!
//! Cold start: an instance counts as fast as the others until its runs prove the opposite.

/// Runs that the mean remembers.
const WINDOW: f32 = 60.0;

/// Standard deviations by which a run moves the mean at most.
const STEP: f32 = 2.0;

/// Standard deviations beyond which a run contradicts the mean.
const BEYOND: f32 = 3.0;

/// Contradictions in a row that start the mean anew.
const CONTRADICTIONS: i8 = 3;

/// Standard errors of a difference that counts.
const ERRORS: f32 = 2.5;

/// The least difference that counts, as the logarithm of a factor: 1.1.
const LEAST: f32 = 0.095;

/// The speed of one model on one instance.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Speed {
    /// Mean of log(run / base).
    mean: f32,
    /// Runs in the mean.
    weight: f32,
    /// Contradictions in a row; negative if they were faster.
    streak: i8,
    /// Sum of the residuals of the streak.
    streak_sum: f32,
    /// How many times as long as at the median instance a run takes, as a logarithm; 0 if they do not differ.
    slower: f32,
}

impl Speed {
    /// Notes a run: the logarithm of its time over the pool's base, and the standard deviation of such logarithms.
    /// Returns the residual.
    pub(crate) fn note(&mut self, log: f32, deviation: f32) -> f32 {
        let residual = log - self.mean;
        let side = if residual.abs() <= BEYOND * deviation || self.weight < 1.0 {
            0
        } else if residual > 0.0 {
            1
        } else {
            -1
        };
        if side == 0 || side * self.streak < 0 {
            (self.streak, self.streak_sum) = (0, 0.0);
        }
        if side != 0 {
            self.streak += side;
            self.streak_sum += log;
            if self.streak.abs() >= CONTRADICTIONS {
                (self.mean, self.weight) =
                    (self.streak_sum / f32::from(CONTRADICTIONS), f32::from(CONTRADICTIONS));
                (self.streak, self.streak_sum) = (0, 0.0);
                return residual;
            }
        }
        self.weight = (self.weight + 1.0).min(WINDOW);
        let most = STEP * deviation;
        self.mean += residual.clamp(-most, most) / self.weight;
        residual
    }

    /// Whether the latest run was much faster than the mean: the instance may be well again.
    pub(crate) fn may_be_well(&self) -> bool {
        self.streak < 0
    }

    /// The mean, once it means something.
    pub(crate) fn mean(&self) -> Option<f32> {
        (self.weight >= f32::from(CONTRADICTIONS)).then_some(self.mean)
    }

    /// Compares the mean with that of the median instance. Returns whether there is a difference now and was none
    /// before, or the reverse.
    pub(crate) fn compare(&mut self, median: f32, deviation: f32) -> bool {
        let before = self.slower;
        let difference = self.mean - median;
        let differs = || difference.abs() > ERRORS * deviation / self.weight.max(1.0).sqrt();
        let counts = self.mean().is_some() && difference.abs() > LEAST && differs();
        self.slower = if counts { difference } else { 0.0 };
        (before == 0.0) != (self.slower == 0.0)
    }

    /// How many times as long as at the median instance a run takes.
    pub(crate) fn factor(&self) -> f32 {
        self.slower.exp()
    }

    /// The logarithm of that factor.
    pub(crate) fn slower(&self) -> f32 {
        self.slower
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVIATION: f32 = 0.1;

    fn after(runs: impl IntoIterator<Item = f32>) -> Speed {
        let mut speed = Speed::default();
        runs.into_iter().for_each(|factor| {
            speed.note(factor.ln(), DEVIATION);
        });
        speed.compare(0.0, DEVIATION);
        speed
    }

    #[test]
    fn slow_instance_is_known_after_three_runs_and_after_recovery() {
        let slow = || (0..50).map(|_| 1.0).chain([2.4; 3]);
        assert_eq!(after((0..50).map(|_| 1.0).chain([2.4; 2])).factor(), 1.0);
        assert!((after(slow()).factor() - 2.4).abs() < 0.01);
        assert_eq!(after(slow().chain([1.0; 3])).factor(), 1.0);
    }

    #[test]
    fn stragglers_and_chance_are_no_difference() {
        let straggler = |n: u32| if n % 20 == 7 { 8.0 } else { 1.0 + 0.1 * (n % 3) as f32 - 0.1 };
        assert_eq!(after((0..400).map(straggler)).factor(), 1.0);
        assert_eq!(after([1.15; 3]).factor(), 1.0, "three runs do not prove a small difference");
        assert!(after([1.15; 60]).factor() > 1.1);
    }
}
