//! Engines, which load model files and run batches.
//!
//! The trait is synchronous and single-threaded: an instance's thread owns its models and calls them, and asynchronous
//! code stays on the other side of the instance's queue. The types of a runtime stay in its file. A new engine is one
//! file here and one arm of `choose`.

mod compare;
mod cuda;
mod emulated;
mod listed;
mod ort;
mod signature;
mod strings;
mod text;
mod tract;
pub(crate) mod trial;

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use parm_protocol::{Shape, Tensor};

pub use compare::compare;
pub use cuda::Device;
pub use emulated::Spec;
pub(crate) use listed::{joined, listed};
pub use signature::{Declared, Signature};
pub use strings::unpack as texts_of;
pub use text::Texts;

use crate::{EngineConfig, Error};

/// The reason against an output that is a map or a sequence, which exporters of classifiers make by default.
const NOT_A_TENSOR: &str = "map or sequence (from skl2onnx: export the model with options={'zipmap': False}, \
    and the estimators of a MultiOutputClassifier one by one)";

/// The end of tract's error for a model that ONNX Runtime may run.
pub const TRY_ORT: &str = ": engine 'ort' may run it (pip install onnxruntime)";

/// Numbers of rows for an engine that needs fixed ones.
pub(crate) const FIXED_ROWS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// A runtime for models.
pub trait Engine: Send + Sync {
    /// The protocol's platform name of this engine's models, such as `onnx_tract`.
    fn platform(&self) -> &'static str;

    /// Loads a model and prepares it to run.
    fn load(&self, path: &Path, config: &EngineConfig) -> Result<Box<dyn Model>, Error>;

    /// Whether the instances of a model share its weights.
    fn shares_weights(&self) -> bool {
        false
    }

    /// How often an instance has the weights of a file.
    fn copies_of_weights(&self, _path: &Path) -> usize {
        1
    }

    /// Other ways to run the same file, by name. Their answers must be this engine's but for rounding.
    fn references(&self, _config: &EngineConfig) -> Vec<(&'static str, Box<dyn Engine>)> {
        Vec::new()
    }
}

/// A loaded model, owned by one thread at a time.
pub trait Model: Send {
    /// Its declared tensors.
    fn signature(&self) -> &Signature;

    /// Runs inputs in declared order; returns outputs in declared order. A text model adds the number of tokens of each row.
    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error>;

    /// Prepares for these numbers of rows, in ascending order, if runs are slow whenever their number changes. Returns those
    /// that are prepared; none if any number is as fast.
    fn fix_rows(&mut self, _wanted: &[usize]) -> Result<Vec<usize>, Error> {
        Ok(Vec::new())
    }

    /// Allows a run in parts that have less memory: the rows are independent, and any number of them may run.
    fn split_rows(&mut self) {}

    /// Whether its last output is the number of tokens of each row, as of a text model.
    fn counts_tokens(&self) -> bool {
        false
    }

    /// Whether runs of one shape take about the same time.
    fn is_steady(&self) -> bool {
        true
    }

    /// Compiles for inputs with these shapes ahead of time, if the engine compiles for shapes.
    fn prepare(&mut self, _shapes: &[Shape]) -> Result<(), Error> {
        Ok(())
    }

    /// Another runnable model with the same weights, if the engine can share them between threads.
    fn replica(&self) -> Option<Box<dyn Model>> {
        None
    }
}

/// An engine, with the reason for the choice.
pub struct Chosen {
    /// Its name in configurations: `tract` or `ort`.
    pub name: &'static str,
    /// The engine.
    pub engine: Box<dyn Engine>,
    /// Its description in logs: the path of its library, or the reason why there is none.
    pub about: String,
    /// The CUDA device that it uses.
    pub cuda: Option<usize>,
}

/// Chooses the engine of this name. `auto` is ONNX Runtime if its library is found, otherwise tract, which needs none.
///
/// A library that the configuration names must open: falling back to tract would silently be several times slower. A
/// library that was only found and does not open is skipped, and the description gives the reason.
pub fn choose(name: &str, config: &EngineConfig) -> Result<Chosen, Error> {
    let unknown = |hint| Error::Device { device: config.device.clone(), hint };
    let device = Device::read(&config.device).ok_or_else(|| unknown("'cpu', 'cuda:N' or 'cuda:N,cpu'"))?;
    match (name, device.cuda) {
        ("auto" | "ort", Some(number)) => match ort::engine_on(number, device.or_cpu, config) {
            Err(Error::Card { reason, .. }) if device.or_cpu => {
                let chosen = on_cpu(name, config)?;
                let about =
                    format!("{}, on the CPU because cuda:{number} cannot be used: {reason}", chosen.about);
                Ok(Chosen { about, ..chosen })
            }
            outcome => outcome,
        },
        ("tract", Some(_)) => Err(unknown("'cpu', or engine 'ort' for CUDA")),
        _ => on_cpu(name, config),
    }
}

