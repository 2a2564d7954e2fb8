//! Tells operators how instances are, in the words of the log and of the event list.
//!
//! The dispatcher says it once when a condition changes and once a minute while an instance is not well, so nothing is left out
//! here.

use parm_dispatcher::InstanceKey;
use parm_protocol::StableCode;

use super::driver::Driver;
use super::reading::Condition;
use super::state::State;
use crate::console::{Happening, Kind};

impl State {
    pub(super) fn tell_condition(&self, driver: &Driver, key: InstanceKey, condition: Condition) {
        let Some(known) = self.instances.get(&key) else { return };
        let instance = known.name.as_str();
        let (kind, text) = match condition {
            Condition::Well => (Kind::Returned, "it has answered requests again".to_owned()),
            _ => (Kind::Trouble, told(condition, known.last_failure())),
        };
        match condition {
            Condition::Well => tracing::info!(instance, "instance is well: {text}"),
            _ => tracing::warn!(code = %StableCode::InstanceEjected, instance, "instance is {text}"),
        }
        driver.tell(kind, Happening { instance: Some(known.number), text, ..Happening::default() });
    }
}

/// A condition with its cause, the instance's last error.
fn told(condition: Condition, failure: Option<String>) -> String {
    let cause = failure.filter(|_| condition.fails()).map(|failure| format!(": {failure}"));
    format!("{condition}{}", cause.unwrap_or_default())
}
