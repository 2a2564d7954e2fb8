//! What can go wrong between a model file and its predictions.

use std::path::PathBuf;
use std::time::Duration;

/// An error of an engine, an instance or the worker.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Error {
    #[error("unknown engine '{name}': known are {known:?}")]
    UnknownEngine { name: String, known: Vec<&'static str> },
    #[error(
        "cannot open ONNX Runtime at '{}': {message}. Get it with `pip install onnxruntime` (`onnxruntime-gpu` for \
         CUDA), then set `onnxruntime` in the configuration or ORT_DYLIB_PATH to the full path of the wheel's \
         onnxruntime/capi/libonnxruntime.so.*", path.display()
    )]
    RuntimeLibrary { path: PathBuf, message: String },
    #[error("engine '{engine}' has no device '{device}': use 'cpu'{hint}")]
    Device { engine: &'static str, device: String, hint: &'static str },
    #[error("cannot load '{}': {message}", path.display())]
    Load { path: PathBuf, message: String },
    #[error("cannot load '{}': tensor '{tensor}' is {found}, which no protocol datatype stands for", path.display())]
    TensorType { path: PathBuf, tensor: String, found: String },
    #[error("the model failed on this input: {message}")]
    Run { message: String },
    #[error(
        "the engine panicked: {message}. The instance goes on; try engine 'ort', and please report the model"
    )]
    Panicked { message: String },
    #[error(
        "input '{name}' of warm-up needs {elements} elements, more than {limit}: set backend.warm_up_runs to 0"
    )]
    WarmUpTooLarge { name: String, elements: usize, limit: usize },
    #[error("emulated model '{}': {message}", path.display())]
    Emulated { path: PathBuf, message: String },
    #[error("{peer}: {error}")]
    Upstream { peer: String, error: parm_protocol::Error },
    #[error("this process serves the models of {url}: leave out {field}, or start another worker for them")]
    NotBesideUpstream { url: String, field: &'static str },
    #[error(transparent)]
    Times(#[from] parm_workload::Error),
    #[error("invalid fault plan: {message}")]
    Plan { message: String },
    #[error("fault injection is off: start the worker with --faults")]
    FaultsDisabled,
    #[error("cannot register metrics: {message}")]
    Metrics { message: String },
    #[error("cannot start a thread: {message}")]
    Thread { message: String },
    #[error("work was still under way after {waited:?}: allow more time for it")]
    DrainTimeout { waited: Duration },
    #[error(transparent)]
    Repository(#[from] parm_parity_models::Error),
}

impl Error {
    /// Whether the configuration is at fault, so that trying again as it is cannot help.
    pub fn is_configuration(&self) -> bool {
        use Error::*;
        matches!(
            self,
            UnknownEngine { .. }
                | RuntimeLibrary { .. }
                | Device { .. }
                | Times(_)
                | NotBesideUpstream { .. }
        )
    }
}

impl From<Error> for parm_protocol::Error {
    fn from(error: Error) -> Self {
        use parm_parity_models::Error as Stored;
        match error {
            Error::Repository(Stored::UnknownModel { name, .. } | Stored::NoVersion { name }) => {
                parm_protocol::Error::UnknownModel { name }
            }
            Error::Repository(Stored::ModelName { .. }) | Error::Times(_) | Error::Plan { .. } => {
                parm_protocol::Error::Malformed { message: error.to_string() }
            }
            Error::Upstream { error, .. } => error,
            Error::FaultsDisabled => parm_protocol::Error::Unimplemented { what: "fault injection".into() },
            error => parm_protocol::Error::Internal { message: error.to_string() },
        }
    }
}
