//! `hedge`: a late batch runs once more on another instance.
//!
//! Answers are exact, for a small share of extra work. A job is late when it is slower than the budget can
//! duplicate: with a tenth of extra work, the slowest tenth. It must also exceed 1.25 medians, because the slowest
//! tenth is as fast as the rest if service times hardly vary, and the cost of a duplicate. While too few times are
//! known no job is late.

use std::time::Duration;

use super::hooks::Policy;
use crate::api::HedgeSettings;
use crate::api::times;
use crate::measure::quantile::Reading;

/// Medians before which no job is late.
const MEDIANS: f64 = 1.25;

pub(crate) struct Hedge {
    min_delay: Duration,
}

impl Hedge {
    pub(crate) fn new(settings: &HedgeSettings) -> Self {
        Self { min_delay: settings.min_delay }
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
        Some(high.max(times(median, MEDIANS)).max(self.min_delay))
    }
}
