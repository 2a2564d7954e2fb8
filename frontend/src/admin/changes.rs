//! Changes of settings in words, for the log and the event stream.

use std::fmt;

use parm_settings::PoolSettings;
use parm_transport::keys::Caller;
use serde_json::{Value, json};

use crate::console::{Happening, Kind};
use crate::serve::Frontend;

/// A changed field.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Its names from the outermost table on, with dots.
    pub path: String,
    before: Value,
    after: Value,
}

/// The fields that differ between two versions of settings.
pub fn differences(before: &Value, after: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    collect("", before, after, &mut found);
    found
}

fn collect(path: &str, before: &Value, after: &Value, found: &mut Vec<Difference>) {
    if let (Value::Object(old), Value::Object(new)) = (before, after) {
        let names = old.keys().chain(new.keys().filter(|name| !old.contains_key(*name)));
        for name in names {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            collect(&path, &before[name], &after[name], found);
        }
    } else if before != after {
        found.push(Difference { path: path.to_owned(), before: before.clone(), after: after.clone() });
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} to {}", self.path, word(&self.before), word(&self.after))
    }
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "none".to_owned(),
        other => other.to_string(),
    }
}

/// Reports a change of one model's settings, or of the default ones. Unchanged settings are not reported.
pub(super) fn tell(
    frontend: &Frontend,
    model: Option<&str>,
    before: &PoolSettings,
    after: &PoolSettings,
    caller: &Caller,
) {
    let fields = differences(&json!(before), &json!(after));
    let changed = fields.iter().map(Difference::to_string).collect::<Vec<_>>().join(", ");
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
