//! How instances are, in the words of the log, of the event list and of the page.
//!
//! The dispatcher says it once when a condition changes and once a minute while an instance is not well, so nothing is left out
//! here.

use parm_dispatcher::{Condition, InstanceKey};
use parm_protocol::{StableCode, rounded};

use super::driver::Driver;
use super::state::State;
use crate::console::{Happening, Kind};

/// The names of all conditions, by their numbers.
pub(crate) const NAMES: [Option<&str>; 7] = [
    None,
    Some("slow"),
    Some("silent"),
    Some("failing"),
    Some("unreachable"),
    Some("flapping"),
    Some("wrong"),
];

pub(crate) fn number(condition: Condition) -> usize {
    match condition {
        Condition::Well => 0,
        Condition::Slow(_) => 1,
        Condition::Silent { .. } => 2,
        Condition::Failing => 3,
        Condition::Unreachable => 4,
        Condition::Flapping(_) => 5,
        Condition::Wrong => 6,
    }
}

/// Whether an instance's jobs fail, so that the last error is the cause.
pub(crate) fn fails(condition: Condition) -> bool {
    matches!(condition, Condition::Failing | Condition::Unreachable | Condition::Flapping(_))
}

fn words(condition: Condition) -> String {
    match condition {
        Condition::Well => "it has answered requests again".to_owned(),
        Condition::Slow(times) => format!("slow: its jobs take {times:.1} times as long as usual"),
        Condition::Silent { oldest, usual } => {
            let usually = if usual.is_zero() {
                String::new()
            } else {
                format!(", which usually takes {:?}", rounded(usual))
            };
            format!("silent: it holds a job for {:?}{usually}", rounded(oldest))
        }
        Condition::Failing => "failing: its jobs fail".to_owned(),
        Condition::Unreachable => "unreachable: it takes no jobs".to_owned(),
        Condition::Flapping(times) => {
            format!("flapping: it failed and recovered {times} times within a minute")
        }
        Condition::Wrong => "wrong: its answers disagree with those of other instances".to_owned(),
    }
}

impl State {
    pub(super) fn tell_condition(&self, driver: &Driver, key: InstanceKey, condition: Condition) {
        let Some(known) = self.instances.get(&key) else { return };
        let instance = known.name.as_str();
        let cause = known.last_failure().filter(|_| fails(condition)).map(|failure| format!(": {failure}"));
        let text = words(condition) + &cause.unwrap_or_default();
        let kind = match condition {
            Condition::Well => {
                tracing::info!(instance, "instance is well: {text}");
                Kind::Returned
            }
            _ => {
                tracing::warn!(code = %StableCode::InstanceEjected, instance, "instance is {text}");
                Kind::Trouble
            }
        };
        driver.tell(kind, Happening { instance: Some(known.number), text, ..Happening::default() });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn text_of_a_condition_begins_with_its_name() {
        let (oldest, usual) = (Duration::from_millis(2100), Duration::from_millis(20));
        let silent = Condition::Silent { oldest, usual };
        let rest = [Condition::Failing, Condition::Unreachable, Condition::Flapping(3), Condition::Wrong];
        let troubles = [Condition::Slow(2.5), silent].into_iter().chain(rest);
        for (condition, name) in troubles.zip(&NAMES[1..]) {
            assert_eq!(NAMES[number(condition)], *name);
            assert!(words(condition).starts_with(name.unwrap()), "{condition:?}");
        }
        assert_eq!(words(silent), "silent: it holds a job for 2.1s, which usually takes 20ms");
        assert_eq!(NAMES[number(Condition::Well)], None);
    }
}
