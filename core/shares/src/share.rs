//! One share's place on the clock.

use std::cmp::Ordering;

/// The clock that shares are compared by: it goes on with the service that is given.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    now: f64,
}

/// One of those that are served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    weight: f64,
    /// Its place on the clock: when its next job is due.
    due: f64,
}

/// A share's place in the order of service: the least is served next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Due(f64);

impl Share {
    pub(crate) fn new(weight: f64) -> Self {
        Self { weight: usable(weight), due: 0.0 }
    }

    /// Another weight from now on.
    pub(crate) fn weigh(&mut self, weight: f64) {
        self.weight = usable(weight);
    }

    pub(crate) fn weight(&self) -> f64 {
        self.weight
    }

    /// When it is to be served.
    pub(crate) fn due(&self, clock: &Clock) -> Due {
        Due(self.due.max(clock.now))
    }

    /// Whether it has had no more than its part: forgetting it changes nothing.
    pub(crate) fn is_even(&self, clock: &Clock) -> bool {
        self.due <= clock.now
    }

    /// It has something to ask for again: it has saved nothing up.
    pub(crate) fn come(&mut self, clock: &Clock) {
        self.due = self.due.max(clock.now);
    }

    /// It is served, for about so long.
    pub(crate) fn charge(&mut self, clock: &Clock, seconds: f64) {
        self.due = self.due.max(clock.now) + seconds / self.weight;
    }

    /// It was so much more than was charged.
    pub(crate) fn correct(&mut self, seconds: f64) {
        self.due += seconds / self.weight;
    }
}

impl Clock {
    /// The place of somebody who comes new.
    pub(crate) fn due(&self) -> Due {
        Due(self.now)
    }

    /// A share is served: the clock is where the farthest back of those that wait is, and no more than `most` behind.
    pub(crate) fn follow(&mut self, served: &Share, behind: Option<Due>, most: f64) {
        let from = served.due.max(self.now);
        let farthest = behind.map_or(from, |behind| behind.0.min(from));
        self.now = self.now.max(farthest).max(from - most);
    }
}

/// Weights come from settings, which refuse what is none.
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
