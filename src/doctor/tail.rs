//! Names the causes of a tail and their costs, from a recording or a running frontend.
//!
//! Replays the recorded traffic by simulation, then without one cause at a time: slow instances, stalls, long inputs, varying
//! service times, queueing.

use std::path::Path;

use anyhow::{Context, anyhow};
use hyper::Method;
use parm_lab::tuner::{Recording, Setup, replayed_queries, why};
use parm_settings::PoolSettings;
use serde::Deserialize;
use serde_json::json;

use super::Doctor;
use crate::Failure;
use crate::admin::{Admin, block_on};
use crate::progress::Bar;
use crate::{ctl, printer, record};

/// Length of the recording of a running frontend, unless a flag gives it.
const SECONDS: u64 = 60;

/// Records or reads, and prints the causes. Input that cannot be used ends with status 64.
pub(super) fn main(flags: &Doctor) -> Result<(), Failure> {
    let (recording, settings) = if flags.is_running() { live(flags)? } else { recorded(flags)? };
    let settings = match chosen(flags, &recording.model).map_err(Failure::Configuration)? {
        Some(chosen) => chosen,
        None => settings,
    };
    let named = || flags.what().to_owned();
    let profile = record::profile(&recording, flags.what()).map_err(Failure::Configuration)?;
    let setup = Setup { settings, seed: flags.seed, repeats: flags.repeats };
    let bar = Bar::new(replayed_queries(&recording, &profile, &setup), "queries");
    let findings =
        why(&recording, &profile, &setup, &bar).with_context(named).map_err(Failure::Configuration)?;
    drop(bar);
    printer::show(&findings, flags.output).map_err(Failure::Run)
}

/// Reads a recording; its frontend is assumed to have the default settings.
fn recorded(flags: &Doctor) -> Result<(Recording, PoolSettings), Failure> {
    let recording = record::read(Path::new(flags.what()), flags.model.as_deref());
    let recording = recording.map_err(Failure::Configuration)?;
    Ok((recording, PoolSettings::default()))
}

/// Records a running frontend and reads its settings.
fn live(flags: &Doctor) -> Result<(Recording, PoolSettings), Failure> {
    let admin =
        Admin::at(flags.what(), flags.key.clone(), &flags.identity).map_err(Failure::Configuration)?;
    let read = async {
        let mut text = Vec::new();
        record::stream(&admin, flags.seconds.unwrap_or(SECONDS), &mut text).await?;
        let recording = Recording::read(text.as_slice(), flags.model.as_deref())?;
        let path = format!("/admin/v1/settings/{}", ctl::escaped(&recording.model));
        let mut settings = admin.call(Method::GET, &path, None).await?;
        // The rest are the settings themselves.
        settings.as_object_mut().map(|settings| settings.remove("in_force"));
        let settings = serde_json::from_value(settings);
        Ok((recording, settings.context("the frontend has settings of another version")?))
    };
    Ok(block_on(read)?)
}

/// Returns the settings that the flags name.
fn chosen(flags: &Doctor, model: &str) -> anyhow::Result<Option<PoolSettings>> {
    if let Some(policy) = &flags.policy {
        let policy = serde_json::from_value(json!(policy)).map_err(|error| anyhow!("--policy: {error}"))?;
        return Ok(Some(PoolSettings { policy, ..PoolSettings::default() }));
    }
    let Some(path) = &flags.config else { return Ok(None) };
    let named = || format!("cannot use {}", path.display());
    let text = std::fs::read_to_string(path).with_context(named)?;
    Ok(Some(of_file(&text, model).with_context(named)?))
}

/// Returns a model's settings in a configuration file.
fn of_file(text: &str, model: &str) -> anyhow::Result<PoolSettings> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct File {
        frontend: Frontend,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Frontend {
        dispatch: PoolSettings,
        models: std::collections::BTreeMap<String, PoolSettings>,
    }
    let File { mut frontend } = toml::from_str(text)?;
    Ok(frontend.models.remove(model).unwrap_or(frontend.dispatch))
}

#[cfg(test)]
mod tests {
    use parm_settings::PolicyKind;

    use super::*;

    #[test]
    fn settings_of_the_model_come_before_those_of_all() {
        let text = "[server]\nhttp = \"x\"\n[frontend.dispatch]\npolicy = \"equal\"\n[frontend.models.a]\npolicy = \"parm+\"\n";
        assert_eq!(of_file(text, "a").unwrap().policy, PolicyKind::ParmPlus);
        assert_eq!(of_file(text, "b").unwrap().policy, PolicyKind::Equal);
        assert_eq!(of_file("", "b").unwrap(), PoolSettings::default());
        of_file("[frontend.dispatch]\npolicy = \"hope\"\n", "a").unwrap_err();
    }
}
