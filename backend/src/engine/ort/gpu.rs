//! ONNX Runtime on a card.
//!
//! The libraries of the Python packages of NVIDIA are in folders that no loader searches. They are opened by path beforehand,
//! because the loader takes an open library for each that has its name. What is missing then is said by ONNX Runtime's
//! loader, when a model is loaded.

use std::path::{Path, PathBuf};

use ort::ep::cuda::ConvAlgorithmSearch;
use ort::ep::{self, ArenaExtendStrategy, ExecutionProviderDispatch};

use super::library::{entries, name, runtimes};
use super::{Ort, open};
use crate::engine::{Chosen, variable};
use crate::{EngineConfig, Error};

/// The part of ONNX Runtime for cards, beside its library.
const PROVIDER: &str = "libonnxruntime_providers_cuda.so";

/// The beginnings of the names of NVIDIA's libraries, each after those that it needs.
const LIBRARIES: [&str; 14] = [
    "libcudart.so.",
    "libnvJitLink.so.",
    "libcublasLt.so.",
    "libcublas.so.",
    "libnvrtc.so.",
    "libcurand.so.",
    "libcufft.so.",
    "libcudnn.so.",
    "libcudnn_graph.so.",
    "libcudnn_ops.so.",
    "libcudnn_heuristic.so.",
    "libcudnn_adv.so.",
    "libcudnn_cnn.so.",
    "libcudnn_engines_",
];

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
pub(in crate::engine) fn engine_on(
    number: usize,
    or_cpu: bool,
    config: &EngineConfig,
) -> Result<Chosen, Error> {
    let gpu = Gpu { number, or_cpu, memory: config.card_memory() };
    let runtime = on_card(number, config)?;
    preload(&runtime);
    let about = format!("ONNX Runtime on cuda:{number}, {}", runtime.display());
    let engine = Box::new(Ort { environment: open(runtime)?, optimises: true, gpu: Some(gpu) });
    Ok(Chosen { name: "ort", engine, about, cuda: Some(number) })
}

/// The library of ONNX Runtime for cards, which is not opened.
pub(in crate::engine) fn on_card(number: usize, config: &EngineConfig) -> Result<PathBuf, Error> {
    let found = runtimes(config).into_iter().find(|runtime| runtime.with_file_name(PROVIDER).is_file());
    found.ok_or_else(|| {
        let cure = "pip uninstall onnxruntime, pip install \"onnxruntime-gpu[cuda,cudnn]\"";
        let reason = format!("no ONNX Runtime has {PROVIDER} beside it: {cure}");
        Error::Card { number, reason }
    })
}

/// Opens the libraries of NVIDIA in the Python environment of a runtime and in a toolkit of CUDA.
fn preload(runtime: &Path) {
    for path in libraries(&folders(runtime)) {
        if let Err(error) = ort::util::preload_dylib(&path) {
            tracing::debug!(path = %path.display(), %error, "a library of CUDA does not open");
        }
    }
}

fn folders(runtime: &Path) -> Vec<PathBuf> {
    let site = runtime.ancestors().nth(3).unwrap_or(Path::new(""));
    let packages = entries(&site.join("nvidia")).into_iter().map(|package| package.join("lib"));
    let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(variable);
    packages.chain(toolkits.map(|toolkit| Path::new(&toolkit).join("lib64"))).collect()
}

fn libraries(folders: &[PathBuf]) -> Vec<PathBuf> {
    let files: Vec<PathBuf> = folders.iter().flat_map(|folder| entries(folder)).collect();
    let named = |start: &'static str| files.iter().filter(move |path| name(path).starts_with(start));
    LIBRARIES.into_iter().flat_map(named).cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn libraries_of_the_packages_are_opened_after_those_that_they_need() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("onnxruntime/capi/libonnxruntime.so.1");
        let files = ["cudnn/lib/libcudnn.so.9", "cu13/lib/libcublas.so.13", "cu13/lib/libcublasLt.so.13"];
        for file in files.iter().chain(&["cu13/lib/libcusolver.so.12", "cu13/lib/libcublas.alt"]) {
            let path = root.path().join("nvidia").join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "not a library").unwrap();
        }
        let found = libraries(&folders(&own));
        let expected: Vec<_> = files.iter().rev().map(|file| root.path().join("nvidia").join(file)).collect();
        assert_eq!(found, expected);
        preload(&own);
    }

    #[test]
    fn runtime_without_a_provider_for_cards_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let runtime = root.path().join("libonnxruntime.so");
        let config = EngineConfig { onnxruntime: Some(runtime.clone()), ..EngineConfig::default() };
        let error = on_card(0, &config).unwrap_err().to_string();
        assert!(error.contains(PROVIDER) && error.contains("pip install"), "{error}");
        fs::write(root.path().join(PROVIDER), "").unwrap();
        assert_eq!(on_card(0, &config).unwrap(), runtime);
    }
}
