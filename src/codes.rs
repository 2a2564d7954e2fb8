//! Finds the stable code of a failed command.
//!
//! Errors of the crates map to codes here and not in each crate, so that one file shows which errors share a code. Errors that
//! have no type of their own carry their code in a [`Coded`].

use parm_protocol::StableCode;

/// A message with its code.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct Coded {
    code: StableCode,
    message: String,
}

/// Makes an error of a message and its code.
pub fn coded(code: StableCode, message: impl Into<String>) -> anyhow::Error {
    Coded { code, message: message.into() }.into()
}

/// Returns the code of the outermost cause that has one.
pub fn of(error: &anyhow::Error) -> Option<StableCode> {
    error.chain().find_map(|cause| {
        let own = cause.downcast_ref::<Coded>().map(|coded| coded.code);
        own.or_else(|| cause.downcast_ref().and_then(parm_protocol::Error::stable_code))
            .or_else(|| cause.downcast_ref().and_then(backend))
            .or_else(|| cause.downcast_ref().and_then(frontend))
            .or_else(|| cause.downcast_ref().map(stored))
    })
}

fn backend(error: &parm_backend::Error) -> Option<StableCode> {
    use parm_backend::Error::*;
    Some(match error {
        UnknownEngine { .. } | Device { .. } => StableCode::UnknownEngine,
        RuntimeLibrary { .. } | Card { .. } => StableCode::RuntimeLibrary,
        Load { .. } | TensorType { .. } => StableCode::ModelNotLoaded,
        Times(_) => StableCode::InvalidSetting,
        Repository(error) => stored(error),
        _ => return None,
    })
}

fn frontend(error: &parm_frontend::Error) -> Option<StableCode> {
    use parm_frontend::Error::*;
    Some(match error {
        OpenAdmin { .. } => StableCode::OpenAdmin,
        AdminAddress { .. } => StableCode::AddressInUse,
        Panicked { .. } => StableCode::FrontendPanicked,
        Recording { .. } => StableCode::RecordingStopped,
        Capture { .. } => StableCode::CaptureStopped,
        Tensor(error) => return error.stable_code(),
        _ => return None,
    })
}

fn stored(error: &parm_parity_models::Error) -> StableCode {
    use parm_parity_models::Error::*;
    match error {
        NoBundle { .. } | Manifest { .. } | ManifestFormat { .. } => StableCode::InvalidBundle,
        _ => StableCode::InvalidRepository,
    }
}
