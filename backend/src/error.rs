//! The errors of engines, instances and the worker.

use std::path::PathBuf;
use std::time::Duration;

/// A failure of an engine, an instance or the worker.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages explain the fields
pub enum Error {
    #[error("unknown engine '{name}': use one of {known:?}")]
    UnknownEngine { name: String, known: Vec<&'static str> },
    #[error(
        "cannot open ONNX Runtime at '{}': {message}: get it with `pip install onnxruntime` (`onnxruntime-gpu` for \
         CUDA), then set `onnxruntime` in the configuration or ORT_DYLIB_PATH to the full path of the wheel's \
         onnxruntime/capi/libonnxruntime.so.*", path.display()
    )]
    RuntimeLibrary { path: PathBuf, message: String },
    #[error("unknown device '{device}': use {hint}")]
    Device { device: String, hint: &'static str },
    #[error("cannot use cuda:{number}: {reason}; for the CPU in its place, set 'cuda:{number},cpu'")]
    Card { number: usize, reason: String },
    #[error("cannot load '{}': {message}", path.display())]
    Load { path: PathBuf, message: String },
    #[error("wrong answers from '{}': compared with {name}, {difference}: use another engine, and report the model", path.display())]
    Untrue { path: PathBuf, name: &'static str, difference: String },
    #[error("cannot load '{}': tensor '{tensor}' has type {found}, which the protocol does not support", path.display())]
    TensorType { path: PathBuf, tensor: String, found: String },
    #[error("the model failed on this input: {message}")]
    Run { message: String },
    #[error("the model does not take this input: {message}")]
    Input { message: String },
    #[error(
        "the engine panicked: {message}: the instance continues: check that the inputs are in range, or try engine 'ort'"
    )]
    Panicked { message: String },
    #[error(
        "warm-up failed: {message}: try another engine, or set backend.warm_up_runs to 0 if it does not run on zeros"
    )]
    WarmUp { message: String },
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
    #[error("drain timed out after {waited:?}: requests are still running: allow more time")]
    DrainTimeout { waited: Duration },
    #[error(transparent)]
    Repository(#[from] parm_parity_models::Error),
}

impl Error {
    /// Whether the configuration is the cause, so that a retry without a change cannot succeed.
    pub fn is_configuration(&self) -> bool {
        use Error::*;
        matches!(self, UnknownEngine { .. } | RuntimeLibrary { .. } | Device { .. } | Card { .. } | Times(_))
    }
}

/// Of a tensor that an engine or a model made.
impl From<parm_protocol::Error> for Error {
    fn from(error: parm_protocol::Error) -> Self {
        Error::Run { message: error.to_string() }
    }
}

impl From<Error> for parm_protocol::Error {
    fn from(error: Error) -> Self {
        use parm_parity_models::Error as Stored;
        match error {
            Error::Repository(Stored::UnknownModel { name, .. } | Stored::NoVersion { name }) => {
                parm_protocol::Error::UnknownModel { name }
            }
            Error::Repository(Stored::ModelName { .. })
            | Error::Times(_)
            | Error::Plan { .. }
            | Error::Input { .. } => parm_protocol::Error::Malformed { message: error.to_string() },
            Error::FaultsDisabled => parm_protocol::Error::Unimplemented { what: "fault injection".into() },
            error => parm_protocol::Error::Internal { message: error.to_string() },
        }
    }
}
