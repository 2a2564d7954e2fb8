//! Values that are passed between the nodes of a graph.

use burn::tensor::Device;

use crate::array::Array;
use crate::graph::{Problem, Real};

/// A value between two nodes. Reals are on the device and carry gradients; integers and booleans are shapes, indices
/// and masks, and stay in host memory. All integers are held as 64 bits.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // most values are reals: a box would cost each of them an allocation
pub(crate) enum Value {
    Real(Real),
    Ints(Array<i64>),
    Bools(Array<bool>),
}

impl Value {
    pub(crate) fn shape(&self) -> Vec<usize> {
        match self {
            Value::Real(real) => real.shape(),
            Value::Ints(array) => array.shape().into(),
            Value::Bools(array) => array.shape().into(),
        }
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Value::Real(_) => "floats",
            Value::Ints(_) => "integers",
            Value::Bools(_) => "truth values",
        }
    }

    pub(crate) fn real(self) -> Result<Real, Problem> {
        match self {
            Value::Real(real) => Ok(real),
            other => Err(Problem::Kind { expected: "floats", actual: other.kind() }),
        }
    }

    pub(crate) fn ints(self) -> Result<Array<i64>, Problem> {
        match self {
            Value::Ints(array) => Ok(array),
            other => Err(Problem::Kind { expected: "integers", actual: other.kind() }),
        }
    }

    pub(crate) fn bools(self) -> Result<Array<bool>, Problem> {
        match self {
            Value::Bools(array) => Ok(array),
            other => Err(Problem::Kind { expected: "truth values", actual: other.kind() }),
        }
    }

    /// Copies to host memory.
    pub(crate) fn download(&self) -> Host {
        match self {
            Value::Real(real) => Host::Floats(real.download()),
            Value::Ints(array) => Host::Ints(array.clone()),
            Value::Bools(array) => Host::Bools(array.clone()),
        }
    }
}

/// A tensor in host memory, of a type that graphs can compute with.
#[derive(Clone, Debug, PartialEq)]
pub enum Host {
    /// Floats.
    Floats(Array<f32>),
    /// Integers of any width.
    Ints(Array<i64>),
    /// Booleans.
    Bools(Array<bool>),
}

impl Host {
    /// Dimensions.
    pub fn shape(&self) -> &[usize] {
        match self {
            Host::Floats(array) => array.shape(),
            Host::Ints(array) => array.shape(),
            Host::Bools(array) => array.shape(),
        }
    }

    /// The floats, if it holds floats.
    pub fn floats(&self) -> Option<&Array<f32>> {
        match self {
            Host::Floats(array) => Some(array),
            _ => None,
        }
    }

    pub(crate) fn upload(&self, device: &Device) -> Result<Value, Problem> {
        Ok(match self {
            Host::Floats(array) => Value::Real(Real::upload(array, device)?),
            Host::Ints(array) => Value::Ints(array.clone()),
            Host::Bools(array) => Value::Bools(array.clone()),
        })
    }
}

impl From<Array<f32>> for Host {
    fn from(array: Array<f32>) -> Self {
        Host::Floats(array)
    }
}
