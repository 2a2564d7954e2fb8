//! Writes to the log when no instance answers for a model, when its requests fail or are too many, and when no instance serves
//! its stand-in.
//!
//! Once a second, so that a flood of failing requests is one line. A model without an instance is an error, also while
//! stand-ins answer; the line that ends it says how long it lasted.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parm_protocol::rounded;
use tokio::time::Instant;

use super::Core;
use crate::console::LogRate;
use crate::serve::pool::Pool;
use crate::serve::reading::PoolId;

/// Interval between checks.
const EVERY: Duration = Duration::from_secs(1);

/// The load is too high if more than one query in this many has no answer because of it.
const ONE_IN: u64 = 20;

/// Checks in a row that a stand-in must be missing: servers join at different times.
const CHECKS: u32 = 5;

/// Models and log lines seen so far.
#[derive(Default)]
struct Seen {
    models: BTreeMap<PoolId, Course>,
    lines: LogRate<(PoolId, Subject)>,
}

#[derive(Default)]
struct Course {
    /// Start of the outage.
    down: Option<Instant>,
    /// Counts at the last lines.
    failed: u64,
    load: Load,
    absence: Absence,
}

/// Queries without an answer because of the load.
#[derive(Default)]
struct Load {
    /// Rejected and expired queries at the last check, and arrived ones.
    seen: [u64; 2],
    arrived: u64,
    /// Rejected and expired queries at the last line.
    told: [u64; 2],
}

/// A stand-in that no instance serves.
#[derive(Default)]
struct Absence {
    name: String,
    checks: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Subject {
    Failing,
    Load,
}

/// Checks until the frontend is gone.
pub(super) async fn watch(core: Weak<Core>) {
    let mut seen = Seen::default();
    loop {
        tokio::time::sleep(EVERY).await;
        let Some(core) = core.upgrade() else { return };
        let pools = core.catalog.all();
        seen.models.retain(|id, _| pools.iter().any(|pool| pool.id == *id));
        for pool in &pools {
            seen.look(&core, pool);
        }
    }
}

impl Seen {
    fn look(&mut self, core: &Core, pool: &Arc<Pool>) {
        let Some(reading) = core.driver.reading(pool.id) else { return };
        let now_ms = core.driver.now_ms();
        let model = self.models.entry(pool.id).or_default();
        let name = &pool.model.name;
        let is_used = reading.counters.arrived > 0;
        let works = reading.usable_instances > 0 && !reading.in_outage;
        match (works, model.down) {
            // Clients do not request models that only serve others, nor most routes.
            (false, None) if core.serves_others(name).is_none() && (!pool.is_route || is_used) => {
                model.down = Some(Instant::now());
                pool.outages.fetch_add(u64::from(reading.in_outage), Ordering::Relaxed);
                let (what, then) = match (reading.in_outage, reading.usable_instances) {
                    (true, 0) => ("serves", "its stand-in answers"),
                    (true, _) => ("answers for", "its stand-in answers"),
                    (false, _) => ("serves", "every request fails"),
                };
                tracing::error!(
                    code = %parm_protocol::StableCode::NoInstance,
                    "no instance {what} '{name}': {then}"
                );
                core.driver.tell_of(pool, format!("no instance {what} {name}: {then}"));
            }
            (true, Some(since)) => {
                model.down = None;
                let after = rounded(since.elapsed());
                tracing::info!(instances = reading.usable_instances, ?after, "'{name}' is served again");
                core.driver.tell_of(pool, format!("{name} is served again after {} s", after.as_secs()));
            }
            _ => {}
        }
        let (failed, last) = pool.troubles();
        let new = failed - model.failed;
        if new > 0
            && let Some((_, last)) = last
            && self.lines.due(now_ms, (pool.id, Subject::Failing)).is_some()
        {
            tracing::warn!(model = %name, failed = new, last = %last.error, "requests failed within the last 60 s");
            model.failed = failed;
        }
        let lost = pool.sums.overloaded();
        if model.load.is_high(lost, reading.counters.arrived)
            && self.lines.due(now_ms, (pool.id, Subject::Load)).is_some()
        {
            let [rejected, expired] = model.load.untold(lost);
            tracing::warn!(
                code = %parm_protocol::StableCode::Overloaded, model = %name, rejected, expired,
                "the load exceeds the capacity: requests are rejected or miss their deadlines: add instances, batch, or \
                 limit clients"
            );
        }
        let stand_in = core.stand_in_standing(pool).map(|own| (own.model, own.served));
        let presence = model.absence.look(reading.usable_instances > 0, stand_in.clone());
        let stand_in = stand_in.map(|(name, _)| name).unwrap_or_default();
        match presence {
            Some(false) => {
                tracing::warn!(
                    model = %name, %stand_in,
                    "no instance serves the stand-in, so late queries are hedged: load it on the workers, or correct \
                     stand_in.model or --stand-in"
                );
                core.driver.tell_of(pool, format!("no instance serves {stand_in}, the stand-in of {name}"));
            }
            Some(true) => {
                tracing::info!(model = %name, %stand_in, "the stand-in is served");
                core.driver.tell_of(pool, format!("{stand_in}, the stand-in of {name}, is served"));
            }
            None => {}
        }
    }
}

impl Load {
    /// Whether too many queries were lost since the last check.
    fn is_high(&mut self, lost: [u64; 2], arrived: u64) -> bool {
        let new = lost.iter().sum::<u64>() - self.seen.iter().sum::<u64>();
        let all = arrived.saturating_sub(self.arrived);
        (self.seen, self.arrived) = (lost, arrived);
        new > 0 && new * ONE_IN >= all
    }

    /// Lost queries since the last line.
    fn untold(&mut self, lost: [u64; 2]) -> [u64; 2] {
        let before = std::mem::replace(&mut self.told, lost);
        std::array::from_fn(|at| lost[at] - before[at])
    }
}

impl Absence {
    /// Takes the name of a stand-in and whether it is served, or `None` without one. A model that no instance serves says
    /// nothing about its stand-in. Returns whether it is there, if that is news.
    fn look(&mut self, is_served: bool, stand_in: Option<(String, bool)>) -> Option<bool> {
        if !is_served {
            return None;
        }
        let (name, is_present) = stand_in.unwrap_or_default();
        let was_told = self.checks >= CHECKS;
        if name != self.name {
            *self = Self { name, checks: 0 };
        } else if is_present {
            self.checks = 0;
            return was_told.then_some(true);
        }
        if is_present || self.name.is_empty() {
            return None;
        }
        self.checks = self.checks.saturating_add(1);
        (self.checks == CHECKS).then_some(false)
    }
}
