//! Parameters: the protocol's extension point on requests, responses and tensors.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize};

use crate::bounds::Parts;

/// One parameter's value.
#[derive(Clone, Debug, PartialEq, Serialize)]
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

/// Written by hand because `untagged` would buffer every value first.
impl<'de> Deserialize<'de> for Parameter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ParameterVisitor)
    }
}

struct ParameterVisitor;

impl Visitor<'_> for ParameterVisitor {
    type Value = Parameter;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a parameter: true, false, a number or a string")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Parameter, E> {
        Ok(Parameter::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Parameter, E> {
        Ok(Parameter::Int64(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Parameter, E> {
        Ok(i64::try_from(value).map_or(Parameter::Uint64(value), Parameter::Int64))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Parameter, E> {
        if value.is_finite() { Ok(Parameter::Double(value)) } else { Err(E::custom("number out of range")) }
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Parameter, E> {
        Parts::default().text(value.len()).map_err(E::custom)?;
        Ok(Parameter::String(value.into()))
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

macro_rules! from {
    ($($value:ty => $kind:ident),*) => {$(
        impl From<$value> for Parameter {
            fn from(value: $value) -> Self {
                Parameter::$kind(value.into())
            }
        }
    )*};
}
from!(&str => String, bool => Bool, u64 => Uint64, f64 => Double);
