//! Reports ejections, refused ejections and readmissions to the event log.

use parm_dispatch::{InstanceId, PoolId, Reason};

use super::driver::Driver;
use super::state::State;
use crate::console::{Happening, Kind};

impl State {
    /// An instance was ejected.
    pub(super) fn ejected(&self, driver: &Driver, id: InstanceId, pool: PoolId, why: Reason) {
        let text = self.why(id, why);
        self.tell(driver, Kind::Ejected, id, Some(pool), text);
    }

    /// An instance should be ejected, but is kept.
    pub(super) fn kept(&self, driver: &Driver, id: InstanceId, pool: PoolId, why: Reason) {
        let text = format!("{}, but too few instances would remain", self.why(id, why));
        self.tell(driver, Kind::Kept, id, Some(pool), text);
    }

    /// An instance was readmitted.
    pub(super) fn readmitted(&self, driver: &Driver, id: InstanceId) {
        self.tell(driver, Kind::Returned, id, None, "readmitted after a probe".to_owned());
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
