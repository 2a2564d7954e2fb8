//! Reductions over axes.

use crate::array::{Array, count};
use crate::graph::kernel::{Inputs, Kernel, axes, axis};
use crate::graph::problem::filled;
use crate::graph::real::map;
use crate::graph::{Problem, Real, Value, spec::Spec};

/// The axes to reduce, and whether they remain with size one.
struct Over {
    /// From the attribute; newer operator sets use an input instead.
    axes: Option<Vec<i64>>,
    keep: bool,
    /// An empty list means no axes instead of all.
    none_is_identity: bool,
}

impl Over {
    fn read(spec: &Spec) -> Result<Self, Problem> {
        let keep = spec.int("keepdims", 1)? != 0;
        Ok(Self { axes: spec.ints("axes")?, keep, none_is_identity: spec.flag("noop_with_empty_axes")? })
    }

    /// The axes for an input of `rank` dimensions; `None` for no axes.
    fn resolve(&self, inputs: &mut Inputs, rank: usize) -> Result<Option<Vec<usize>>, Problem> {
        let given = inputs.optional_ints(1)?.or_else(|| self.axes.clone());
        match given.filter(|axes| !axes.is_empty()) {
            Some(list) => axes(&list, rank).map(Some),
            None if self.none_is_identity => Ok(None),
            None => Ok(Some((0..rank).collect())),
        }
    }

    /// The result's dimensions.
    fn shape(&self, input: &[usize], axes: &[usize]) -> Vec<usize> {
        let kept = input.iter().enumerate().filter(|(at, _)| self.keep || !axes.contains(at));
        kept.map(|(at, &dim)| if axes.contains(&at) { 1 } else { dim }).collect()
    }
}

type ReduceReals = fn(Real, &[usize]) -> Result<Real, Problem>;
type ReduceInts = fn(&[i64]) -> i64;

/// A kernel that reduces floats, and integers if the operator can.
pub(super) fn reduction(
    spec: &Spec,
    on_reals: ReduceReals,
    on_ints: Option<ReduceInts>,
) -> Result<Kernel, Problem> {
    let over = Over::read(spec)?;
    Ok(Box::new(move |mut inputs, _| {
        let value = inputs.value(0)?;
        let input = value.shape();
        let Some(axes) = over.resolve(&mut inputs, input.len())? else { return Ok(vec![value]) };
        let shape = over.shape(&input, &axes);
        Ok(vec![match (value, on_ints) {
            (Value::Ints(array), Some(function)) => Value::Ints(fold(&array, &axes, shape, function)?),
            (value, _) if axes.is_empty() => value,
            (value, _) => Value::Real(on_reals(value.real()?, &axes)?.reshape(&shape)?),
        }])
    }))
}

pub(super) fn max(x: Real, axes: &[usize]) -> Result<Real, Problem> {
    filled(&x.shape())?;
    Ok(map!(x, t => t.max_dims(axes)))
}

pub(super) fn min(x: Real, axes: &[usize]) -> Result<Real, Problem> {
    filled(&x.shape())?;
    Ok(map!(x, t => t.min_dims(axes)))
}

/// The maximum is subtracted first, so that nothing overflows; it is a constant to the gradient, whose terms cancel.
pub(super) fn log_sum_exp(x: Real, axes: &[usize]) -> Result<Real, Problem> {
    let largest = map!(max(x.clone(), axes)?, t => t.detach());
    let sum = map!(x.sub(largest.clone())?, t => t.exp()).sum(axes);
    map!(sum, t => t.log()).add(largest)
}

/// The place of an extreme value along an axis.
pub(super) fn arg(spec: &Spec, find: fn(Real, usize) -> Option<Vec<i64>>) -> Result<Kernel, Problem> {
    let over = spec.int("axis", 0)?;
    let keep = spec.int("keepdims", 1)? != 0;
    spec.only("select_last_index", 0, "0 (the first of equals)")?;
    Ok(Box::new(move |mut inputs, _| {
        let x = inputs.real(0)?;
        let mut shape = x.shape();
        let axis = axis(over, shape.len())?;
        filled(&shape)?;
        let found = find(x, axis).expect("indices read back as integers");
        match keep {
            true => shape[axis] = 1,
            false => _ = shape.remove(axis),
        }
        let array = Array::new(shape.clone(), found).ok_or(Problem::Reshape { from: vec![], to: shape })?;
        Ok(vec![Value::Ints(array)])
    }))
}

/// Reduces integers in host memory: the reduced axes are moved to the back, so that each result is one run.
fn fold(
    array: &Array<i64>,
    axes: &[usize],
    shape: Vec<usize>,
    function: ReduceInts,
) -> Result<Array<i64>, Problem> {
    let input = array.shape();
    let kept = (0..input.len()).filter(|at| !axes.contains(at));
    let order: Vec<usize> = kept.chain(axes.iter().copied()).collect();
    let run = axes.iter().map(|&axis| input[axis]).product::<usize>().max(1);
    let Value::Ints(moved) = Value::Ints(array.clone()).permute(&order) else {
        unreachable!("integers stay so")
    };
    let data: Vec<i64> = moved.data().chunks(run).map(function).collect();
    let from = vec![count(input)];
    Array::new(shape.clone(), data).ok_or(Problem::Reshape { from, to: shape })
}
