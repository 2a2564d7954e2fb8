//! `approximate-backup`: a cheaper model on dedicated instances runs every query and answers late ones.
//!
//! One of `k + 1` instances is dedicated. It is the baseline for parities at the same cost in instances. Unlike a
//! parity the model runs every query, so it saturates unless it is at least `k` times as cheap as the deployed
//! model.

use std::time::Duration;

use super::hooks::{Along, Policy, grace, one_of_k_plus_one};
use crate::api::{CodingSettings, GraceSettings};
use crate::measure::quantile::Reading;

pub(crate) struct ApproximateBackup {
    k: u8,
    grace: GraceSettings,
}

impl ApproximateBackup {
    pub(crate) fn new(settings: &CodingSettings) -> Self {
        Self { k: settings.k.get(), grace: settings.grace }
    }
}

impl Policy for ApproximateBackup {
    fn along(&self, _utilisation: f64) -> Along {
        Along { backup: true, ..Along::default() }
    }

    fn dedicated(&self, instances: u32) -> u32 {
        one_of_k_plus_one(instances, self.k)
    }

    fn grace(&self, recent: Option<Reading>) -> Duration {
        grace(&self.grace, recent)
    }
}
