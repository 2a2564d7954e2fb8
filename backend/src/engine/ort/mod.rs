//! ONNX Runtime, on CPU or CUDA: two to five times faster than tract, opened at run time.
//!
//! A process can open only one library. The first that is requested decides, and a different path afterwards is an
//! error.
//!
//! *Problem.* Since version 1.20 ONNX Runtime plans a convolution on a card anew whenever its shape differs from that of the
//! run before (its issue 23006): on an H200 a ResNet-18 then takes 36 to 62 ms instead of 1.3. Batches differ all the time.
//!
//! *Choice.* A session for each of a few numbers of rows. Batches of other sizes are filled up or split, which needs
//! independent rows. Each session has the weights, so their number is bounded by memory.
//!
//! *Rejected.* A session for each shape that occurs: 64 batch sizes need 64 sessions. Other open dimensions, such as the
//! size of an image, are therefore still planned for each run.

mod gpu;
mod library;

use std::collections::BTreeSet;
use std::fmt::{Debug, Display};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytemuck::Pod;
use bytes::Bytes;
use half::{bf16, f16};
use ort::environment::Environment;
use ort::logging::LogLevel;
use ort::session::builder::GraphOptimizationLevel;
use ort::session::{Session, SessionInputValue};
use ort::value::{DynValue, Outlet, PrimitiveTensorElementType, TensorElementType, TensorRef};
use parking_lot::Mutex;
use parm_parity_models::onnx::{is_inside, locations};
use parm_protocol::{DataType, Shape, Tensor};

pub(super) use gpu::{engine_on, on_card};
pub(super) use library::{found, library};

use gpu::Gpu;
use library::entries;

use super::{Chosen, Declared, Engine, Model, NOT_A_TENSOR, Signature, guarded, joined, pack, texts_of};
use crate::engine::trial::operators;
use crate::{EngineConfig, Error};

#[derive(Clone)]
struct Ort {
    environment: Environment,
    optimises: bool,
    gpu: Option<Gpu>,
}

/// The engine with this library.
pub(super) fn engine(library: PathBuf) -> Result<Chosen, Error> {
    let about = format!("ONNX Runtime, {}", library.display());
    let engine = Box::new(Ort { environment: open(library)?, optimises: true, gpu: None });
    Ok(Chosen { name: "ort", engine, about, cuda: None })
}

struct OrtModel {
    /// One, or one for each size.
    sessions: Vec<Session>,
    /// Their numbers of rows, in ascending order; empty if one session takes all.
    sizes: Vec<usize>,
    signature: Signature,
    /// Memory for inputs that are not aligned, kept because fresh memory takes longer to touch than to fill.
    scratch: Vec<Scratch>,
    /// The means to make further sessions, if a card needs them.
    source: Option<CardFile>,
    /// Whether it has an operator that ends the process on inputs without elements.
    recurrent: bool,
    /// Whether its values decide how long a run takes.
    loops: bool,
}

/// A model's file, for a card.
struct CardFile {
    engine: Ort,
    gpu: Gpu,
    path: PathBuf,
    bytes: u64,
    config: EngineConfig,
}

/// Operators of ONNX Runtime 1.32 that abort the process on an empty sequence or batch: their threads are joined too late.
const RECURRENT: [&str; 4] = ["GRU", "LSTM", "RNN", "DynamicQuantizeLSTM"];

/// The opened library and its path. Never dropped: sessions need it, and it cannot be opened twice.
static ENVIRONMENT: Mutex<Option<(PathBuf, Environment)>> = Mutex::new(None);

