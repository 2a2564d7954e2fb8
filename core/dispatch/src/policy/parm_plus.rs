//! `parm+`: ParM on a shared pool, where parities use idle time only.
//!
//! The split of `parm` costs capacity: with a third of the instances kept for parities the rest saturate at two
//! thirds of the load. A shared pool in which parities yield costs queries almost nothing, and a reconstruction
//! that is held back for a grace replaces only late predictions. A hedge within a budget covers the rest: open
//! groups, losses beyond the code, and clients who require exact answers.
//!
//! The size of groups follows the load. Parities of groups of `k` cost `u / k` if queries keep a share `u` of the
//! pool busy. They should fit under 65 %, because waiting times rise beyond it: `k = ceil(u / (0.65 - u))`. At low
//! load `k` is 1: a parity of one query is a copy of it, so a copy is sent, and its answer is exact. Above, the
//! largest groups with a model are made; parities that do not fit are not sent, because they yield.
//!
//! A started parity runs to its end, and a query that arrives meanwhile may find no idle instance. So parities
//! leave a few instances idle (`headroom`). Rejected: no coding above some load (it gave up nine tenths of the
//! gain at 57 % because measured load varies). Above 80 % hardly any instance is idle, and no group is formed.

use std::time::Duration;

use super::hedge::Hedge;
use super::hooks::{Along, Policy, grace, kept_for_parities};
use crate::api::{Coding, CodingSettings, PoolSettings};
use crate::measure::quantile::Reading;

const FULL: f64 = 0.65;
const NO_ROOM: f64 = 0.80;

pub(crate) struct ParmPlus {
    settings: CodingSettings,
    hedge: Hedge,
    /// Ascending.
    sizes: Vec<u8>,
}

impl ParmPlus {
    pub(crate) fn new(settings: &PoolSettings, coding: &Coding) -> Self {
        let sizes = coding.codes.iter().filter_map(|code| u8::try_from(code.k).ok()).collect();
        Self { settings: settings.coding.clone(), hedge: Hedge::new(&settings.hedge), sizes }
    }

    /// The smallest group that the load leaves room for, or the largest that there is a model for: parities yield.
    fn size(&self, utilisation: f64) -> Option<u8> {
        if utilisation > NO_ROOM {
            return None;
        }
        let wanted =
            if utilisation < FULL { (utilisation / (FULL - utilisation)).ceil() } else { f64::INFINITY };
        if wanted <= 1.0 {
            return Some(1);
        }
        self.sizes.iter().copied().find(|size| f64::from(*size) >= wanted).or(self.sizes.last().copied())
    }
}

impl Policy for ParmPlus {
    fn along(&self, utilisation: f64) -> Along {
        let k = self.settings.k.get();
        let size = if self.settings.parm_plus.k_follows_load { self.size(utilisation) } else { Some(k) };
        let group = size.filter(|size| *size > 1);
        Along {
            copies: u8::from(size == Some(1)),
            group,
            at_once: !self.settings.parm_plus.parities_yield,
            backup: false,
        }
    }

    fn hedges(&self) -> bool {
        self.settings.parm_plus.hedge
    }

    fn late_after(&self, recent: Option<Reading>) -> Option<Duration> {
        self.settings.parm_plus.hedge.then(|| self.hedge.late_after(recent)).flatten()
    }

    fn dedicated(&self, instances: u32) -> u32 {
        if self.settings.parm_plus.shared_pool { 0 } else { kept_for_parities(instances, &self.settings) }
    }

    /// Dedicated instances have nothing to be idle for.
    fn headroom(&self, instances: u32) -> u32 {
        let share = if self.settings.parm_plus.shared_pool { self.settings.headroom.get() } else { 0.0 };
        (f64::from(instances) * share).round() as u32
    }

    fn grace(&self, recent: Option<Reading>) -> Duration {
        grace(&self.settings.grace, recent)
    }
}
