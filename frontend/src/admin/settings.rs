//! Dispatch settings at run time.
//!
//! A change is a merge patch (RFC 7396): sent fields replace, `null` restores the default, other fields stay. It holds for
//! queries in progress too. The configuration file is not written. Responses show the settings as requested and,
//! as `in_force`, the effective ones, which also depend on the models and bundles.

use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{Path, State};
use axum::{Extension, Json};
use parm_durations::with_range;
use parm_settings::{PoolSettings, removed};
use parm_transport::keys::Caller;
use schemars::schema_for;
use serde_json::{Map, Value, json};

use super::changes::tell;
use super::refusal::Refusal;
use crate::error::Error;
use crate::serve::{Frontend, PoolSettingsByModel};

/// Field with the effective settings, which cannot be set.
const IN_FORCE: &str = "in_force";

pub(super) async fn show(State(frontend): State<Frontend>) -> Json<Value> {
    Json(shown(&frontend, &frontend.core.settings()))
}

pub(super) async fn change(
    State(frontend): State<Frontend>,
    Extension(caller): Extension<Caller>,
    patch: Result<Json<Value>, JsonRejection>,
) -> Result<Json<Value>, Refusal> {
    let Json(patch) = patch?;
    let settings = changed(&frontend, &caller, (None, None), |settings| {
        settings.default = patched(&settings.default, &patch)?;
        Ok(())
    })?;
    Ok(Json(shown(&frontend, &settings)))
}