impl Engine for Ort {
    fn platform(&self) -> &'static str {
        "onnx_onnxruntime"
    }

    fn load(&self, path: &Path, config: &EngineConfig) -> Result<Box<dyn Model>, Error> {
        let (session, gpu) = guarded(|| session(self, path, config))?;
        let declare = |outlets: &[Outlet]| -> Result<Vec<Declared>, Error> {
            outlets.iter().map(|outlet| declared(path, outlet)).collect()
        };
        let (inputs, outputs) = (declare(session.inputs())?, declare(session.outputs())?);
        let signature = Signature { inputs, outputs };
        let operators = operators(path);
        let gpu = gpu.filter(|_| self.optimises && has_convolutions(&operators));
        let source = gpu.map(|gpu| CardFile {
            engine: self.clone(),
            gpu,
            path: path.into(),
            bytes: bytes(path),
            config: config.clone(),
        });
        Ok(Box::new(OrtModel {
            sessions: vec![session],
            sizes: Vec::new(),
            signature,
            scratch: Vec::new(),
            source,
            recurrent: RECURRENT.iter().any(|operator| operators.contains(*operator)),
            loops: ["Loop", "Scan"].iter().any(|operator| operators.contains(*operator)),
        }))
    }

    fn references(&self, _: &EngineConfig) -> Vec<(&'static str, Box<dyn Engine>)> {
        let plain =
            |optimises| Box::new(Self { environment: self.environment.clone(), optimises, gpu: None });
        match self.gpu {
            Some(_) => vec![("ONNX Runtime on the CPU", plain(true))],
            None => vec![("ONNX Runtime without graph optimisation", plain(false))],
        }
    }
}

/// Whether an operator is one that a card plans for its shape.
fn has_convolutions(operators: &BTreeSet<String>) -> bool {
    operators.iter().any(|operator| operator.starts_with("Conv") && operator != "ConvInteger")
}

/// The size of a model's files: external data are next to it.
fn bytes(path: &Path) -> u64 {
    let files = path.parent().map(entries).unwrap_or_default();
    files.iter().filter_map(|file| fs::metadata(file).ok()).map(|file| file.len()).sum()
}

impl Model for OrtModel {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        let Self { sessions, sizes, signature, scratch, .. } = self;
        if let Some((empty, declared)) =
            inputs.iter().zip(&signature.inputs).find(|(input, _)| input.is_empty())
            && self.recurrent
        {
            let message = format!("input '{}' of shape {:?} has no elements", declared.name, empty.shape());
            return Err(Error::Input { message });
        }
        scratch.resize_with(inputs.len(), Default::default);
        run_in(sizes, inputs, |at, inputs| run_on(&mut sessions[at], signature, scratch, inputs))
    }

    fn is_steady(&self) -> bool {
        !self.loops
    }

    fn fix_rows(&mut self, wanted: &[usize]) -> Result<Vec<usize>, Error> {
        let Some(CardFile { engine, gpu, path, bytes, config }) = &self.source else {
            return Ok(Vec::new());
        };
        let chosen = affordable(wanted, *bytes);
        if chosen.is_empty() && self.sizes.is_empty() {
            return Ok(chosen);
        }
        let shares = gpu.memory.map(|memory| memory_shares(&chosen, *bytes, memory));
        // The old ones go first: the card may not have room for both.
        self.sessions.clear();
        let mut sessions = Vec::with_capacity(chosen.len().max(1));
        for at in 0..chosen.len().max(1) {
            let share = shares.as_ref().and_then(|shares| shares.get(at).copied());
            let gpu = Gpu { memory: share.or(gpu.memory), ..*gpu };
            sessions.push(guarded(|| session_on(engine, Some(gpu), path, config))?);
        }
        (self.sessions, self.sizes) = (sessions, chosen);
        Ok(self.sizes.clone())
    }
}

fn run_on(
    session: &mut Session,
    signature: &Signature,
    scratch: &mut [Scratch],
    inputs: &[Tensor],
) -> Result<Vec<Tensor>, Error> {
    let values = inputs.iter().zip(scratch).map(|(input, scratch)| to_value(input, scratch));
    let values = values.collect::<Result<Vec<SessionInputValue<'_>>, _>>()?;
    let outputs = session.run(values.as_slice()).map_err(failed)?;
    // Read by name in declared order: the session's order is not guaranteed.
    let read = |declared: &Declared| {
        let missing = || Error::Run { message: format!("output '{}' is missing", declared.name) };
        from_value(outputs.get(&declared.name).ok_or_else(missing)?, declared.datatype)
    };
    signature.outputs.iter().map(read).collect()
}

