//! Comparisons, booleans and selection.
//!
//! Booleans live in host memory: in networks they are masks made from shapes and integer inputs. A comparison of
//! floats copies them from the device; no gradient flows through it.

use burn::tensor::{Bool, Tensor, TensorData};

use crate::array::Array;
use crate::graph::kernel::Kernel;
use crate::graph::problem::joint;
use crate::graph::real::zip;
use crate::graph::{Problem, Real, Value};

/// Compares two floats; also used for integers below 2^53.
pub(super) fn comparison(test: fn(f64, f64) -> bool) -> Result<Kernel, Problem> {
    Ok(Box::new(move |mut inputs, _| {
        let (left, right) = (numbers(inputs.value(0)?), numbers(inputs.value(1)?));
        Ok(vec![Value::Bools(combine(&left, &right, test)?)])
    }))
}

/// Combines two booleans.
pub(super) fn logic(test: fn(&bool, &bool) -> bool) -> Result<Kernel, Problem> {
    Ok(Box::new(move |mut inputs, _| {
        let (left, right) = (inputs.value(0)?.bools()?, inputs.value(1)?.bools()?);
        let shape = joint(left.shape(), right.shape())?;
        Ok(vec![Value::Bools(left.zip(&right, &shape, test))])
    }))
}

pub(super) fn not() -> Result<Kernel, Problem> {
    Ok(Box::new(|mut inputs, _| Ok(vec![Value::Bools(inputs.value(0)?.bools()?.map(|b| !b))])))
}

/// Takes from the second input where the first is true, from the third elsewhere.
pub(super) fn choose() -> Result<Kernel, Problem> {
    Ok(Box::new(|mut inputs, _| {
        let mask = inputs.value(0)?.bools()?;
        let (left, right) = (inputs.value(1)?, inputs.value(2)?);
        let shape = joint(mask.shape(), &joint(&left.shape(), &right.shape())?)?;
        let mask = mask.expand(&shape);
        let (left, right) = (left.expand(&shape)?, right.expand(&shape)?);
        Ok(vec![match (left, right) {
            (Value::Ints(a), Value::Ints(b)) => Value::Ints(pick(&mask, &a, &b)),
            (Value::Bools(a), Value::Bools(b)) => Value::Bools(pick(&mask, &a, &b)),
            (a, b) => Value::Real(masked(&mask, a.real()?, b.real()?)),
        }])
    }))
}

/// Combines equally shaped tensors: `left` where the mask is true and `right` elsewhere.
fn masked(mask: &Array<bool>, left: Real, right: Real) -> Real {
    fn upload<const D: usize>(mask: &Array<bool>, like: &Tensor<D>) -> Tensor<D, Bool> {
        let data = TensorData::new(mask.data().to_vec(), like.shape());
        Tensor::from_data(data, &like.device())
    }
    zip!((left, right), (a, b) => { let mask = upload(mask, &b); b.mask_where(mask, a) })
}

fn pick<T: Clone>(mask: &Array<bool>, left: &Array<T>, right: &Array<T>) -> Array<T> {
    let pairs = left.data().iter().zip(right.data());
    let data = mask.data().iter().zip(pairs).map(|(&yes, (a, b))| if yes { a.clone() } else { b.clone() });
    Array::new(mask.shape().into(), data.collect()).expect("all three have one shape")
}

fn numbers(value: Value) -> Array<f64> {
    match value {
        Value::Real(real) => real.download().map(|&x| f64::from(x)),
        Value::Ints(array) => array.map(|&n| n as f64),
        Value::Bools(array) => array.map(|&b| f64::from(u8::from(b))),
    }
}

fn combine(
    left: &Array<f64>,
    right: &Array<f64>,
    test: fn(f64, f64) -> bool,
) -> Result<Array<bool>, Problem> {
    let shape = joint(left.shape(), right.shape())?;
    Ok(left.zip(right, &shape, |&a, &b| test(a, b)))
}
