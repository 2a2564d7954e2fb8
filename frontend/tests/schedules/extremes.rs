//! Dispatch settings at the ends of their ranges, as the schema of the settings states them.
//!
//! A promise that does not hold at an end is conditional on the setting, and `Excuses` explain why.

use parm_durations::{leaves, range};
use parm_settings::PoolSettings;
use schemars::schema_for;
use serde_json::{Value, json};

use crate::dice::Dice;

/// Settings that keep their value, because schedules draw them elsewhere or the checks of answers depend on them: `k`
/// and `r` select the bundle's codes, `parity_instances` keeps all instances from queries, `default_priority` changes
/// which of two queries is more urgent.
const KEPT: [&str; 5] =
    ["coding.k", "coding.r", "coding.k_choices", "default_priority", "coding.parity_instances"];

/// Settings that a change at run time may set to an end of their range. None of them takes instances out of service,
/// because the effects of older settings on instances would last.
const AT_RUN_TIME: [&str; 8] = [
    "queue_limit",
    "max_attempts",
    "retry.",
    "hedge.",
    "replicate.",
    "stand_in.bound",
    "coding.max_age_ms",
    "no_instance_grace_ms",
];

/// A numeric setting with its least and largest value.
struct Ends {
    path: Vec<String>,
    least: Value,
    most: Value,
}

/// Sets each numeric setting to an end of its range with this probability in percent.
pub(crate) fn settings(dice: &mut Dice, settings: &PoolSettings, percent: u64) -> PoolSettings {
    let mut value = serde_json::to_value(settings).expect("settings are JSON");
    for Ends { path, least, most } in all() {
        if dice.percent(percent) {
            let end = if dice.percent(50) { least } else { most };
            *value
                .pointer_mut(&format!("/{}", path.join("/")))
                .expect("the schema lists existing settings") = end;
        }
    }
    let changed: PoolSettings = serde_json::from_value(value).expect("the ends of a range are valid");
    changed.with_constants_of(settings)
}

/// A merge patch that sets one setting to an end of its range.
pub(crate) fn patch(dice: &mut Dice) -> Value {
    let named = |path: &str| AT_RUN_TIME.iter().any(|name| path.starts_with(name));
    let some: Vec<Ends> = all().into_iter().filter(|ends| named(&ends.path.join("."))).collect();
    let Ends { path, least, most } = &some[dice.range(0, some.len() as u64) as usize];
    let end = if dice.percent(50) { least } else { most };
    path.iter().rev().fold(end.clone(), |inner, name| json!({ name: inner }))
}

fn all() -> Vec<Ends> {
    let schema = schema_for!(PoolSettings).to_value();
    let ends = |leaf: parm_durations::Leaf| {
        let name = leaf.path.join(".");
        if name.contains('*') || KEPT.contains(&name.as_str()) {
            return None;
        }
        // For example `a whole number from 1 to 65535`.
        let stated = range(&schema, &leaf.path)?;
        let (_, bounds) = stated.split_once("from ")?;
        let (least, most) = bounds.split_once(" to ")?;
        let number = |text: &str| serde_json::from_str(text).expect("a range has numbers");
        Some(Ends { path: leaf.path, least: number(least), most: number(most) })
    };
    leaves(&schema).into_iter().filter_map(ends).collect()
}

#[test]
fn every_numeric_setting_accepts_both_ends_of_its_range() {
    let all = all();
    assert_eq!(all.len(), 18, "change the number only with the settings: none may be left out");
    for Ends { path, least, most } in all {
        for end in [least, most] {
            let patch = path.iter().rev().fold(end, |inner, name| json!({ name: inner }));
            let mut value = serde_json::to_value(PoolSettings::default()).unwrap();
            value = crate::admin::merged(&value, &patch);
            serde_json::from_value::<PoolSettings>(value).unwrap_or_else(|error| panic!("{patch}: {error}"));
        }
    }
}