/// Opens a library, unless it is open.
fn open(path: PathBuf) -> Result<Environment, Error> {
    let mut opened = ENVIRONMENT.lock();
    if let Some((known, environment)) = &*opened {
        if *known == path {
            return Ok(environment.clone());
        }
        let message = format!("the process has already opened '{}': use one library", known.display());
        return Err(Error::RuntimeLibrary { path, message });
    }
    let refused = |message: String| Error::RuntimeLibrary { path: path.clone(), message };
    let environment = guarded(|| {
        let builder = ort::init_from(&path).map_err(|error| refused(error.to_string()))?;
        let builder = builder.with_name("parm").with_logger(Arc::new(hear));
        builder.build().map_err(|error| refused(error.to_string()))
    })?;
    *opened = Some((path, environment.clone()));
    Ok(environment)
}

/// Forwards the library's messages to our log; by default it writes to the terminal. A failed run is also an error of
/// its request, so those messages are only for debugging.
fn hear(level: LogLevel, _category: &str, _id: &str, place: &str, message: &str) {
    match level {
        LogLevel::Fatal => tracing::error!(place, "ONNX Runtime: {message}"),
        LogLevel::Error | LogLevel::Warning => tracing::debug!(place, "ONNX Runtime: {message}"),
        LogLevel::Info | LogLevel::Verbose => tracing::trace!(place, "ONNX Runtime: {message}"),
    }
}

/// The open library.
fn opened() -> Option<PathBuf> {
    ENVIRONMENT.lock().as_ref().map(|(path, _)| path.clone())
}

/// A session, and the card that it uses.
fn session(engine: &Ort, path: &Path, config: &EngineConfig) -> Result<(Session, Option<Gpu>), Error> {
    let on_cpu = || Ok((session_on(engine, None, path, config)?, None));
    let Some(gpu) = engine.gpu else { return on_cpu() };
    match session_on(engine, Some(gpu), path, config) {
        Err(error) if gpu.or_cpu => {
            tracing::warn!(%error, device = gpu.number, "the model runs on the CPU: the card cannot be used");
            on_cpu()
        }
        outcome => Ok((outcome?, Some(gpu))),
    }
}

fn session_on(
    Ort { environment, optimises, .. }: &Ort,
    gpu: Option<Gpu>,
    path: &Path,
    config: &EngineConfig,
) -> Result<Session, Error> {
    let build = || -> Result<Session, String> {
        let text = |error: &dyn Display| error.to_string();
        let mut builder = Session::builder(environment).map_err(|error| text(&error))?;
        builder = builder.with_intra_threads(config.threads.get()).map_err(|error| text(&error))?;
        if !optimises {
            let level = GraphOptimizationLevel::Disable;
            builder = builder.with_optimization_level(level).map_err(|error| text(&error))?;
        }
        // Threads that spin between runs would take cores from other instances on the machine.
        builder = builder.with_intra_op_spinning(false).map_err(|error| text(&error))?;
        if let Some(gpu) = gpu {
            builder = builder.with_execution_providers([gpu.provider()]).map_err(|error| text(&error))?;
        }
        for (name, bytes) in external(path) {
            let with = builder.with_external_initializer_file_in_memory(name, bytes);
            builder = with.map_err(|error| text(&error))?;
        }
        builder.commit_from_file(path).map_err(|error| text(&error))
    };
    build().map_err(|message| Error::Load { path: path.into(), message })
}

/// The external weights of a model by their names in it. Those that cannot be read are left to the library, which gives the
/// error.
///
/// ONNX Runtime maps external files for as long as it has the model. A file that is then overwritten or truncated in place, as by
/// `cp`, changes the weights of a model in service or ends the process (SIGBUS). So they are read first; the library copies
/// them.
fn external(path: &Path) -> Vec<(String, Arc<[u8]>)> {
    let files = locations(path).unwrap_or_default().into_iter().filter(|name| is_inside(name));
    let with_bytes = |name: String| read(&path.with_file_name(&name)).map(|bytes| (name, bytes));
    files.filter_map(with_bytes).collect()
}

