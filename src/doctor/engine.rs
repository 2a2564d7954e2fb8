//! Checks which engine runs the models, and the device, without opening a library of it.

use parm_backend::engine::{Device, by_name, choose, on_card};
use parm_backend::try_file;
use parm_parity_models::repository::Repository;
use parm_protocol::StableCode;

use super::Finding;
use crate::logging::without_panic_texts;
use crate::settings::Settings;

const HOW: &str = "run `pip install onnxruntime` in this program's or the active Python environment, or name its library in \
                   backend.engine.onnxruntime, and set backend.engine.name to auto: most models run two to five times as fast";

pub(super) fn look(settings: &Settings) -> Option<Finding> {
    let options = &settings.backend.engine;
    settings.embeds().then(|| match choose(&options.name, options) {
        Err(error) => Finding::fails(format!("engine: {error}"), "set backend.engine.name"),
        Ok(chosen) if chosen.name == "ort" => Finding::well(format!("engine: {}", chosen.about)),
        Ok(chosen) => Finding::worth(format!("engine: {}", chosen.about), HOW),
    })
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
    let broken = latest.filter_map(|(name, version)| {
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

/// Checks that ONNX Runtime for cards is there, if the configured device is one. Whether the card and all libraries of CUDA are
/// shows when a model is loaded.
pub(super) fn device(settings: &Settings) -> Option<Finding> {
    let options = &settings.backend.engine;
    let found = settings.embeds().then(|| on_card(options)).flatten()?;
    let device = &options.device;
    Some(match found {
        Ok(runtime) => Finding::well(format!("device {device}: ONNX Runtime {}", runtime.display())),
        Err(error) => {
            let (what, cure) = (format!("device {device}"), error.to_string());
            let or_cpu = Device::read(device).is_some_and(|device| device.or_cpu);
            if or_cpu { Finding::worth(what, cure) } else { Finding::fails(what, cure) }
        }
    })
}
