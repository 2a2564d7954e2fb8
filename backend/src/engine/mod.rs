//! Engines, which load model files and run batches.
//!
//! The traits are synchronous: a thread locks a replica of a model and calls it, usually the thread of an instance. The
//! types of a runtime stay in its module. A new engine is one module here and one arm of `on_cpu`, or of `choose` for a
//! card.

use bytes::{BufMut, Bytes, BytesMut};
mod emulated;
mod ort;
mod text;
mod tract;
pub(crate) mod trial;

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use parm_protocol::{DataType, ModelConfig, ModelConfigTensor, ModelMetadata, Shape, Tensor, TensorMetadata};

pub use emulated::Spec;
pub use text::Texts;
pub use trial::compare;

use crate::{EngineConfig, Error};

/// The reason against an output that is a map or a sequence, which exporters of classifiers make by default.
const NOT_A_TENSOR: &str = "map or sequence (from skl2onnx: export the model with options={'zipmap': False}, \
    and the estimators of a MultiOutputClassifier one by one)";

/// The end of tract's error for a model that ONNX Runtime may run.
pub const TRY_ORT: &str = ": engine 'ort' may run it (pip install onnxruntime)";

/// A runtime for models.
pub trait Engine: Send + Sync {
    /// The protocol's platform name of this engine's models, such as `onnx_tract`.
    fn platform(&self) -> &'static str;

    /// Loads a model and prepares it to run.
    fn load(&self, path: &Path, config: &EngineConfig) -> Result<Box<dyn Model>, Error>;

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

/// Tensors of several runs, stacked one by one.
pub(crate) fn joined(parts: &[impl AsRef<[Tensor]>]) -> Result<Vec<Tensor>, parm_protocol::Error> {
    let count = parts.first().map_or(0, |part| part.as_ref().len());
    let joined = |at: usize| {
        let rows: Vec<Tensor> = parts.iter().filter_map(|part| part.as_ref().get(at).cloned()).collect();
        Tensor::concat_rows(&rows)
    };
    (0..count).map(joined).collect()
}

/// The value of a variable that other programs set, and that users expect to work here too; `None` if it is unset or empty.
fn variable(name: &str) -> Option<OsString> {
    #[allow(clippy::disallowed_methods)]
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// A device, and whether the CPU may replace it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// The number of the CUDA device; `None` for the CPU.
    pub cuda: Option<usize>,
    /// Whether models run on the CPU if the CUDA device cannot be used.
    pub or_cpu: bool,
}

/// Largest number of a device: far more than a machine has, and small enough for every library.
const MOST_NUMBER: usize = 1024;

impl Device {
    /// The CPU.
    pub const CPU: Self = Self { cuda: None, or_cpu: false };

    /// Reads the configured text; `None` if it has another form.
    pub fn read(text: &str) -> Option<Self> {
        if text == "cpu" {
            return Some(Self::CPU);
        }
        let (device, or_cpu) = match text.split_once(',') {
            Some((device, rest)) => (device, (rest.trim() == "cpu").then_some(true)?),
            None => (text, false),
        };
        let number = match device.trim_end() {
            "cuda" => 0,
            device => device.strip_prefix("cuda:")?.parse().ok().filter(|&number| number <= MOST_NUMBER)?,
        };
        Some(Self { cuda: Some(number), or_cpu })
    }
}

/// The elements of a `BYTES` tensor; ONNX strings are UTF-8.
pub fn texts_of(tensor: &Tensor) -> Result<Vec<String>, Error> {
    let text = |string| std::str::from_utf8(string).map(str::to_owned);
    let texts = tensor.strings().map(text).collect::<Result<_, _>>();
    texts.map_err(|error| Error::Run { message: format!("a string is not UTF-8: {error}") })
}

/// Strings as the data of a `BYTES` tensor.
fn pack(texts: &[String]) -> Bytes {
    let mut data = BytesMut::with_capacity(texts.iter().map(|text| text.len() + 4).sum());
    for text in texts {
        data.put_u32_le(u32::try_from(text.len()).unwrap_or(u32::MAX));
        data.put_slice(text.as_bytes());
    }
    data.freeze()
}

/// A tensor that a model declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// Its name.
    pub name: String,
    /// Its element type.
    pub datatype: DataType,
    /// Its dimensions; -1 for dynamic ones.
    pub shape: Vec<i64>,
}

/// The tensors of a model, in the model's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signature {
    /// Inputs.
    pub inputs: Vec<Declared>,
    /// Outputs.
    pub outputs: Vec<Declared>,
}

/// The most elements of a generated warm-up input: 1 GiB of FP32.
const MAX_WARM_UP: usize = 1 << 28;

impl Signature {
    /// The protocol's metadata.
    pub fn metadata(&self, name: &str, version: &str, platform: &str) -> ModelMetadata {
        let describe = |tensors: &[Declared]| tensors.iter().map(Declared::metadata).collect();
        ModelMetadata {
            name: name.into(),
            versions: vec![version.into()],
            platform: platform.into(),
            inputs: describe(&self.inputs),
            outputs: describe(&self.outputs),
        }
    }

