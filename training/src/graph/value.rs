//! Values that are passed between the nodes of a graph.

use burn::tensor::Device;

use crate::array::{Array, count};
use crate::graph::problem::within;
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

/// Applies one method of `Array` to either type of host tensor, and an expression to the device tensor.
macro_rules! each {
    ($value:expr, $real:ident => $device:expr, $array:ident => $host:expr) => {
        match $value {
            Value::Real($real) => Value::Real($device),
            Value::Ints($array) => Value::Ints($host),
            Value::Bools($array) => Value::Bools($host),
        }
    };
}

impl Value {
    /// The same elements with other dimensions.
    pub(crate) fn reshape(self, shape: &[usize]) -> Result<Self, Problem> {
        let from = self.shape();
        if count(&from) != count(shape) {
            return Err(Problem::Reshape { from, to: shape.into() });
        }
        let fits = "the number of elements was compared";
        Ok(each!(self, real => real.reshape(shape)?, array => array.reshape(shape.into()).expect(fits)))
    }

    /// Reorders the dimensions: dimension `i` of the result is dimension `axes[i]` of this value.
    pub(crate) fn permute(self, axes: &[usize]) -> Self {
        each!(self, real => real.permute(axes), array => permuted(&array, axes))
    }

    /// Repeats dimensions of size one, and adds leading ones, up to `shape`.
    pub(crate) fn expand(self, shape: &[usize]) -> Result<Self, Problem> {
        let own = self.shape();
        if crate::array::broadcast(&own, shape).as_deref() != Some(shape) {
            return Err(Problem::Broadcast { left: own, right: shape.into() });
        }
        within(shape)?;
        Ok(each!(self, real => real.expand(shape)?, array => array.expand(shape)))
    }

    /// The given elements along `axis`, in the given order.
    pub(crate) fn select(self, axis: usize, indices: &[usize]) -> Self {
        let run = indices.windows(2).all(|pair| pair[1] == pair[0] + 1);
        each!(
            self,
            real => match indices {
                [first, .., last] if run => real.narrow(axis, *first, last + 1),
                [only] => real.narrow(axis, *only, only + 1),
                _ => real.select(axis, indices),
            },
            array => selected(&array, axis, indices)
        )
    }

    /// Joins values of one type along `axis`.
    pub(crate) fn concat(parts: Vec<Self>, axis: usize) -> Result<Self, Problem> {
        Ok(match parts.first() {
            None => return Err(Problem::MissingInput { at: 0 }),
            Some(Value::Real(_)) => {
                let parts = parts.into_iter().map(Value::real).collect::<Result<_, _>>()?;
                Value::Real(Real::concat(parts, axis)?)
            }
            Some(Value::Ints(_)) => {
                let parts = parts.into_iter().map(Value::ints).collect::<Result<_, _>>()?;
                Value::Ints(joined(parts, axis)?)
            }
            Some(Value::Bools(_)) => {
                let parts = parts.into_iter().map(Value::bools).collect::<Result<_, _>>()?;
                Value::Bools(joined(parts, axis)?)
            }
        })
    }
}

fn permuted<T: Clone>(array: &Array<T>, axes: &[usize]) -> Array<T> {
    let shape: Vec<usize> = axes.iter().map(|&axis| array.shape()[axis]).collect();
    array.rearrange(&shape, |at, from| axes.iter().zip(at).for_each(|(&axis, &index)| from[axis] = index))
}

fn selected<T: Clone>(array: &Array<T>, axis: usize, indices: &[usize]) -> Array<T> {
    let mut shape = array.shape().to_vec();
    shape[axis] = indices.len();
    array.rearrange(&shape, |at, from| {
        from.copy_from_slice(at);
        from[axis] = indices[at[axis]];
    })
}

fn joined<T: Clone>(parts: Vec<Array<T>>, axis: usize) -> Result<Array<T>, Problem> {
    let mut shape = parts[0].shape().to_vec();
    for part in &parts[1..] {
        let own = part.shape();
        let fits = own.len() == shape.len()
            && own.iter().zip(&shape).enumerate().all(|(at, (a, b))| at == axis || a == b);
        if !fits {
            return Err(Problem::Broadcast { left: shape, right: own.into() });
        }
    }
    shape[axis] = parts.iter().map(|part| part.shape()[axis]).sum();
    // For each row before the axis, one run of elements of each part.
    let outer = count(&shape[..axis]);
    let mut data = Vec::with_capacity(count(&shape));
    for row in 0..outer {
        for part in &parts {
            let run = part.data().len() / outer;
            data.extend_from_slice(&part.data()[row * run..(row + 1) * run]);
        }
    }
    Array::new(shape.clone(), data).ok_or(Problem::Reshape { from: shape.clone(), to: shape })
}