fn read(path: &Path) -> Option<Arc<[u8]>> {
    let mut file = fs::File::open(path).ok()?;
    let size = usize::try_from(file.metadata().ok().filter(fs::Metadata::is_file)?.len()).ok()?;
    // One allocation: these files may have gigabytes.
    let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, size).collect();
    file.read_exact(Arc::get_mut(&mut bytes)?).ok()?;
    Some(bytes)
}

fn declared(path: &Path, outlet: &Outlet) -> Result<Declared, Error> {
    let unknown = || Error::TensorType {
        path: path.into(),
        tensor: outlet.name().into(),
        found: match outlet.dtype().tensor_type() {
            Some(_) => outlet.dtype().to_string(),
            None => NOT_A_TENSOR.into(),
        },
    };
    let datatype = outlet.dtype().tensor_type().and_then(datatype_of).ok_or_else(unknown)?;
    let shape = outlet.dtype().tensor_shape().ok_or_else(unknown)?;
    Ok(Declared { name: outlet.name().into(), datatype, shape: shape.iter().copied().collect() })
}

fn failed(error: ort::Error) -> Error {
    Error::Run { message: error.to_string() }
}

/// Aligned memory for the numbers of an input.
type Scratch = Vec<u64>;

/// Calls the function for a datatype: for booleans, for strings, or that for numbers with the type of an element.
macro_rules! by_type {
    ($datatype:expr, $truths:expr, $texts:expr, $numbers:ident($($argument:expr),*)) => {
        match $datatype {
            DataType::Bool => $truths,
            DataType::Bytes => $texts,
            DataType::Uint8 => $numbers::<u8>($($argument),*),
            DataType::Uint16 => $numbers::<u16>($($argument),*),
            DataType::Uint32 => $numbers::<u32>($($argument),*),
            DataType::Uint64 => $numbers::<u64>($($argument),*),
            DataType::Int8 => $numbers::<i8>($($argument),*),
            DataType::Int16 => $numbers::<i16>($($argument),*),
            DataType::Int32 => $numbers::<i32>($($argument),*),
            DataType::Int64 => $numbers::<i64>($($argument),*),
            DataType::Fp16 => $numbers::<f16>($($argument),*),
            DataType::Bf16 => $numbers::<bf16>($($argument),*),
            DataType::Fp32 => $numbers::<f32>($($argument),*),
            DataType::Fp64 => $numbers::<f64>($($argument),*),
        }
    };
}

/// A view of a tensor's own memory if it is aligned, otherwise of a copy in `scratch`.
fn to_value<'a>(tensor: &'a Tensor, scratch: &'a mut Scratch) -> Result<SessionInputValue<'a>, Error> {
    by_type!(tensor.datatype(), truths(tensor), texts(tensor), numbers(tensor, scratch))
}

/// Copies a tensor out.
fn from_value(value: &DynValue, datatype: DataType) -> Result<Tensor, Error> {
    let (shape, data) = by_type!(datatype, extract_truths(value), extract_texts(value), extract(value))?;
    let shape: Shape = shape.iter().map(|&dim| usize::try_from(dim).unwrap_or(0)).collect();
    Ok(Tensor::new(datatype, shape, data)?)
}

/// The protocol's name of an element type, if it has one.
fn datatype_of(native: TensorElementType) -> Option<DataType> {
    Some(match native {
        TensorElementType::Bool => DataType::Bool,
        TensorElementType::String => DataType::Bytes,
        TensorElementType::Uint8 => DataType::Uint8,
        TensorElementType::Uint16 => DataType::Uint16,
        TensorElementType::Uint32 => DataType::Uint32,
        TensorElementType::Uint64 => DataType::Uint64,
        TensorElementType::Int8 => DataType::Int8,
        TensorElementType::Int16 => DataType::Int16,
        TensorElementType::Int32 => DataType::Int32,
        TensorElementType::Int64 => DataType::Int64,
        TensorElementType::Float16 => DataType::Fp16,
        TensorElementType::Bfloat16 => DataType::Bf16,
        TensorElementType::Float32 => DataType::Fp32,
        TensorElementType::Float64 => DataType::Fp64,
        _ => return None,
    })
}

