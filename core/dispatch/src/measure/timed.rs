//! Mean time of batches of one size, with its uncertainty.
//!
//! Problem: sizes next to each other differ by one or two percent for each row, and eight runs are uncertain by four. By
//! chance a good size seems bad, and a bad one good.
//!
//! Choice: a running mean in which a straggler counts at most twice the mean. A size also learns from its neighbours: if it
//! lies off the line between them by no more than chance explains, both estimates are joined, each by its certainty. The
//! part of its distance that chance does not explain remains, so steps of an engine are kept (James and Stein's estimate).
//!
//! Rejected: own runs only (with two instances near capacity p99 was up to twice as long); a fitted line (it hides steps).

/// Runs after which the time of a size is known, which is then their median: the first one may warm up.
pub(crate) const KNOWN: u32 = 8;

/// Runs that a mean remembers.
pub(crate) const WINDOW: u32 = 256;

/// A run counts so many means at most.
const CLIP: f32 = 2.0;

/// The times of one size.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timed {
    /// The times of the first runs.
    first: [f32; KNOWN as usize],
    pub(crate) mean: f32,
    pub(crate) runs: u32,
    /// Seen since the last sweep.
    pub(crate) seen: bool,
}

impl Timed {
    /// Notes a run. Returns how far it is off the mean, in means, if that is known.
    pub(crate) fn note(&mut self, nanos: f32) -> Option<f32> {
        self.seen = true;
        if let Some(first) = self.first.get_mut(self.runs as usize) {
            *first = nanos;
            self.runs += 1;
            if self.runs == KNOWN {
                self.first.sort_unstable_by(f32::total_cmp);
                self.mean = self.first[KNOWN as usize / 2];
            }
            return None;
        }
        self.runs = (self.runs + 1).min(WINDOW);
        let counted = nanos.min(CLIP * self.mean);
        let off = counted / self.mean - 1.0;
        self.mean += (counted - self.mean) / self.runs as f32;
        Some(off)
    }

    pub(crate) fn is_known(&self) -> bool {
        self.runs >= KNOWN
    }

    /// The estimate from a known size's own runs, of this relative variance.
    pub(crate) fn estimate(&self, variance: f32) -> Estimate {
        Estimate { time: self.mean, variance: variance * self.mean * self.mean / self.runs as f32 }
    }
}

/// An expected time in nanoseconds, and its variance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) time: f32,
    pub(crate) variance: f32,
}

impl Estimate {
    /// The estimate of a size at this part of the way between two others.
    pub(crate) fn between(self, left: Self, right: Self, part: f32) -> Self {
        let line = left.time + part * (right.time - left.time);
        let of_line = (1.0 - part).powi(2) * left.variance + part * part * right.variance;
        // The first term is what chance explains. Without it both estimates are exact.
        let (chance, off) = (of_line + self.variance, self.time - line);
        if chance <= 0.0 || off * off >= f32::MAX {
            return self;
        }
        let joined = (self.time * of_line + line * self.variance) / chance;
        let of_joined = of_line * self.variance / chance;
        let kept = (1.0 - chance / (off * off)).max(0.0);
        Self {
            time: joined + kept * (self.time - joined),
            variance: of_joined + kept * (self.variance - of_joined),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(time: f32, variance: f32) -> Estimate {
        Estimate { time, variance }
    }

    #[test]
    fn distance_that_chance_explains_does_not_count() {
        let joined = of(31.0, 4.0).between(of(20.0, 0.01), of(40.0, 0.01), 0.5);
        assert!((joined.time - 30.0).abs() < 0.01 && joined.variance < 0.01, "{joined:?}");
        let same = of(30.0, 4.0).between(of(20.0, 0.01), of(40.0, 0.01), 0.5);
        assert!((same.time - 30.0).abs() < 1e-6, "no distance at all: {same:?}");
    }

    #[test]
    fn step_of_an_engine_is_kept() {
        let step = of(20.0, 0.01).between(of(19.0, 0.01), of(31.0, 0.01), 0.5);
        assert!((step.time - 20.0).abs() < 0.02 && step.variance > 0.009, "{step:?}");
        assert_eq!(of(20.0, 0.0).between(of(19.0, 0.0), of(31.0, 0.0), 0.5), of(20.0, 0.0));
    }

    #[test]
    fn stragglers_count_twice_the_mean_at_most() {
        let mut timed = Timed::default();
        (0..KNOWN).for_each(|_| _ = timed.note(10.0));
        assert_eq!(timed.note(1e6), Some(1.0));
        assert!(timed.is_known() && timed.mean < 11.2, "{}", timed.mean);
    }
}
