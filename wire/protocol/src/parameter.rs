//! Parameters: the protocol's extension point on requests, responses and tensors.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// One parameter's value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[allow(missing_docs)] // the names say it
pub enum Parameter {
    Bool(bool),
    Int64(i64),
    Uint64(u64),
    Double(f64),
    String(String),
}

/// Parameters by name, in a fixed order so that encodings are deterministic.
pub type Parameters = BTreeMap<String, Parameter>;

impl Parameter {
    /// The value as an unsigned number, if it is one (a numeric string counts, as some clients send those).
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Parameter::Int64(value) => u64::try_from(*value).ok(),
            Parameter::Uint64(value) => Some(*value),
            Parameter::String(text) => text.parse().ok(),
            Parameter::Bool(_) | Parameter::Double(_) => None,
        }
    }

    /// The value as text, if it is text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Parameter::String(text) => Some(text),
            _ => None,
        }
    }
}

/// The value as a client wrote it in JSON.
impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Parameter::Bool(value) => write!(f, "{value}"),
            Parameter::Int64(value) => write!(f, "{value}"),
            Parameter::Uint64(value) => write!(f, "{value}"),
            Parameter::Double(value) => write!(f, "{value}"),
            Parameter::String(text) => write!(f, "{text:?}"),
        }
    }
}

impl From<&str> for Parameter {
    fn from(text: &str) -> Self {
        Parameter::String(text.into())
    }
}

impl From<bool> for Parameter {
    fn from(value: bool) -> Self {
        Parameter::Bool(value)
    }
}

impl From<u64> for Parameter {
    fn from(value: u64) -> Self {
        Parameter::Uint64(value)
    }
}

impl From<f64> for Parameter {
    fn from(value: f64) -> Self {
        Parameter::Double(value)
    }
}
