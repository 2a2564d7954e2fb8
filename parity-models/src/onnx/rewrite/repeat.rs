//! Repeats or cuts a weight along an axis.

use bytes::{Bytes, BytesMut};

use super::super::{Defect, Tensor};

/// `tensor` repeated `times` times along `axis`: `a b` becomes `a b a b`.
pub(super) fn repeat(tensor: &Tensor, axis: usize, times: usize) -> Result<Tensor, Defect> {
    let mut dims = tensor.dims().to_vec();
    let block = match dims[..axis].iter().product::<usize>() {
        0 => 0,
        outer => tensor.data().len() / outer,
    };
    let overflow = || Defect::TensorOverflow { tensor: tensor.name().into(), dims: tensor.dims().to_vec() };
    dims[axis] = dims[axis].checked_mul(times).ok_or_else(overflow)?;
    let data = tensor.data();
    let repeated: Bytes = match block {
        0 => Bytes::new(),
        block => {
            let mut repeated = BytesMut::with_capacity(data.len() * times);
            for run in data.chunks_exact(block) {
                (0..times).for_each(|_| repeated.extend_from_slice(run));
            }
            repeated.freeze()
        }
    };
    Tensor::new(tensor.name(), tensor.datatype(), &dims, repeated)
}

/// The first `count` entries of `tensor` along `axis`.
pub(super) fn first(tensor: &Tensor, axis: usize, count: usize) -> Result<Tensor, Defect> {
    tensor.pick(axis, &(0..count.min(tensor.dims()[axis])).collect::<Vec<usize>>())
}

/// `tensor` multiplied by `factor`.
pub(super) fn scale(tensor: &Tensor, factor: f32) -> Result<Tensor, Defect> {
    let values: Vec<f32> = tensor.to_f32()?.iter().map(|value| value * factor).collect();
    tensor.with_f32(&values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensor_is_repeated_along_any_axis() {
        let tensor = Tensor::from_f32("w", &[2, 3], &[1., 2., 3., 4., 5., 6.]).unwrap();
        let rows = repeat(&tensor, 0, 2).unwrap();
        assert_eq!(rows.dims(), [4, 3]);
        assert_eq!(rows.to_f32().unwrap(), [1., 2., 3., 4., 5., 6., 1., 2., 3., 4., 5., 6.]);
        let columns = repeat(&tensor, 1, 2).unwrap();
        assert_eq!(columns.dims(), [2, 6]);
        assert_eq!(columns.to_f32().unwrap(), [1., 2., 3., 1., 2., 3., 4., 5., 6., 4., 5., 6.]);
    }

    #[test]
    fn cut_keeps_the_first_entries_along_any_axis() {
        let tensor = Tensor::from_f32("w", &[2, 3], &[1., 2., 3., 4., 5., 6.]).unwrap();
        assert_eq!(first(&tensor, 0, 1).unwrap().to_f32().unwrap(), [1., 2., 3.]);
        let columns = first(&tensor, 1, 2).unwrap();
        assert_eq!(columns.dims(), [2, 2]);
        assert_eq!(columns.to_f32().unwrap(), [1., 2., 4., 5.]);
        assert_eq!(first(&tensor, 1, 9).unwrap(), tensor);
    }

    #[test]
    fn repeated_empty_tensor_is_empty() {
        let empty = Tensor::from_f32("w", &[0, 3], &[]).unwrap();
        assert_eq!(repeat(&empty, 1, 4).unwrap().dims(), [0, 12]);
        assert_eq!(first(&empty, 1, 2).unwrap().dims(), [0, 2]);
    }
}
