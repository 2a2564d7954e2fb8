//! Checks which engine runs the models, and compares its speed with the other; the device, without opening a library of it; and the
//! memory of the models.

use std::time::{Duration, Instant};

use parm_backend::engine::{Card, Device, by_name, choose, on_card};
use parm_backend::{EngineConfig, try_file};
use parm_parity_models::repository::{Format, Repository};
use parm_protocol::StableCode;

use super::Finding;
use crate::logging::without_panic_texts;
use crate::settings::Settings;

/// Time of the measurement of a model on each engine.
const MEASURE: Duration = Duration::from_secs(1);
const MB: u64 = 1 << 20;
const HOW: &str = "run `pip install onnxruntime` in this program's or the active Python environment, or name its library in \
                   backend.engine.onnxruntime: most models run two to five times as fast";

pub(super) fn look(settings: &Settings) -> Option<Finding> {
    let (wanted, options) = (&settings.backend.engine.name, &settings.backend.engine);
    let finding = |chosen| match chosen {
        Err(error) => Finding::fails(format!("engine: {error}"), "set backend.engine.name"),
        Ok(("ort", about)) => match ratio(settings, options) {
            Some((model, ratio)) => {
                Finding::well(format!("engine: {about}: {ratio:.1} times as fast as tract on {model}"))
            }
            None => Finding::well(format!("engine: {about}")),
        },
        Ok((_, about)) => match ratio(settings, options) {
            Some((model, ratio)) if ratio > 1.1 => Finding::worth(
                format!("engine: {about}: ONNX Runtime is {ratio:.1} times as fast on {model}"),
                "set backend.engine.name to auto",
            ),
            Some((model, _)) => {
                Finding::well(format!("engine: {about}: ONNX Runtime is not faster on {model}"))
            }
            None => Finding::worth(format!("engine: {about}"), HOW),
        },
    };
    let chosen = || choose(wanted, options).map(|chosen| (chosen.name, chosen.about));
    settings.embeds().then(|| finding(chosen()))
}

/// Checks that the engine loads and runs every model of the repository.
pub(super) fn loads(settings: &Settings) -> Vec<Finding> {
    let options = &settings.backend.engine;
    let engine = by_name(&options.name, options);
    let (Some(folder), Ok(engine)) = (&settings.backend.models, engine) else { return Vec::new() };
    let Ok(scan) = Repository::open(folder).and_then(|repository| repository.scan()) else {
        return Vec::new();
    };
    let latest = scan.models.values().filter_map(|model| Some((&model.name, model.latest()?.1)));
    let broken =
        latest.filter(|(_, version)| version.format == Format::Onnx).filter_map(|(name, version)| {
            let tried = without_panic_texts(|| match settings.backend.warm_up_runs {
                0 => engine.load(&version.path, options).map(drop),
                _ => try_file(&*engine, &version.path, &settings.backend),
            });
            let (error, code) = (tried.err()?, StableCode::ModelNotLoaded);
            let remedy = "correct the file, or choose another engine; it would not be served";
            Some(Finding::fails(format!("model {name}: {error} [{code}]"), remedy))
        });
    broken.collect()
}

/// Returns the speed of ONNX Runtime relative to tract on the first model that runs on both; `None` without its library.
fn ratio(settings: &Settings, options: &EngineConfig) -> Option<(String, f64)> {
    choose("auto", options).ok().filter(|chosen| chosen.name == "ort")?;
    let scan = Repository::open(settings.backend.models.as_ref()?).ok()?.scan().ok()?;
    scan.models.values().find_map(|model| {
        let version = model.versions.values().rev().find(|version| version.format == Format::Onnx)?;
        let time = |engine| {
            let mut loaded = by_name(engine, options).ok()?.load(&version.path, options).ok()?;
            let inputs = loaded.signature().blank(1).ok()?;
            let (mut best, until) = (Duration::MAX, Instant::now() + MEASURE);
            // The first runs of an engine include its preparations, so the best run counts.
            while Instant::now() < until || best == Duration::MAX {
                let started = Instant::now();
                loaded.run(&inputs).ok()?;
                best = best.min(started.elapsed());
            }
            Some(best.as_secs_f64())
        };
        Some((model.name.clone(), time("tract")? / time("ort")?))
    })
}

/// Checks that ONNX Runtime and the card are there, if the configured device is one. Whether all libraries of CUDA are shows
/// when a model is loaded.
pub(super) fn device(settings: &Settings) -> Vec<Finding> {
    let options = &settings.backend.engine;
    let Some(found) = settings.embeds().then(|| on_card(options)).flatten() else { return Vec::new() };
    let device = &options.device;
    let (runtime, card) = match found {
        Ok(found) => found,
        Err(error) => {
            let (what, cure) = (format!("device {device}"), error.to_string());
            let or_cpu = Device::read(device).is_some_and(|device| device.or_cpu);
            return vec![if or_cpu { Finding::worth(what, cure) } else { Finding::fails(what, cure) }];
        }
    };
    let runtime = Finding::well(format!("device {device}: ONNX Runtime {}", runtime.display()));
    let card = match card {
        Card::Named(name) => Finding::well(format!("device {device}: card {name}")),
        Card::Unnamed(reason) | Card::Missing(reason) => Finding::worth(
            format!("device {device}: the card's UUID is unknown: {reason}"),
            "name the card with backend.card, so that copies avoid it",
        ),
    };
    vec![runtime, card]
}

/// Checks that the models of the repository fit into the configured memory together.
pub(super) fn memory(settings: &Settings) -> Option<Finding> {
    let (backend, limit) = (&settings.backend, settings.backend.memory_mb);
    let folder = backend.models.as_ref().filter(|_| limit > 0 && settings.embeds())?;
    let scan = Repository::open(folder).ok()?.scan().ok()?;
    let latest = scan.models.values().filter_map(|model| Some(model.latest()?.1));
    let needed = latest.filter_map(|version| backend.memory_of(version).ok()).sum::<u64>().div_ceil(MB);
    let what = format!("memory: the models count {needed} MB of backend.memory_mb = {limit}");
    Some(match needed > limit {
        true => Finding::fails(what, "raise it, or serve fewer models: the last ones would not be loaded"),
        false => Finding::well(what),
    })
}
