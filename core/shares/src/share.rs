//! One share's place on the virtual clock.

use std::cmp::Ordering;

/// Virtual clock that shares are compared with; service advances it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    now: f64,
}

/// A share's weight and place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    weight: f64,
    /// Place on the clock at which its next job is due.
    due: f64,
}

/// Place in the order of service; the least is served next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Due(f64);

impl Share {
    pub(crate) fn new(weight: f64) -> Self {
        Self { weight: usable(weight), due: 0.0 }
    }

    /// Changes the weight.
    pub(crate) fn weigh(&mut self, weight: f64) {
        self.weight = usable(weight);
    }

    pub(crate) fn weight(&self) -> f64 {
        self.weight
    }

    /// Place at which the next job is due.
    pub(crate) fn due(&self, clock: &Clock) -> Due {
        Due(self.due.max(clock.now))
    }

    /// Whether the share has used no more than its part; forgetting it then changes nothing.
    pub(crate) fn is_even(&self, clock: &Clock) -> bool {
        self.due <= clock.now
    }

    /// Moves an idle share up to the clock when it has a job again, as it saves nothing up.
    pub(crate) fn come(&mut self, clock: &Clock) {
        self.due = self.due.max(clock.now);
    }

    /// Charges the expected seconds of a job.
    pub(crate) fn charge(&mut self, clock: &Clock, seconds: f64) {
        self.due = self.due.max(clock.now) + seconds / self.weight;
    }

    /// Adds the difference between the actual and the charged seconds.
    pub(crate) fn correct(&mut self, seconds: f64) {
        self.due += seconds / self.weight;
    }
}

impl Clock {
    /// Place of a new share.
    pub(crate) fn due(&self) -> Due {
        Due(self.now)
    }

    /// Moves the clock to the waiting share that is farthest behind, at most `most` behind the served one.
    pub(crate) fn follow(&mut self, served: &Share, behind: Option<Due>, most: f64) {
        let from = served.due.max(self.now);
        let farthest = behind.map_or(from, |behind| behind.0.min(from));
        self.now = self.now.max(farthest).max(from - most);
    }
}

/// Replaces invalid weights by 1; settings reject them before.
fn usable(weight: f64) -> f64 {
    if weight.is_finite() && weight > 0.0 { weight } else { 1.0 }
}

impl Eq for Due {}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
