//! Stable codes of the errors that an operator can meet.
//!
//! A code ends the message of a failed command, is the field `code` of a log line, and the header `parm-error-code` of a
//! response. This table has no texts: docs/errors.md explains each code, and `parm doctor CODE` prints that. A code keeps its
//! meaning across versions, so a code that falls out of use is not given to another error.

use std::fmt;

use crate::{Code, Error};

macro_rules! codes {
    ($($name:ident $text:literal,)+) => {
        /// The code of an error, written `PARM-0007`. docs/errors.md explains each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs)] // the page says it
        pub enum StableCode {
            $($name,)+
        }

        impl StableCode {
            /// All codes in their order.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The code as text, such as `PARM-0007`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }
        }
    };
}

codes! {
    // Start of a process.
    InvalidSetting "PARM-0001",
    ConfigurationMissing "PARM-0002",
    AddressInUse "PARM-0003",
    NoModels "PARM-0004",
    UnknownEngine "PARM-0005",
    RuntimeLibrary "PARM-0006",
    ModelNotLoaded "PARM-0007",
    InvalidRepository "PARM-0008",
    InvalidBundle "PARM-0009",
    KeyFile "PARM-0010",
    TlsFiles "PARM-0011",
    CertificateExpired "PARM-0012",
    OpenAdmin "PARM-0013",
    RecordingStopped "PARM-0015",
    CaptureStopped "PARM-0016",
    TrainingNotBuilt "PARM-0017",
    // Operation.
    FrontendPanicked "PARM-0018",
    DrainTimeout "PARM-0019",
    Unreachable "PARM-0020",
    InstanceRejected "PARM-0021",
    InstanceEjected "PARM-0022",
    InstanceSuspected "PARM-0023",
    NameUnresolved "PARM-0024",
    WorkersFile "PARM-0025",
    ServiceNotFollowed "PARM-0026",
    TlsHandshake "PARM-0027",
    ConnectionLimit "PARM-0028",
    NotCoded "PARM-0029",
    // Requests.
    UnknownModel "PARM-0031",
    Overloaded "PARM-0032",
    DeadlineExpired "PARM-0033",
    NoInstance "PARM-0034",
    Unauthenticated "PARM-0035",
    PermissionDenied "PARM-0036",
    RateLimited "PARM-0037",
    TooLarge "PARM-0038",
    Internal "PARM-0039",
}

impl StableCode {
    /// The header of a response, or gRPC metadata, that has the code. It is not in the message, which clients compare.
    pub const HEADER: &str = "parm-error-code";
}

impl fmt::Display for StableCode {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.name())
    }
}

impl Error {
    /// The error's stable code. Invalid requests have none: their message names the field, and an operator cannot act.
    pub fn stable_code(&self) -> Option<StableCode> {
        Some(match self {
            Self::Listen { .. } => StableCode::AddressInUse,
            Self::KeyFile { .. } => StableCode::KeyFile,
            Self::Tls { .. } => StableCode::TlsFiles,
            Self::Transport { .. } | Self::Unsent { .. } => StableCode::Unreachable,
            Self::Attempts { last } if matches!(**last, Self::Transport { .. } | Self::Unsent { .. }) => {
                StableCode::Unreachable
            }
            _ => match self.code() {
                Code::NotFound => StableCode::UnknownModel,
                Code::TooLarge => StableCode::TooLarge,
                Code::Overloaded => StableCode::Overloaded,
                Code::DeadlineExceeded => StableCode::DeadlineExpired,
                Code::Unavailable => StableCode::NoInstance,
                Code::Unauthenticated => StableCode::Unauthenticated,
                Code::PermissionDenied => StableCode::PermissionDenied,
                Code::TooManyRequests => StableCode::RateLimited,
                Code::Internal => StableCode::Internal,
                Code::InvalidArgument | Code::Unimplemented => return None,
            },
        })
    }
}
