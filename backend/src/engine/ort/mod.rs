//! ONNX Runtime, on CPU or CUDA: two to five times faster than tract, opened at run time.
//!
//! A process can open only one library. The first that is requested decides, and a different path afterwards is an
//! error.

mod convert;
mod gpu;
mod library;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ort::environment::Environment;
use ort::logging::LogLevel;
use ort::session::builder::GraphOptimizationLevel;
use ort::session::{Session, SessionInputValue};
use ort::value::Outlet;
use parking_lot::Mutex;
use parm_protocol::Tensor;

pub(super) use gpu::{engine_on, kit};
pub(super) use library::{found, library};

use gpu::Gpu;

use super::{Chosen, Declared, Engine, Model, NOT_A_TENSOR, Options, Signature, guarded};
use crate::Error;

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
    session: Session,
    signature: Signature,
}

/// The opened library and its path. Never dropped: sessions need it, and it cannot be opened twice.
static ENVIRONMENT: Mutex<Option<(PathBuf, Environment)>> = Mutex::new(None);

impl Engine for Ort {
    fn platform(&self) -> &'static str {
        "onnx_onnxruntime"
    }

    fn load(&self, path: &Path, options: &Options) -> Result<Box<dyn Model>, Error> {
        let session = guarded(|| session(self, path, options))?;
        let declare = |outlets: &[Outlet]| -> Result<Vec<Declared>, Error> {
            outlets.iter().map(|outlet| declared(path, outlet)).collect()
        };
        let (inputs, outputs) = (declare(session.inputs())?, declare(session.outputs())?);
        let signature = Signature { inputs, outputs };
        Ok(Box::new(OrtModel { session, signature }))
    }

    fn references(&self, _: &Options) -> Vec<(&'static str, Box<dyn Engine>)> {
        let plain = Self { environment: self.environment.clone(), optimises: false, gpu: self.gpu };
        vec![("ONNX Runtime without graph optimisation", Box::new(plain))]
    }
}

impl Model for OrtModel {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        let values =
            inputs.iter().map(convert::to_value).collect::<Result<Vec<SessionInputValue<'_>>, _>>()?;
        let outputs = self.session.run(values.as_slice()).map_err(failed)?;
        // Read by name in declared order: the session's order is not guaranteed.
        self.signature
            .outputs
            .iter()
            .map(|declared| {
                let missing = || Error::Run { message: format!("output '{}' is missing", declared.name) };
                convert::from_value(outputs.get(&declared.name).ok_or_else(missing)?, declared.datatype)
            })
            .collect()
    }
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

fn session(engine: &Ort, path: &Path, options: &Options) -> Result<Session, Error> {
    let Some(gpu) = engine.gpu else { return session_on(engine, None, path, options) };
    match session_on(engine, Some(gpu), path, options) {
        Err(error) if gpu.or_cpu => {
            tracing::warn!(%error, device = gpu.number, "the model runs on the CPU: the card cannot be used");
            session_on(engine, None, path, options)
        }
        outcome => outcome,
    }
}

fn session_on(
    Ort { environment, optimises, .. }: &Ort,
    gpu: Option<Gpu>,
    path: &Path,
    options: &Options,
) -> Result<Session, Error> {
    let refused = |message: String| Error::Load { path: path.into(), message };
    let mut builder = Session::builder(environment).map_err(|error| refused(error.to_string()))?;
    builder =
        builder.with_intra_threads(options.threads.get()).map_err(|error| refused(error.to_string()))?;
    if !optimises {
        builder = builder
            .with_optimization_level(GraphOptimizationLevel::Disable)
            .map_err(|error| refused(error.to_string()))?;
    }
    // Threads that spin between runs would take cores from other instances on the machine.
    builder = builder.with_intra_op_spinning(false).map_err(|error| refused(error.to_string()))?;
    if let Some(gpu) = gpu {
        let providers = [gpu.provider()];
        builder = builder.with_execution_providers(providers).map_err(|error| refused(error.to_string()))?;
    }
    builder.commit_from_file(path).map_err(|error| refused(error.to_string()))
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
    let datatype = outlet.dtype().tensor_type().and_then(convert::datatype).ok_or_else(unknown)?;
    let shape = outlet.dtype().tensor_shape().ok_or_else(unknown)?;
    Ok(Declared { name: outlet.name().into(), datatype, shape: shape.iter().copied().collect() })
}

fn failed(error: ort::Error) -> Error {
    Error::Run { message: error.to_string() }
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
}
