//! A tensor of reals on a device, of a rank known only at run time.
//!
//! Burn has the rank in the type; a graph from a file has it in its data. This enum over the usual ranks connects the
//! two, with the operations that change a rank. All operations are differentiable. Callers check shapes, because Burn
//! panics on a shape that does not fit.

use burn::tensor::{Gradients, Int, Shape, Tensor, TensorData};

use crate::array::{Array, broadcast, count};
use crate::graph::Problem;
use crate::graph::problem::{joint, within};

/// Highest rank: video batches have five, attention over windows six.
pub(crate) const MAX_RANK: usize = 6;

/// A tensor of 32-bit floats. A scalar is held as one element of rank one.
#[derive(Clone, Debug)]
pub(crate) enum Real {
    R0(Tensor<1>),
    R1(Tensor<1>),
    R2(Tensor<2>),
    R3(Tensor<3>),
    R4(Tensor<4>),
    R5(Tensor<5>),
    R6(Tensor<6>),
}

/// Runs `$body` with `$tensor` bound to the tensor inside, whatever its rank.
macro_rules! with {
    ($real:expr, $tensor:ident => $body:expr) => {
        match $real {
            $crate::graph::Real::R0($tensor) => $body,
            $crate::graph::Real::R1($tensor) => $body,
            $crate::graph::Real::R2($tensor) => $body,
            $crate::graph::Real::R3($tensor) => $body,
            $crate::graph::Real::R4($tensor) => $body,
            $crate::graph::Real::R5($tensor) => $body,
            $crate::graph::Real::R6($tensor) => $body,
        }
    };
}

/// Like `with!`, for a body that keeps the rank: the result is a `Real` again.
macro_rules! map {
    ($real:expr, $tensor:ident => $body:expr) => {
        match $real {
            $crate::graph::Real::R0($tensor) => $crate::graph::Real::R0($body),
            $crate::graph::Real::R1($tensor) => $crate::graph::Real::R1($body),
            $crate::graph::Real::R2($tensor) => $crate::graph::Real::R2($body),
            $crate::graph::Real::R3($tensor) => $crate::graph::Real::R3($body),
            $crate::graph::Real::R4($tensor) => $crate::graph::Real::R4($body),
            $crate::graph::Real::R5($tensor) => $crate::graph::Real::R5($body),
            $crate::graph::Real::R6($tensor) => $crate::graph::Real::R6($body),
        }
    };
}

/// Combines two tensors of the same rank; the result is a `Real` of that rank.
macro_rules! zip {
    ($pair:expr, ($a:ident, $b:ident) => $body:expr) => {
        match $pair {
            ($crate::graph::Real::R0($a), $crate::graph::Real::R0($b)) => $crate::graph::Real::R0($body),
            ($crate::graph::Real::R1($a), $crate::graph::Real::R1($b)) => $crate::graph::Real::R1($body),
            ($crate::graph::Real::R2($a), $crate::graph::Real::R2($b)) => $crate::graph::Real::R2($body),
            ($crate::graph::Real::R3($a), $crate::graph::Real::R3($b)) => $crate::graph::Real::R3($body),
            ($crate::graph::Real::R4($a), $crate::graph::Real::R4($b)) => $crate::graph::Real::R4($body),
            ($crate::graph::Real::R5($a), $crate::graph::Real::R5($b)) => $crate::graph::Real::R5($body),
            ($crate::graph::Real::R6($a), $crate::graph::Real::R6($b)) => $crate::graph::Real::R6($body),
            _ => unreachable!("both sides were brought to one rank"),
        }
    };
}

pub(crate) use {map, with, zip};

/// The accessors that demand one rank, for operators that exist at one rank only.
macro_rules! ranked {
    ($($name:ident $variant:ident $rank:literal),*) => {
        $(pub(crate) fn $name(self) -> Result<Tensor<$rank>, Problem> {
            match self {
                Real::$variant(tensor) => Ok(tensor),
                other => Err(Problem::Rank { expected: $rank, shape: other.shape() }),
            }
        })*
    };
}

impl Real {
    ranked!(rank1 R1 1, rank2 R2 2, rank3 R3 3, rank4 R4 4, rank5 R5 5);