fn on_cpu(name: &str, config: &EngineConfig) -> Result<Chosen, Error> {
    let tract = |about: String| Chosen { name: "tract", engine: tract::engine(), about, cuda: None };
    match name {
        "tract" => Ok(tract("tract".into())),
        "ort" => ort::engine(ort::library(config)),
        "auto" => match ort::found(config)? {
            Ok(library) => ort::engine(library),
            Err(reason) => Ok(tract(format!("tract, because {reason}"))),
        },
        _ => Err(Error::UnknownEngine { name: name.into(), known: vec!["auto", "ort", "tract"] }),
    }
}

/// ONNX Runtime for a CUDA device, or why the device cannot be used; `None` if it is the CPU. Opens nothing.
pub fn on_card(config: &EngineConfig) -> Option<Result<PathBuf, Error>> {
    Device::read(&config.device)?.cuda.map(|number| ort::on_card(number, config))
}

/// The engine of this name.
pub fn by_name(name: &str, config: &EngineConfig) -> Result<Box<dyn Engine>, Error> {
    choose(name, config).map(|chosen| chosen.engine)
}

/// Runs `work`; a panic, such as of an engine, becomes [`Error::Panicked`], so that the instance continues.
///
/// Engines keep no state that a later run reads, so continuing after a panic is safe even if `work` left its data half
/// changed. This function is the only place that asserts it.
pub fn guarded<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_string());
        let message = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(Error::Panicked { message: message.unwrap_or_else(|| "no message".into()) })
    })
}

/// The value of a variable that other programs set, and that users expect to work here too; `None` if it is unset or empty.
fn variable(name: &str) -> Option<OsString> {
    #[allow(clippy::disallowed_methods)]
    std::env::var_os(name).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_engine_error_lists_the_engines() {
        let known = vec!["auto", "ort", "tract"];
        let options = EngineConfig::default();
        assert_eq!(by_name("tf", &options).err(), Some(Error::UnknownEngine { name: "tf".into(), known }));
        assert!(by_name("tract", &options).is_ok());
    }

    #[test]
    fn device_must_be_known_and_fit_the_engine() {
        for (engine, device) in [("auto", "gpu"), ("tract", "cuda:x"), ("tract", "cuda:0")] {
            let options = EngineConfig { device: device.into(), ..EngineConfig::default() };
            let refusal = by_name(engine, &options).err().unwrap();
            assert!(matches!(&refusal, Error::Device { .. }), "{engine} {device}: {refusal}");
            assert!(refusal.is_configuration());
        }
    }

    #[test]
    fn card_without_files_is_refused_unless_the_cpu_may_replace_it() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = folder.path().join("libonnxruntime.so.1");
        std::fs::write(&runtime, "").unwrap();
        let of = |device: &str| EngineConfig {
            device: device.into(),
            onnxruntime: Some(runtime.clone()),
            ..EngineConfig::default()
        };
        for engine in ["auto", "ort"] {
            let refusal = by_name(engine, &of("cuda:0")).err().unwrap();
            assert!(matches!(&refusal, Error::Card { number: 0, .. }), "{refusal}");
            let told = refusal.to_string();
            assert!(
                told.contains("libonnxruntime_providers_cuda.so") && told.contains("cuda:0,cpu"),
                "{told}"
            );
        }
        // The CPU needs the library itself, which is not one here.
        let refusal = by_name("ort", &of("cuda:0,cpu")).err();
        assert!(matches!(refusal, Some(Error::RuntimeLibrary { .. })), "{refusal:?}");
    }

    #[test]
    fn named_library_must_open() {
        let nowhere = EngineConfig {
            onnxruntime: Some("/nowhere/libonnxruntime.so".into()),
            ..EngineConfig::default()
        };
        for name in ["auto", "ort"] {
            let refusal = by_name(name, &nowhere).err();
            assert!(matches!(refusal, Some(Error::RuntimeLibrary { .. })), "{name}: {refusal:?}");
        }
    }

    #[test]
    fn panic_becomes_an_error_with_its_message() {
        let outcome: Result<(), Error> = guarded(|| panic!("index {} is out of range", 7));
        assert_eq!(outcome, Err(Error::Panicked { message: "index 7 is out of range".into() }));
    }
}
