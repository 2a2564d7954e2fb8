//! Expected effective settings, as they follow from settings, models and bundle.
//!
//! These are the policy or a reason against it, batches, default answer and codes.

use serde_json::Value;

use crate::instances::MAX_BATCH;
use crate::schedule::{Model, Setup};

/// Conditions other than the settings.
pub(crate) struct Basis<'a> {
    pub(crate) setup: &'a Setup,
    /// Group sizes for which model 0's bundle has codes.
    pub(crate) sizes: &'a [u8],
    /// Whether models are tested and bundles read, so that nothing is about to change.
    pub(crate) settled: bool,
}

/// Describes wrong effective settings.
pub(crate) fn difference(settings: &Value, basis: &Basis<'_>) -> Option<String> {
    let models = settings["in_force"].as_object()?;
    models.iter().find_map(|(name, versions)| {
        let own = &settings["models"][name];
        let expected = if own.is_object() { own } else { &settings["dispatch"] };
        let versions = versions.as_object()?;
        versions.iter().find_map(|(version, standing)| {
            let wrong = wrong(expected, standing, name, version, basis)?;
            Some(format!("{wrong} of {name} version {version} does not follow: {standing} for {expected}"))
        })
    })
}

fn wrong(
    expected: &Value,
    standing: &Value,
    name: &str,
    version: &str,
    basis: &Basis<'_>,
) -> Option<&'static str> {
    let policy = standing["policy"].as_str().unwrap_or_default();
    let as_expected = standing["policy"] == expected["policy"];
    let can = can(expected, name, version, basis);
    let explained = standing["not_coded"].is_string() != as_expected;
    // A model that was not tested so far is hedged without a reason, and so are parity models for ever. A stand-in must
    // have the model's shape, and shapes change.
    let certain = !is_parity(name) && (expected["policy"] != "stand-in" || !can);
    let stands = match (as_expected, basis.settled && certain) {
        (true, settled) => explained && (can || !settled),
        (false, true) => policy == "hedge" && explained && !can,
        (false, false) => policy == "hedge",
    };
    let has_default = has_bundle(name, version, basis) && expected["default_answer"] == true;
    let codes = standing["coding"]["codes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let coded = matches!(policy, "parm" | "parm+");
    let fits = |code: &Value| code["parities"] == expected["coding"]["r"];
    let wanted = |code: &Value| code["k"] == expected["coding"]["k"];
    let codes_fit = coded == codes.iter().any(wanted) && codes.iter().all(fits) && coded != codes.is_empty();
    let each = [
        (stands, "policy"),
        (standing["batch"] == expected["batch"], "batch"),
        (standing["max_rows"] == most_rows(basis), "rows"),
        (standing["default_answer"] == has_default, "default answer"),
        (codes_fit, "coding"),
    ];
    each.into_iter().find_map(|(fits, what)| (!fits).then_some(what))
}

/// Batches are limited to the size that servers state.
fn most_rows(basis: &Basis<'_>) -> Value {
    if basis.setup.thrifty { MAX_BATCH.into() } else { u16::MAX.into() }
}

/// Whether a model can be served with the requested policy.
fn can(expected: &Value, name: &str, version: &str, basis: &Basis<'_>) -> bool {
    match expected["policy"].as_str().unwrap_or_default() {
        "parm" | "parm+" if expected["coding"]["code"] == "mds" => {
            let is_curved = basis.setup.curved && name == Model::Asked(0).name();
            !(has_bundle(name, version, basis) || is_curved)
        }
        "parm" | "parm+" => {
            let trained = |k: &u8| expected["coding"]["k"] == *k && expected["coding"]["r"] == 1;
            has_bundle(name, version, basis) && basis.sizes.iter().any(trained)
        }
        "approximate-backup" => expected["backup_model"] != name,
        "stand-in" => expected["stand_in"]["model"] != name,
        _ => true,
    }
}

fn is_parity(name: &str) -> bool {
    matches!(Model::named(name), Some(Model::Parity(_)))
}

fn has_bundle(name: &str, version: &str, basis: &Basis<'_>) -> bool {
    basis.setup.bundle && name == Model::Asked(0).name() && version == "1"
}
