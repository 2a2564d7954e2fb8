//! Matrix products.

use crate::array::{broadcast, count};
use crate::graph::kernel::{Kernel, one};
use crate::graph::problem::within;
use crate::graph::real::zip;
use crate::graph::{Problem, Real, spec::Spec};

/// `alpha * A * B + beta * C`, with A or B transposed on request.
pub(super) fn gemm(spec: &Spec) -> Result<Kernel, Problem> {
    let (alpha, beta) = (spec.float("alpha", 1.0)?, spec.float("beta", 1.0)?);
    let (transpose_a, transpose_b) = (spec.flag("transA")?, spec.flag("transB")?);
    Ok(Box::new(move |mut inputs, _| {
        let (a, b) = (inputs.real(0)?.rank2()?, inputs.real(1)?.rank2()?);
        let a = if transpose_a { a.transpose() } else { a };
        let b = if transpose_b { b.transpose() } else { b };
        if a.dims()[1] != b.dims()[0] {
            return Err(Problem::Broadcast { left: a.dims().to_vec(), right: b.dims().to_vec() });
        }
        within(&[a.dims()[0], b.dims()[1]])?;
        let mut product = Real::R2(a.matmul(b));
        if alpha != 1.0 {
            product = product.scale(alpha);
        }
        let Some(c) = inputs.optional_real(2)? else { return one(product) };
        let c = if beta == 1.0 { c } else { c.scale(beta) };
        let shape = product.shape();
        if broadcast(&shape, &c.shape()).as_ref() != Some(&shape) {
            return Err(Problem::Broadcast { left: shape, right: c.shape() });
        }
        one(product.add(c)?)
    }))
}

/// The product over the last two dimensions; those before them broadcast.
pub(super) fn matmul() -> Result<Kernel, Problem> {
    Ok(Box::new(|mut inputs, _| one(product(inputs.real(0)?, inputs.real(1)?)?)))
}

pub(super) fn product(a: Real, b: Real) -> Result<Real, Problem> {
    let (left, right) = (a.shape(), b.shape());
    let misfit = || Problem::Broadcast { left: left.clone(), right: right.clone() };
    // A vector on the left is a row, on the right a column; the added dimension is removed from the result.
    let (rows, columns) = (left.len() > 1, right.len() > 1);
    let a = if rows { a } else { a.at_rank(2)? };
    let b = if columns { b } else { b.reshape(&[count(&right), 1])? };
    let (a_shape, b_shape) = (a.shape(), b.shape());
    let (inner, n) = (a_shape[a_shape.len() - 1], b_shape[b_shape.len() - 1]);
    if left.is_empty() || right.is_empty() || b_shape[b_shape.len() - 2] != inner {
        return Err(misfit());
    }
    let (batch_a, batch_b) = (&a_shape[..a_shape.len() - 2], &b_shape[..b_shape.len() - 2]);
    let batch = broadcast(batch_a, batch_b).ok_or_else(misfit)?;
    let m = a_shape[a_shape.len() - 2];
    within(&shape(&batch, [m, n]))?;
    let result = if batch_b.is_empty() {
        // One matrix on the right: all rows of the batch at once.
        let folded = a.reshape(&[count(batch_a) * m, inner])?;
        zip!((folded, b), (x, y) => x.matmul(y))
    } else {
        let (a, b) = (a.expand(&shape(&batch, [m, inner]))?, b.expand(&shape(&batch, [inner, n]))?);
        zip!((a, b), (x, y) => x.matmul(y))
    };
    let mut wanted = batch;
    wanted.extend(rows.then_some(m));
    wanted.extend(columns.then_some(n));
    result.reshape(&wanted)
}

fn shape(batch: &[usize], matrix: [usize; 2]) -> Vec<usize> {
    batch.iter().copied().chain(matrix).collect()
}
