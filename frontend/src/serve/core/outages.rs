//! Writes to the log when no instance answers for a model, when its requests fail and when its budgets are spent.
//!
//! Once a second, so that a flood of failing requests is one line. A model without an instance is an error, also while
//! stand-ins answer; the line that ends it says how long it lasted.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parm_dispatch::{Counters, PoolId};
use parm_protocol::rounded;
use tokio::time::Instant;

use super::Core;
use crate::console::{Happening, Kind, LogRate};
use crate::serve::pool::Pool;

/// Interval between checks.
const EVERY: Duration = Duration::from_secs(1);

/// Time after the last failed request during which a model counts as failing.
const RECENT: Duration = Duration::from_secs(60);

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
    /// Failed requests at the last check, and when there were new ones.
    seen: u64,
    troubled: Option<Instant>,
    /// Counts at the last lines.
    failed: u64,
    refused: [u64; 3],
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Subject {
    Failing,
    Budget,
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
        let Some(status) = core.driver.status(pool.id) else { return };
        let now_ms = core.driver.now_ms();
        let model = self.models.entry(pool.id).or_default();
        let name = &pool.model.name;
        let works = status.usable_instances > 0 && !status.in_outage;
        match (works, model.down) {
            // Clients do not request models that only serve others.
            (false, None) if core.serves_others(name).is_none() => {
                model.down = Some(Instant::now());
                let (what, then) = match (status.in_outage, status.usable_instances) {
                    (true, 0) => ("serves", "its stand-in answers"),
                    (true, _) => ("answers for", "its stand-in answers"),
                    (false, _) => ("serves", "every request fails"),
                };
                tracing::error!(
                    code = %parm_protocol::StableCode::NoInstance,
                    "no instance {what} '{name}': {then}"
                );
                tell(core, pool, format!("no instance {what} {name}: {then}"));
            }
            (true, Some(since)) => {
                model.down = None;
                let after = rounded(since.elapsed());
                tracing::info!(instances = status.usable_instances, ?after, "'{name}' is served again");
                tell(core, pool, format!("{name} is served again after {} s", after.as_secs()));
            }
            _ => {}
        }
        let (failed, trouble) = pool.troubles();
        if failed > model.seen {
            (model.seen, model.troubled) = (failed, Some(Instant::now()));
            pool.set_failing(Some(trouble.clone()));
        } else if model.troubled.is_some_and(|since| since.elapsed() > RECENT) {
            model.troubled = None;
            pool.set_failing(None);
        }
        let new = failed - model.failed;
        if new > 0 && self.lines.due(now_ms, (pool.id, Subject::Failing)).is_some() {
            tracing::warn!(model = %name, failed = new, last = %trouble.error, "requests fail");
            model.failed = failed;
        }
        let refused = refusals(&status.counters);
        let new: [u64; 3] = std::array::from_fn(|at| refused[at] - model.refused[at]);
        if new != [0; 3] && self.lines.due(now_ms, (pool.id, Subject::Budget)).is_some() {
            let [retries, hedges, stand_ins] = new;
            tracing::info!(model = %name, retries, hedges, stand_ins, "redundancy was refused: its budget is spent or too much work waits");
            model.refused = refused;
        }
    }
}

fn refusals(counters: &Counters) -> [u64; 3] {
    [counters.retries_refused, counters.hedges_refused, counters.stand_ins_refused]
}

fn tell(core: &Core, pool: &Pool, text: String) {
    core.driver.tell(Kind::Model, Happening { model: Some(pool.id), text, ..Happening::default() });
}