pub(super) async fn show_model(
    State(frontend): State<Frontend>,
    model: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, Refusal> {
    let Path(model) = model?;
    known(&frontend, &model)?;
    Ok(Json(shown_of(&frontend, &model, &frontend.core.settings())))
}

/// Gives the model settings of its own: its present ones, patched.
pub(super) async fn change_model(
    State(frontend): State<Frontend>,
    Extension(caller): Extension<Caller>,
    model: Result<Path<String>, PathRejection>,
    patch: Result<Json<Value>, JsonRejection>,
) -> Result<Json<Value>, Refusal> {
    let (Path(model), Json(patch)) = (model?, patch?);
    known(&frontend, &model)?;
    let settings = changed(&frontend, &caller, (Some(&model), Some(&model)), |settings| {
        let own = patched(settings.of(&model), &patch)?;
        settings.models.insert(model.clone(), own);
        Ok(())
    })?;
    Ok(Json(shown_of(&frontend, &model, &settings)))
}

/// Returns the model to the default settings.
pub(super) async fn forget_model(
    State(frontend): State<Frontend>,
    Extension(caller): Extension<Caller>,
    model: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, Refusal> {
    let Path(model) = model?;
    known(&frontend, &model)?;
    let settings = changed(&frontend, &caller, (Some(&model), None), |settings| {
        settings.models.remove(&model);
        Ok(())
    })?;
    Ok(Json(shown_of(&frontend, &model, &settings)))
}

/// Changes the settings of a model, or the default ones, and reports the change. `checked` is the model that must be able to
/// follow, or all that have no settings of their own.
fn changed(
    frontend: &Frontend,
    caller: &Caller,
    (model, checked): (Option<&str>, Option<&str>),
    change: impl FnOnce(&mut PoolSettingsByModel) -> Result<(), Error>,
) -> Result<PoolSettingsByModel, Error> {
    let of = |settings: &PoolSettingsByModel| match model {
        Some(model) => settings.of(model).clone(),
        None => settings.default.clone(),
    };
    let mut before = PoolSettings::default();
    let settings = frontend.core.change_settings(checked, |settings| {
        before = of(settings);
        change(settings)
    })?;
    tell(frontend, model, &before, &of(&settings), caller);
    Ok(settings)
}

fn known(frontend: &Frontend, model: &str) -> Result<(), Error> {
    let known = !frontend.core.catalog.versions(model).is_empty()
        || frontend.core.settings().models.contains_key(model);
    known.then_some(()).ok_or_else(|| Error::UnknownModel { name: model.to_owned() })
}

/// Requested settings, and effective ones by model and version.
fn shown(frontend: &Frontend, settings: &PoolSettingsByModel) -> Value {
    let in_force = frontend.core.standings(None);
    let unbatched = &frontend.core.config.unbatched;
    json!({ "dispatch": settings.default, "models": settings.models, "unbatched": unbatched, IN_FORCE: in_force })
}

/// A model's requested settings, and effective ones by version.
fn shown_of(frontend: &Frontend, model: &str, settings: &PoolSettingsByModel) -> Value {
    let mut shown = json!(settings.of(model));
    shown[IN_FORCE] = json!(frontend.core.standings(Some(model)).remove(model).unwrap_or_default());
    shown
}

fn patched(settings: &PoolSettings, patch: &Value) -> Result<PoolSettings, Error> {
    let bad = |error: serde_json::Error| Error::BadSettings { reason: error.to_string() };
    if !patch.is_object() {
        return Err(Error::BadSettings { reason: "not a JSON object: send the fields to change".into() });
    }
    let mut value = serde_json::to_value(settings).map_err(bad)?;
    merge(&mut value, patch);
    let changed: Result<PoolSettings, _> = serde_path_to_error::deserialize(value);
    changed.map(|changed| changed.with_constants_of(settings)).map_err(|error| {
        let schema = schema_for!(PoolSettings).to_value();
        let path = error.path().to_string();
        if let Some(problem) = removed(&path) {
            return Error::BadSettings { reason: format!("{path}: {problem}") };
        }
        let problem = error.into_inner().to_string();
        // The path is a single dot if the error is an unknown field of the object itself.
        let field = if path == "." { String::new() } else { format!("{path}: ") };
        Error::BadSettings { reason: format!("{field}{}", with_range(problem, &schema, path.split('.'))) }
    })
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (name, value) in patch {
        if value.is_null() {
            target.remove(name);
        } else {
            merge(target.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use parm_settings::PolicyKind;

    use super::*;

    #[test]
    fn patch_changes_only_the_fields_it_names() {
        let mut before = PoolSettings::default();
        before.retry.burst = 7;
        let after = patched(&before, &json!({"policy": "none", "batch": {"max_size": 4}})).unwrap();
        assert_eq!((after.policy, after.batch.max_size.to_string().as_str()), (PolicyKind::None, "4"));
        let restored = patched(&after, &json!({"policy": null, "batch": null})).unwrap();
        assert_eq!(restored, before);
    }

    #[test]
    fn bad_patch_error_names_field_value_and_range() {
        for (patch, words) in [
            (json!({"polciy": "none"}), ["polciy", "unknown field"]),
            (json!({"batch": {"size": 5}}), ["batch.size", "unknown field"]),
            (json!({"tokens": {"reservations": 5}}), ["tokens: was removed: ", "delete it"]),
            (json!({"policy": "best"}), ["policy: ", "best"]),
            (json!({"queue_limit": 0}), ["queue_limit: ", "`0`, expected a whole number from 1 to 1000000"]),
            (json!({"batch": {"max_size": 0}}), ["batch.max_size: ", "a whole number from 1 to 65535"]),
            (json!({"hedge": {"median_factor": 1.5}}), ["hedge.median_factor: was removed: ", "delete it"]),
            (json!({"ejection": {"slow_factor": 3}}), ["ejection.slow_factor: was removed: ", "delete it"]),
            (json!({"stand_in": {"late_factor": -1.0}}), ["stand_in.late_factor: -1", "from 0 to 1000"]),
            (json!({"stand_in": {"grace": {"factor": 2}}}), ["stand_in.grace: was removed: ", "delete it"]),
            (json!({"coding": {"grace": {"factor": -1}}}), ["coding.grace.factor: -1", "from 0 to 1000"]),
            (json!({"stand_in": {"bound": 2}}), ["stand_in.bound: 2", "from 0 to 1"]),
            (json!({"retry": {"ratio": 0.2}}), ["retry: was removed: ", "delete it"]),
            (json!({"ahead_us": 5}), ["ahead_us: was removed: ", "delete it"]),
            (json!({"no_instance_grace_ms": u64::MAX}), ["no_instance_grace_ms: ", "from 0 to 31536000000"]),
            (json!([1]), ["object", "object"]),
        ] {
            let error = patched(&PoolSettings::default(), &patch).unwrap_err().to_string();
            assert!(words.iter().all(|word| error.contains(word)), "{patch}: {error}");
        }
    }
}
