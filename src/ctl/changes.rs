//! Differences of settings in words, and settings as a configuration file.

use parm_frontend::admin::differences;
use parm_settings::PoolSettings;
use serde_json::{Map, Value, json};

/// The field with effective settings, which are not configured.
const IN_FORCE: &str = "in_force";

/// Each changed field with its old and its new value, or a line that says there is none.
pub(super) fn changed(before: &Value, after: &Value) -> String {
    let configured = differences(before, after).into_iter().filter(|field| !is_effective(&field.path));
    let lines: Vec<String> = configured.map(|field| field.to_string()).collect();
    if lines.is_empty() { "nothing changed".to_owned() } else { lines.join("\n") }
}

/// A line for each stand-in in effect that no instance serves.
pub(super) fn absent_stand_ins(settings: &Value) -> Vec<String> {
    let mut absent = std::collections::BTreeSet::new();
    find_absent(&settings[IN_FORCE], &mut absent);
    let line = |name: String| {
        format!("note: no instance serves the stand-in '{name}': load it on the workers, or correct the name")
    };
    absent.into_iter().map(line).collect()
}

fn find_absent(value: &Value, absent: &mut std::collections::BTreeSet<String>) {
    let Value::Object(fields) = value else { return };
    let stand_in = &value["stand_in"];
    if stand_in["served"] == false {
        absent.extend(stand_in["model"].as_str().map(str::to_owned));
    }
    fields.values().for_each(|field| find_absent(field, absent));
}

fn is_effective(path: &str) -> bool {
    path.split('.').any(|name| name == IN_FORCE)
}

/// The settings of a running frontend as TOML, without those that are at their defaults.
pub(super) fn exported(settings: &Value) -> anyhow::Result<String> {
    let defaults = json!(PoolSettings::default());
    let mut frontend = Map::new();
    frontend.insert("dispatch".into(), without(&settings["dispatch"], &defaults));
    let models = settings["models"].as_object().into_iter().flatten();
    // A model listed in a file uses nothing of the general settings, so its own stand even if they are defaults.
    let models: Map<String, Value> =
        models.map(|(name, own)| (name.clone(), without(own, &defaults))).collect();
    frontend.insert("models".into(), Value::Object(models));
    Ok(toml::to_string(&json!({ "frontend": frontend }))?)
}

/// The fields that differ from the defaults and are set.
fn without(own: &Value, defaults: &Value) -> Value {
    let Value::Object(fields) = own else { return own.clone() };
    let differing = fields.iter().filter(|(name, value)| !value.is_null() && defaults[*name] != **value);
    Value::Object(differing.map(|(name, value)| (name.clone(), without(value, &defaults[name]))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changed_fields_are_shown() {
        let before = json!({"policy": "hedge", "batch": {"max_size": 1}, "in_force": {"a": 1}});
        let after = json!({"policy": "hedge", "batch": {"max_size": 4}, "in_force": {"a": 2}});
        assert_eq!(changed(&before, &after), "batch.max_size 1 to 4");
        assert_eq!(changed(&before, &before), "nothing changed");
    }

    #[test]
    fn stand_in_without_an_instance_is_noted() {
        let standing =
            |served: bool| json!({"policy": "stand-in", "stand_in": {"model": "small", "served": served}});
        let note = "note: no instance serves the stand-in 'small'";
        let of_model = json!({"in_force": {"1": standing(false), "2": standing(false)}});
        let of_all = json!({"in_force": {"m": {"1": standing(true)}, "n": {"1": standing(false)}}});
        for shown in [of_model, of_all] {
            let notes = absent_stand_ins(&shown);
            assert!(notes.len() == 1 && notes[0].starts_with(note), "{notes:?}");
        }
        assert!(absent_stand_ins(&json!({"in_force": {"1": standing(true)}})).is_empty());
        assert!(absent_stand_ins(&json!({"policy": "hedge"})).is_empty());
    }

    #[test]
    fn exported_settings_are_read_back() {
        let mut own = PoolSettings { policy: parm_settings::PolicyKind::None, ..PoolSettings::default() };
        own.batch.max_size = std::num::NonZeroU16::new(4).unwrap().into();
        let shown = json!({"dispatch": own, "models": {"m": PoolSettings::default()}, "in_force": {}});
        let text = exported(&shown).unwrap();
        let read: crate::settings::Settings = toml::from_str(&text).unwrap();
        assert_eq!(read.frontend.dispatch, own, "{text}");
        assert_eq!(read.frontend.models["m"], PoolSettings::default());
        assert!(text.lines().count() < 10, "defaults are left out: {text}");
    }
}
