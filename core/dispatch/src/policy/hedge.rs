//! A late batch once more, elsewhere: exact answers at the price of a small share of extra work.
//!
//! Late is what is slower than the budget can duplicate: with a tenth of extra work allowed, the slowest tenth. But
//! never less than 1.25 medians: where service times hardly vary, the slowest tenth is no slower than the rest, and
//! duplicating it would spend the budget on nothing. And never less than what a duplicate costs. While too few times are known nothing is late.

use std::time::Duration;

use super::Policy;
use crate::HedgeSettings;
use crate::quantile::Reading;
use crate::time::times;

pub(super) struct Hedge {
    median_factor: f64,
    min_delay: Duration,
}

impl Hedge {
    pub(super) fn new(settings: &HedgeSettings) -> Self {
        Self { median_factor: settings.median_factor.get(), min_delay: settings.min_delay }
    }
}

impl Policy for Hedge {
    fn hedges(&self) -> bool {
        true
    }

    fn gives_ahead(&self) -> bool {
        true
    }

    fn late_after(&self, recent: Option<Reading>) -> Option<Duration> {
        let Reading { median, high } = recent?;
        Some(high.max(times(median, self.median_factor)).max(self.min_delay))
    }
}
