//! Prepared operators: settings are read and checked before inputs come.

use crate::array::Array;
use crate::graph::{Problem, Real, Value};

/// Computes a node's outputs from its inputs.
pub(crate) type Kernel = Box<dyn Fn(Inputs, &mut Pass) -> Result<Vec<Value>, Problem> + Send + Sync>;

/// The behaviour of batch normalisations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Batch normalisation uses its running statistics.
    Evaluate,
    /// Batch normalisation uses the batch's statistics and reports them.
    Train,
}

/// State of one run through a graph.
#[derive(Debug)]
pub(crate) struct Pass {
    pub(crate) mode: Mode,
    pub(crate) device: burn::tensor::Device,
    /// Statistics of batch normalisations in this pass, by the names of their running statistics.
    pub(crate) statistics: Vec<Statistic>,
}

/// The statistics of one batch normalisation.
#[derive(Clone, Debug)]
pub(crate) struct Statistic {
    pub(crate) name: String,
    pub(crate) value: Real,
    /// Share of the old running value that remains.
    pub(crate) momentum: f32,
}

/// A node's inputs in order; `None` for an omitted optional one.
pub(crate) struct Inputs(pub(crate) Vec<Option<Value>>);

impl Inputs {
    pub(crate) fn optional(&mut self, at: usize) -> Option<Value> {
        self.0.get_mut(at).and_then(Option::take)
    }

    pub(crate) fn value(&mut self, at: usize) -> Result<Value, Problem> {
        self.optional(at).ok_or(Problem::MissingInput { at })
    }

    pub(crate) fn real(&mut self, at: usize) -> Result<Real, Problem> {
        self.value(at)?.real()
    }

    pub(crate) fn ints(&mut self, at: usize) -> Result<Array<i64>, Problem> {
        self.value(at)?.ints()
    }

    pub(crate) fn optional_real(&mut self, at: usize) -> Result<Option<Real>, Problem> {
        self.optional(at).map(Value::real).transpose()
    }

    /// An optional list of integers. An empty tensor is an empty list: operators differ in what it means.
    pub(crate) fn optional_ints(&mut self, at: usize) -> Result<Option<Vec<i64>>, Problem> {
        let Some(value) = self.optional(at) else { return Ok(None) };
        Ok(Some(value.ints()?.into_data()))
    }

    /// An optional single float.
    pub(crate) fn optional_number(&mut self, at: usize) -> Result<Option<f32>, Problem> {
        let Some(value) = self.optional(at) else { return Ok(None) };
        let array = value.real()?.download();
        match array.data() {
            [number] => Ok(Some(*number)),
            _ => Err(Problem::Reshape { from: array.shape().into(), to: vec![] }),
        }
    }

    pub(crate) fn all(self) -> impl Iterator<Item = Value> {
        self.0.into_iter().flatten()
    }
}

/// The result of an operator with one output of reals.
pub(crate) fn one(real: Real) -> Result<Vec<Value>, Problem> {
    Ok(vec![Value::Real(real)])
}

/// Resolves an axis that may count from the end.
pub(crate) fn axis(axis: i64, rank: usize) -> Result<usize, Problem> {
    let resolved = if axis < 0 { axis + rank as i64 } else { axis };
    usize::try_from(resolved).ok().filter(|&axis| axis < rank).ok_or(Problem::Axis { axis, rank })
}

/// Resolves a list of axes.
pub(crate) fn axes(list: &[i64], rank: usize) -> Result<Vec<usize>, Problem> {
    list.iter().map(|&one| axis(one, rank)).collect()
}