    /// Copies an array to `device`.
    pub(crate) fn upload(array: &Array<f32>, device: &burn::tensor::Device) -> Result<Self, Problem> {
        let data = TensorData::new(array.data().to_vec(), [array.data().len()]);
        Real::R1(Tensor::from_data(data, device)).reshape(array.shape())
    }

    /// A placeholder for a value that is being changed.
    pub(crate) fn empty(device: &burn::tensor::Device) -> Self {
        Real::R1(Tensor::zeros([0], device))
    }

    /// The elements as a vector.
    pub(crate) fn flat(self) -> Tensor<1> {
        let count = self.count();
        match self {
            Real::R0(tensor) | Real::R1(tensor) => tensor,
            other => with!(other, tensor => tensor.reshape([count])),
        }
    }

    /// Copies the elements to host memory.
    pub(crate) fn download(&self) -> Array<f32> {
        let data = with!(self, tensor => tensor.to_data_as::<f32>());
        let data = data.try_into_vec::<f32>().expect("the data was converted to this type");
        Array::new(self.shape(), data).expect("a tensor has as many elements as its shape says")
    }

    pub(crate) fn rank(&self) -> usize {
        match self {
            Real::R0(_) => 0,
            other => with!(other, tensor => tensor.rank()),
        }
    }

    pub(crate) fn shape(&self) -> Vec<usize> {
        match self {
            Real::R0(_) => Vec::new(),
            other => with!(other, tensor => tensor.dims().to_vec()),
        }
    }

    pub(crate) fn count(&self) -> usize {
        count(&self.shape())
    }

    /// The same elements with other dimensions.
    pub(crate) fn reshape(self, shape: &[usize]) -> Result<Self, Problem> {
        if self.count() != count(shape) {
            return Err(Problem::Reshape { from: self.shape(), to: shape.into() });
        }
        if self.shape() == shape {
            return Ok(self);
        }
        with!(self, tensor => to_rank(tensor, shape))
    }

    /// Adds leading dimensions of size one.
    pub(crate) fn at_rank(self, rank: usize) -> Result<Self, Problem> {
        let mut shape = vec![1; rank.saturating_sub(self.rank())];
        shape.extend(self.shape());
        self.reshape(&shape)
    }

    /// Repeats dimensions of size one up to `shape`.
    pub(crate) fn expand(self, shape: &[usize]) -> Result<Self, Problem> {
        let own = self.shape();
        if broadcast(&own, shape).as_deref() != Some(shape) {
            return Err(Problem::Broadcast { left: own, right: shape.into() });
        }
        within(shape)?;
        if own == shape {
            return Ok(self);
        }
        Ok(map!(self.at_rank(shape.len())?, tensor => tensor.expand(Shape::from(shape.to_vec()))))
    }

    /// Brings two tensors to one rank, so that Burn can combine them element by element.
    pub(crate) fn align(self, other: Self) -> Result<(Self, Self), Problem> {
        let rank = joint(&self.shape(), &other.shape())?.len();
        Ok((self.at_rank(rank)?, other.at_rank(rank)?))
    }

    /// Reorders the dimensions: dimension `i` of the result is dimension `axes[i]` of this tensor.
    pub(crate) fn permute(self, axes: &[usize]) -> Self {
        fn permuted<const D: usize>(tensor: Tensor<D>, axes: &[usize]) -> Tensor<D> {
            tensor.permute::<isize>(std::array::from_fn(|axis| axes[axis] as isize))
        }
        match self {
            Real::R0(tensor) => Real::R0(tensor),
            other => map!(other, tensor => permuted(tensor, axes)),
        }
    }

    /// Elements `start..end` along `axis`.
    pub(crate) fn narrow(self, axis: usize, start: usize, end: usize) -> Self {
        if start == 0 && self.shape()[axis] == end {
            return self;
        }
        map!(self, tensor => tensor.narrow(axis, start, end - start))
    }

    /// Selects elements along `axis` in this order; repeats are allowed.
    pub(crate) fn select(self, axis: usize, indices: &[usize]) -> Self {
        let data: Vec<i64> = indices.iter().map(|&index| index as i64).collect();
        map!(self, tensor => {
            let data = TensorData::new(data, [indices.len()]);
            let indices = Tensor::<1, Int>::from_data(data, &tensor.device());
            tensor.select(axis, indices)
        })
    }

