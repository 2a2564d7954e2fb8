//! A cheaper model answers late queries.

use std::time::Duration;

use super::hedge::Hedge;
use super::{Policy, grace};
use crate::quantile::Reading;
use crate::{HedgeSettings, StandInSettings};

pub(super) struct StandIn {
    settings: StandInSettings,
    hedge: Hedge,
}

impl StandIn {
    pub(super) fn new(settings: &StandInSettings, hedge: &HedgeSettings) -> Self {
        Self { settings: settings.clone(), hedge: Hedge::new(hedge) }
    }
}

impl Policy for StandIn {
    fn late_after(&self, recent: Option<Reading>) -> Option<Duration> {
        self.settings.hedge.then(|| self.hedge.late_after(recent)).flatten()
    }

    fn grace(&self, recent: Option<Reading>) -> Duration {
        grace(&self.settings.grace, recent)
    }
}
