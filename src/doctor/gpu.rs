//! Checks the device and the memory of models. Needs no card and opens no library.

use parm_backend::engine::{Card, Device, on_card};
use parm_parity_models::repository::Repository;

use super::Finding;
use crate::settings::Settings;

const MB: u64 = 1 << 20;

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