    /// Puts tensors of one rank one after the other along `axis`.
    pub(crate) fn concat(parts: Vec<Self>, axis: usize) -> Result<Self, Problem> {
        let Some(first) = parts.first() else { return Err(Problem::MissingInput { at: 0 }) };
        let shape = first.shape();
        for part in &parts {
            let own = part.shape();
            let fits = own.len() == shape.len()
                && own.iter().zip(&shape).enumerate().all(|(at, (a, b))| at == axis || a == b);
            if !fits || axis >= own.len() {
                return Err(Problem::Broadcast { left: shape, right: own });
            }
        }
        macro_rules! gather {
            ($variant:ident) => {
                Real::$variant(Tensor::cat(
                    parts
                        .into_iter()
                        .map(|part| match part {
                            Real::$variant(tensor) => tensor,
                            _ => unreachable!("all parts have one rank"),
                        })
                        .collect(),
                    axis,
                ))
            };
        }
        Ok(match shape.len() {
            1 => gather!(R1),
            2 => gather!(R2),
            3 => gather!(R3),
            4 => gather!(R4),
            5 => gather!(R5),
            _ => gather!(R6),
        })
    }

    /// Sum over `axes`, which stay as dimensions of size one.
    pub(crate) fn sum(self, axes: &[usize]) -> Self {
        map!(self, tensor => tensor.sum_dims(axes))
    }

    /// Mean over `axes`, which stay as dimensions of size one.
    pub(crate) fn mean(self, axes: &[usize]) -> Self {
        map!(self, tensor => tensor.mean_dims(axes))
    }

    /// The result of arithmetic with another tensor under broadcasting.
    pub(crate) fn add(self, other: Self) -> Result<Self, Problem> {
        Ok(zip!(self.align(other)?, (a, b) => a.add(b)))
    }

    pub(crate) fn sub(self, other: Self) -> Result<Self, Problem> {
        Ok(zip!(self.align(other)?, (a, b) => a.sub(b)))
    }

    pub(crate) fn mul(self, other: Self) -> Result<Self, Problem> {
        Ok(zip!(self.align(other)?, (a, b) => a.mul(b)))
    }

    pub(crate) fn div(self, other: Self) -> Result<Self, Problem> {
        Ok(zip!(self.align(other)?, (a, b) => a.div(b)))
    }

    /// The same tensor as a leaf that gradients are computed for.
    pub(crate) fn tracked(self) -> Self {
        map!(self, tensor => tensor.autodiff().require_grad())
    }

    /// The same tensor without a computation graph.
    pub(crate) fn untracked(self) -> Self {
        map!(self, tensor => tensor.without_autodiff())
    }

    /// Differentiates a scalar; `None` if it depends on no leaf.
    pub(crate) fn backward(&self) -> Option<Gradients> {
        with!(self, tensor => tensor.is_tracked().then(|| tensor.backward()))
    }

    /// This leaf's gradient.
    pub(crate) fn gradient(&self, gradients: &Gradients) -> Option<Self> {
        Some(map!(self, tensor => tensor.grad(gradients)?))
    }

    /// Every element times `factor`.
    pub(crate) fn scale(self, factor: f32) -> Self {
        map!(self, tensor => tensor.mul_scalar(factor))
    }
}

fn to_rank<const D: usize>(tensor: Tensor<D>, shape: &[usize]) -> Result<Real, Problem> {
    Ok(match *shape {
        [] => Real::R0(tensor.reshape([1])),
        [a] => Real::R1(shaped(tensor, [a])),
        [a, b] => Real::R2(shaped(tensor, [a, b])),
        [a, b, c] => Real::R3(shaped(tensor, [a, b, c])),
        [a, b, c, d] => Real::R4(shaped(tensor, [a, b, c, d])),
        [a, b, c, d, e] => Real::R5(shaped(tensor, [a, b, c, d, e])),
        [a, b, c, d, e, f] => Real::R6(shaped(tensor, [a, b, c, d, e, f])),
        _ => return Err(Problem::TooManyDimensions { shape: shape.into(), limit: MAX_RANK }),
    })
}

/// Burn reads a size of 0 as the tensor's own. A tensor without elements is made anew: no gradient is lost.
fn shaped<const D: usize, const E: usize>(tensor: Tensor<D>, shape: [usize; E]) -> Tensor<E> {
    if shape.contains(&0) { Tensor::zeros(shape, &tensor.device()) } else { tensor.reshape(shape) }
}
