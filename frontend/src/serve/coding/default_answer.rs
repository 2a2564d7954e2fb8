//! Default answer of a model at the deadline, from the bundle, equal for all queries.

use std::sync::Arc;

use parm_parity_models::bundle::Deployed;
use parm_protocol::{DataType, NamedTensor, Tensor};

use crate::serve::outputs::Outputs;

/// A model's default answer.
#[derive(Clone)]
pub(crate) struct DefaultAnswer(Arc<Outputs>);

impl DefaultAnswer {
    /// The default answer of a bundle; `None` unless every output has one.
    pub(super) fn of(deployed: &Deployed, batched: bool) -> Option<Self> {
        let tensor = |output: &parm_parity_models::bundle::Output| {
            let values = output.default_answer.as_ref().filter(|_| output.datatype == DataType::Fp32)?;
            let row = output.shape.iter().skip(usize::from(batched));
            let row: Option<Vec<usize>> = row.map(|&dim| usize::try_from(dim).ok()).collect();
            let shape: Vec<usize> = batched.then_some(1).into_iter().chain(row?).collect();
            Some(NamedTensor::new(output.name.clone(), Tensor::from_f32(shape, values).ok()?))
        };
        let tensors: Vec<NamedTensor> = deployed.outputs.iter().map(tensor).collect::<Option<_>>()?;
        let outputs = Outputs::row(tensors);
        (!outputs.tensors.is_empty()).then(|| Self(Arc::new(outputs)))
    }

    /// Its tensors, with one row each.
    pub(crate) fn outputs(&self) -> Arc<Outputs> {
        self.0.clone()
    }
}

impl std::fmt::Debug for DefaultAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.tensors.iter().map(|output| &output.name)).finish()
    }
}
