//! Describes changes of settings in words, for the log and the event stream.

use parm_dispatch::PoolSettings;
use parm_transport::keys::Caller;
use serde_json::{Value, json};

use crate::console::{Happening, Kind};
use crate::serve::Frontend;

/// Reports a change of one model's settings, or of the default ones. Unchanged settings are not reported.
pub(super) fn tell(
    frontend: &Frontend,
    model: Option<&str>,
    before: &PoolSettings,
    after: &PoolSettings,
    caller: &Caller,
) {
    let mut fields = Vec::new();
    differences("", &json!(before), &json!(after), &mut fields);
    let changed = fields.join(", ");
    let by = caller.name();
    tracing::info!(model = model.unwrap_or("*"), %changed, by = by.as_deref().unwrap_or("-"), "dispatch settings changed");
    if fields.is_empty() {
        return;
    }
    let pools = model.map(|name| frontend.core.catalog.versions(name)).unwrap_or_default();
    let model = pools.last().map(|pool| pool.id);
    let what = Happening { instance: None, model, text: changed, by };
    frontend.core.driver.tell(Kind::Settings, what);
}

/// Collects each changed field: its path, its old and its new value.
fn differences(path: &str, before: &Value, after: &Value, found: &mut Vec<String>) {
    if let (Value::Object(old), Value::Object(new)) = (before, after) {
        let names = old.keys().chain(new.keys().filter(|name| !old.contains_key(*name)));
        for name in names {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            differences(&path, &before[name], &after[name], found);
        }
    } else if before != after {
        found.push(format!("{path} {} to {}", word(before), word(after)));
    }
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "none".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_of_settings_is_described_by_field() {
        let before = PoolSettings::default();
        let mut after = before.clone();
        after.stand_in.bound = parm_dispatch::Fraction::percent(2);
        after.policy = parm_dispatch::PolicyKind::StandIn;
        after.backup_model = Some("small".into());
        let mut found = Vec::new();
        differences("", &json!(before), &json!(after), &mut found);
        found.sort();
        let bound = before.stand_in.bound.get();
        let expected = [
            "backup_model none to small",
            "policy hedge to stand-in",
            &format!("stand_in.bound {bound} to 0.02"),
        ];
        assert_eq!(found, expected);
    }
}