    /// The protocol's configuration; `max_batch` is 0 for a model without a batch dimension.
    pub fn config(&self, name: &str, platform: &str, max_batch: usize) -> ModelConfig {
        let describe =
            |tensors: &[Declared]| tensors.iter().map(|tensor| tensor.config(max_batch > 0)).collect();
        ModelConfig {
            name: name.into(),
            platform: platform.into(),
            max_batch_size: i32::try_from(max_batch).unwrap_or(i32::MAX),
            input: describe(&self.inputs),
            output: describe(&self.outputs),
            ..ModelConfig::default()
        }
    }

    /// Whether the first dimension of every tensor varies, so that rows of several requests can share a run.
    pub fn is_batched(&self) -> bool {
        parm_protocol::validate::has_batch_dimension(&self.metadata("", "", ""))
    }

    /// Inputs of zeros: `rows` rows if there is a batch dimension, 1 for any other dynamic dimension.
    pub fn blank(&self, rows: usize) -> Result<Vec<Tensor>, Error> {
        let batched = self.is_batched();
        self.inputs.iter().map(|input| input.blank(if batched { rows } else { 1 })).collect()
    }
}

impl Declared {
    pub(crate) fn metadata(&self) -> TensorMetadata {
        TensorMetadata {
            name: self.name.clone(),
            datatype: self.datatype.to_string(),
            shape: self.shape.clone(),
        }
    }

    fn config(&self, batched: bool) -> ModelConfigTensor {
        let data_type = match self.datatype {
            DataType::Bytes => "TYPE_STRING".into(),
            datatype => format!("TYPE_{datatype}"),
        };
        ModelConfigTensor {
            name: self.name.clone(),
            data_type,
            dims: self.shape[usize::from(batched)..].into(),
        }
    }

    fn blank(&self, rows: usize) -> Result<Tensor, Error> {
        let mut shape: Shape = self.shape.iter().map(|&dim| usize::try_from(dim).unwrap_or(1)).collect();
        if let (Some(first), Some(-1)) = (shape.first_mut(), self.shape.first()) {
            *first = rows;
        }
        let elements = shape.iter().fold(1usize, |product, &dim| product.saturating_mul(dim));
        if elements > MAX_WARM_UP {
            let message = format!("input '{}' needs {elements} elements, more than {MAX_WARM_UP}", self.name);
            return Err(Error::WarmUp { message });
        }
        // Four zero bytes are the length of an empty string.
        let bytes = elements * self.datatype.size().unwrap_or(4);
        Ok(Tensor::new(self.datatype, shape, vec![0; bytes].into())?)
    }
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

    #[test]
    fn device_is_cpu_or_cuda_with_a_number_and_a_fallback() {
        let cuda = |number, or_cpu| Some(Device { cuda: Some(number), or_cpu });
        for (text, device) in [
            ("cpu", Some(Device::CPU)),
            ("cuda", cuda(0, false)),
            ("cuda:3", cuda(3, false)),
            ("cuda:3,cpu", cuda(3, true)),
            ("cuda, cpu", cuda(0, true)),
        ] {
            assert_eq!(Device::read(text), device, "{text}");
        }
        for text in
            ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "cpu,cuda:0", "cuda:0,cuda:1", "cuda:5000", "cpu,"]
        {
            assert_eq!(Device::read(text), None, "{text}");
        }
    }

    #[test]
    fn strings_survive_a_round_trip() {
        let texts = ["", "grün", "b"].map(String::from);
        let tensor = Tensor::new(DataType::Bytes, [3].as_slice(), pack(&texts)).unwrap();
        assert_eq!(texts_of(&tensor).unwrap(), texts);
        let broken = Bytes::from_static(b"\x01\0\0\0\xff");
        let tensor = Tensor::new(DataType::Bytes, [1].as_slice(), broken).unwrap();
        assert!(matches!(texts_of(&tensor), Err(Error::Run { .. })));
    }

    #[test]
    fn blank_inputs_fit_every_datatype() {
        for datatype in DataType::ALL {
            let input = Declared { name: "x".into(), datatype, shape: vec![-1, 2, -1] };
            let signature = Signature { inputs: vec![input], outputs: vec![] };
            assert_eq!(signature.blank(3).unwrap()[0].shape(), [3, 2, 1]);
        }
    }

    #[test]
    fn configuration_omits_the_batch_dimension() {
        let tensor = Declared { name: "x".into(), datatype: DataType::Bytes, shape: vec![-1, 7] };
        let signature = Signature { inputs: vec![tensor], outputs: vec![] };
        let config = signature.config("m", "p", 8);
        assert_eq!((config.max_batch_size, &config.input[0].dims[..]), (8, &[7][..]));
        assert_eq!(config.input[0].data_type, "TYPE_STRING");
        assert_eq!(signature.config("m", "p", 0).input[0].dims, [-1, 7]);
    }
}
