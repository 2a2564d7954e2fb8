//! Reports ejections, refused ejections and readmissions to the event log and, once a minute for each instance, to the
//! process's log.

use parm_dispatch::{InstanceId, PoolId, Reason};
use parm_protocol::StableCode;

use super::driver::Driver;
use super::state::State;
use crate::console::{Happening, Kind};

impl State {
    /// An instance was ejected.
    pub(super) fn ejected(&self, driver: &Driver, id: InstanceId, pool: PoolId, why: Reason) {
        if why == Reason::Slow {
            self.ledger.instances.get(&id).iter().for_each(|instance| instance.ejected_as_slow());
        }
        let text = self.why(id, why);
        self.log(driver, Kind::Ejected, id, Some(pool), &text);
        self.tell(driver, Kind::Ejected, id, Some(pool), text);
    }

    /// An instance should be ejected, but is kept.
    pub(super) fn kept(&self, driver: &Driver, id: InstanceId, pool: PoolId, why: Reason) {
        let text = format!("{}, but too few instances would remain", self.why(id, why));
        self.log(driver, Kind::Kept, id, Some(pool), &text);
        self.tell(driver, Kind::Kept, id, Some(pool), text);
    }

    /// An instance was readmitted.
    pub(super) fn readmitted(&self, driver: &Driver, id: InstanceId) {
        self.log(driver, Kind::Returned, id, None, "readmitted after a probe");
        self.tell(driver, Kind::Returned, id, None, "readmitted after a probe".to_owned());
    }

    /// Writes to the log; `left_out` counts such lines since the last one.
    fn log(&self, driver: &Driver, kind: Kind, id: InstanceId, model: Option<PoolId>, reason: &str) {
        let Some(known) = self.ledger.instances.get(&id) else { return };
        let Some(left_out) = driver.lines.due(driver.now_ms(), (known.number, kind)) else { return };
        let instance = known.name.as_str();
        let model = model.and_then(|id| self.ledger.pools.get(&id)).map(|pool| pool.model.name.as_str());
        let code = StableCode::InstanceEjected;
        match kind {
            Kind::Ejected => tracing::warn!(%code, instance, model, reason, left_out, "instance ejected"),
            Kind::Kept => {
                tracing::warn!(%code, instance, model, reason, left_out, "instance should be ejected, and is kept");
            }
            _ => tracing::info!(instance, reason, left_out, "instance returned"),
        }
    }

    /// Reports an event of an instance.
    pub(super) fn tell(
        &self,
        driver: &Driver,
        kind: Kind,
        id: InstanceId,
        model: Option<PoolId>,
        text: String,
    ) {
        let instance = self.ledger.instances.get(&id).map(|instance| instance.number);
        driver.tell(kind, Happening { instance, model, text, by: None });
    }

    fn why(&self, id: InstanceId, why: Reason) -> String {
        let slowness = self.ledger.instances.get(&id).and_then(|instance| instance.slowness());
        match (why, slowness) {
            (Reason::Slow, Some(times)) if times >= 1.5 => {
                format!("slow: its jobs take {times:.1} times the median")
            }
            (Reason::Slow, _) => "slow: its last jobs took several times the median".to_owned(),
            (Reason::Failing, _) => "failing: it fails jobs or does not answer".to_owned(),
            (Reason::Wrong, _) => "wrong: its answers disagree with those of other instances".to_owned(),
        }
    }
}