fn numbers<'a, T>(tensor: &'a Tensor, scratch: &'a mut Scratch) -> Result<SessionInputValue<'a>, Error>
where
    T: Pod + PrimitiveTensorElementType + Debug,
{
    let values = match bytemuck::try_cast_slice::<u8, T>(tensor.data()) {
        Ok(values) => values,
        Err(_) => {
            let bytes = tensor.data();
            scratch.resize(bytes.len().div_ceil(size_of::<u64>()), 0);
            let copy = &mut bytemuck::cast_slice_mut(scratch)[..bytes.len()];
            copy.copy_from_slice(bytes);
            bytemuck::cast_slice(copy)
        }
    };
    Ok(TensorRef::from_array_view((dims(tensor), values)).map_err(failed)?.into())
}

fn truths(tensor: &Tensor) -> Result<SessionInputValue<'_>, Error> {
    let values: Vec<bool> = tensor.data().iter().map(|&byte| byte != 0).collect();
    Ok(ort::value::Tensor::from_array((dims(tensor), values)).map_err(failed)?.into())
}

fn texts(tensor: &Tensor) -> Result<SessionInputValue<'_>, Error> {
    let texts = texts_of(tensor)?;
    // The library's interface takes strings that end with it.
    if let Some(at) = texts.iter().position(|text| text.contains('\0')) {
        let message = format!("string {at} has the character U+0000, which ONNX Runtime does not take");
        return Err(Error::Input { message });
    }
    let value = ort::value::Tensor::from_string_array((dims(tensor), texts.as_slice()));
    Ok(value.map_err(failed)?.into())
}

fn extract<T>(value: &DynValue) -> Result<(&ort::value::Shape, Bytes), Error>
where
    T: Pod + PrimitiveTensorElementType,
{
    let (shape, values) = value.try_extract_tensor::<T>().map_err(failed)?;
    Ok((shape, Bytes::copy_from_slice(bytemuck::cast_slice(values))))
}

fn extract_truths(value: &DynValue) -> Result<(&ort::value::Shape, Bytes), Error> {
    let (shape, truths) = value.try_extract_tensor::<bool>().map_err(failed)?;
    Ok((shape, truths.iter().map(|&truth| u8::from(truth)).collect()))
}

fn extract_texts(value: &DynValue) -> Result<(&ort::value::Shape, Bytes), Error> {
    let (shape, texts) = value.try_extract_strings().map_err(failed)?;
    Ok((shape, pack(&texts)))
}

fn dims(tensor: &Tensor) -> Vec<i64> {
    tensor.shape().iter().map(|&dim| i64::try_from(dim).unwrap_or(i64::MAX)).collect()
}

/// Most memory for the weights of all sessions of an instance.
const MOST_BYTES: u64 = 2 << 30;

/// The sizes among those wanted that a model of this many bytes may have: all of them, or evenly chosen ones.
fn affordable(wanted: &[usize], bytes: u64) -> Vec<usize> {
    let most = (MOST_BYTES / bytes.max(1)).min(wanted.len() as u64) as usize;
    match most {
        // One session is what it has anyway.
        0 | 1 => Vec::new(),
        most => (0..most).map(|at| wanted[at * (wanted.len() - 1) / (most - 1)]).collect(),
    }
}

/// A session's share of the card's memory: its weights, and a part of the rest by its rows.
fn memory_shares(sizes: &[usize], bytes: u64, memory: usize) -> Vec<usize> {
    let weights = usize::try_from(bytes).unwrap_or(usize::MAX);
    let rest = memory.saturating_sub(weights.saturating_mul(sizes.len()));
    let rows: usize = sizes.iter().sum();
    sizes
        .iter()
        .map(|&size| weights.saturating_add((rest as u128 * size as u128 / rows.max(1) as u128) as usize))
        .collect()
}

