//! ONNX Runtime on a card.
//!
//! All files are found before the first is opened, so that a missing one is named. NVIDIA's libraries are then opened
//! by path: the loader takes an open library for each that has its name, wherever the packages put it.

use std::error::Error as _;
use std::path::Path;

use ort::ep::cuda::ConvAlgorithmSearch;
use ort::ep::{self, ArenaExtendStrategy, ExecutionProviderDispatch};

use super::library::runtimes;
use super::{Ort, open};
use crate::Error;
use crate::engine::cuda::{self, Cards, Kit, Lacking, Places, system_folders};
use crate::engine::{Chosen, Options};

/// The card of an engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gpu {
    pub(super) number: usize,
    /// Whether a model runs on the CPU if it cannot run on the card.
    pub(super) or_cpu: bool,
    /// Largest memory of a session, in bytes.
    pub(super) memory: Option<usize>,
}

impl Gpu {
    pub(super) fn provider(self) -> ExecutionProviderDispatch {
        let number = i32::try_from(self.number).unwrap_or(i32::MAX);
        // The default tries every algorithm at each new shape: on an H200 up to 275 ms, for runs that are as fast.
        let search = ConvAlgorithmSearch::Heuristic;
        let mut provider = ep::CUDA::default().with_device_id(number).with_conv_algorithm_search(search);
        if let Some(memory) = self.memory {
            // By default an arena doubles, and would reach its limit long before it needs the memory.
            let exact = ArenaExtendStrategy::SameAsRequested;
            provider = provider.with_memory_limit(memory).with_arena_extend_strategy(exact);
        }
        // Without `error_on_failure` a missing CUDA library would silently mean the CPU, 50 times slower.
        provider.build().error_on_failure()
    }
}

/// The engine on a card.
pub(in crate::engine) fn engine_on(number: usize, or_cpu: bool, options: &Options) -> Result<Chosen, Error> {
    let gpu = Gpu { number, or_cpu, memory: options.card_memory };
    let unusable = |reason| Error::Card { number, reason };
    let kit = kit(number, options).map_err(|lacking| unusable(cuda::told(&lacking)))?;
    kit.libraries.iter().try_for_each(|path| preload(path)).map_err(unusable)?;
    let about = format!("ONNX Runtime on cuda:{number}, {}", kit.runtime.display());
    let engine = Box::new(Ort { environment: open(kit.runtime)?, optimises: true, gpu: Some(gpu) });
    Ok(Chosen { name: "ort", engine, about, cuda: Some(number) })
}

/// Finds the files of a card, or lists those that are missing. Opens none.
pub(in crate::engine) fn kit(number: usize, options: &Options) -> Result<Kit, Vec<Lacking>> {
    let places = Places { runtimes: runtimes(options), system: system_folders(), cards: Cards::here() };
    cuda::find(number, &places)
}

fn preload(path: &Path) -> Result<(), String> {
    ort::util::preload_dylib(path).map_err(|error| {
        // Only the cause has the loader's text.
        let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        format!("cannot open '{}': {why}: reinstall its package", path.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_that_does_not_open_is_named_with_the_cause() {
        let folder = tempfile::tempdir().unwrap();
        let broken = folder.path().join("libcudart.so.13");
        std::fs::write(&broken, "not a library").unwrap();
        let told = preload(&broken).unwrap_err();
        assert!(told.starts_with(&format!("cannot open '{}': ", broken.display())), "{told}");
        assert!(!told.contains("dlopen failed"), "the loader's text is missing: {told}");
    }
}