/// Runs rows in the sessions of these sizes, in ascending order; `run` takes the place of a session.
///
/// A batch of another size gets copies of its last row up to the next size, and their outputs are dropped: a copy is valid
/// wherever the row is, which zeros may not be. A batch above the largest size runs in several parts. Frontends need not
/// know the sizes: they measure that a batch of three takes as long as one of four.
fn run_in(
    sizes: &[usize],
    inputs: &[Tensor],
    mut run: impl FnMut(usize, &[Tensor]) -> Result<Vec<Tensor>, Error>,
) -> Result<Vec<Tensor>, Error> {
    let rows = inputs.first().map_or(0, Tensor::rows);
    let Some(&largest) = sizes.last().filter(|_| rows > 0) else { return run(0, inputs) };
    let mut parts = Vec::new();
    for start in (0..rows).step_by(largest) {
        let count = (rows - start).min(largest);
        let at = sizes.partition_point(|&size| size < count);
        let size = sizes[at];
        let filled = |input: &Tensor| {
            let part = input.slice_rows(start, count)?;
            let copies = std::iter::repeat_n(part.slice_rows(count - 1, 1)?, size - count);
            Tensor::concat_rows(&std::iter::once(part).chain(copies).collect::<Vec<_>>())
        };
        let filled = inputs.iter().map(filled).collect::<Result<Vec<_>, _>>()?;
        let outputs = run(at, &filled)?;
        if let Some(odd) = outputs.iter().find(|output| output.rows() != size) {
            return Err(Error::Run { message: format!("{size} rows given, {} returned", odd.rows()) });
        }
        let own = outputs.iter().map(|output| output.slice_rows(0, count));
        parts.push(own.collect::<Result<Vec<_>, _>>()?);
    }
    Ok(joined(&parts)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_library_error_says_how_to_get_it() {
        let error = engine("/nowhere/libonnxruntime.so".into()).err().unwrap().to_string();
        assert!(error.contains("/nowhere/libonnxruntime.so"), "{error}");
        assert!(error.contains("pip install onnxruntime") && error.contains("ORT_DYLIB_PATH"), "{error}");
    }

    #[test]
    fn batches_run_in_the_session_of_the_next_size_or_in_parts() {
        // The place of the session and the number of rows of the run, after the row itself.
        let sums = |sizes: &[usize], rows: u8| {
            let values: Vec<f32> = (0..rows).map(|row| 100.0 * f32::from(row)).collect();
            let input = Tensor::from_f32([rows.into(), 1].as_slice(), &values).unwrap();
            let outputs = run_in(sizes, &[input], |at, inputs| {
                let add = 10.0 * at as f32 + inputs[0].rows() as f32;
                let values: Vec<f32> = inputs[0].as_f32().unwrap().iter().map(|value| value + add).collect();
                Ok(vec![Tensor::from_f32(inputs[0].shape(), &values).unwrap()])
            });
            outputs.unwrap()[0].as_f32().unwrap().to_vec()
        };
        assert_eq!(sums(&[1, 4], 1), [1.0]);
        assert_eq!(sums(&[1, 4], 2), [14.0, 114.0]);
        assert_eq!(sums(&[4], 4), [4.0, 104.0, 204.0, 304.0]);
        assert_eq!(sums(&[], 3), [3.0, 103.0, 203.0], "one session takes all");
        assert_eq!(sums(&[2, 4], 5), [14.0, 114.0, 214.0, 314.0, 402.0], "in two parts");
        assert_eq!(sums(&[2, 4], 0), [0.0; 0]);
    }

    #[test]
    fn large_models_get_fewer_sizes() {
        let wanted = [1, 2, 4, 8, 16, 32, 64];
        assert_eq!(affordable(&wanted, 46 << 20), wanted);
        assert_eq!(affordable(&wanted, 700 << 20), [1, 64]);
        assert_eq!(affordable(&wanted, 500 << 20), [1, 4, 16, 64]);
        assert!(affordable(&wanted, 2 << 30).is_empty());
        assert_eq!(affordable(&[1], 1), [0; 0]);
    }

    #[test]
    fn memory_of_a_card_is_shared_by_rows() {
        let shares = memory_shares(&[1, 3], 100, 1000);
        assert_eq!(shares, [300, 700]);
        assert_eq!(memory_shares(&[1, 3], 600, 1000), [600, 600]);
    }
}
