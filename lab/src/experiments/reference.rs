//! The requests of an experiment, and the deployed model's answers from a healthy worker.

use parm_loadgen::inputs::Inputs;
use parm_protocol::client::{CallContext, Client};
use parm_protocol::{DataType, InferRequest, InferResponse, ModelRef, Tensor};
use parm_workload::Faults;
use tokio::runtime::Handle;

use crate::Error;

/// Requests in turn, with their right answers.
#[derive(Debug)]
pub(crate) struct Reference {
    inputs: Inputs,
    answers: Vec<Vec<f64>>,
}

/// Requests whose answers are known.
const DISTINCT: usize = 16;
/// The same, if run times follow the query: each request has one factor.
const DISTINCT_BY_QUERY: usize = 256;
/// Largest relative error of a single value, if it is a float. Labels must be equal.
const TOLERANCE: f64 = 0.01;

impl Reference {
    /// Returns the number of distinct requests that these faults need.
    pub(crate) fn distinct<'a>(faults: impl IntoIterator<Item = &'a Faults>) -> usize {
        let by_query = faults.into_iter().any(Faults::follow_queries);
        if by_query { DISTINCT_BY_QUERY } else { DISTINCT }
    }

    /// Requests this many answers from a worker.
    pub(crate) fn ask(
        client: &dyn Client,
        url: &str,
        model: &str,
        (seed, distinct): (u64, usize),
        runtime: &Handle,
    ) -> Result<Self, Error> {
        let refused = |reason: String| Error::Reference { url: url.into(), reason };
        let failed = |error: parm_protocol::Error| refused(error.to_string());
        let metadata = runtime.block_on(client.model_metadata(&ModelRef::latest(model))).map_err(failed)?;
        let inputs = Inputs::generate_many(&metadata, 1, seed, distinct)?;
        let ask = |index| {
            let request = inputs.request(index);
            let response = runtime.block_on(client.infer(request, CallContext::default())).map_err(failed)?;
            let ungraded = "its first output is not numbers, so that it cannot be graded";
            values(&response).ok_or_else(|| refused(ungraded.into()))
        };
        let answers = (0..distinct).map(ask).collect::<Result<_, _>>()?;
        Ok(Self { inputs, answers })
    }

    /// Returns request number `index`.
    pub(crate) fn request(&self, index: usize) -> InferRequest {
        self.inputs.request(index % self.answers.len())
    }

    /// Whether a response agrees with the deployed model: the same class, or nearly the same single value.
    pub(crate) fn is_right(&self, index: usize, response: &InferResponse) -> bool {
        let right = &self.answers[index % self.answers.len()];
        let is_float = |tensor: &Tensor| {
            use DataType::{Bf16, Fp16, Fp32, Fp64};
            matches!(tensor.datatype(), Fp16 | Bf16 | Fp32 | Fp64)
        };
        let rounds = response.outputs.first().is_some_and(|output| is_float(&output.tensor));
        let near = |(value, right): (&f64, &f64)| {
            value == right || (rounds && (value - right).abs() <= TOLERANCE * right.abs().max(TOLERANCE))
        };
        values(response).filter(|values| values.len() == right.len()).is_some_and(|values| {
            match values.len() {
                0 | 1 => values.iter().zip(right).all(near),
                _ => largest(&values) == largest(right),
            }
        })
    }
}

fn values(response: &InferResponse) -> Option<Vec<f64>> {
    Some(parm_arrays::numbers(&response.outputs.first()?.tensor)?.collect())
}

fn largest(values: &[f64]) -> Option<usize> {
    (0..values.len()).max_by(|a, b| values[*a].total_cmp(&values[*b]))
}

#[cfg(test)]
mod tests {
    use parm_protocol::NamedTensor;

    use super::*;

    fn response(tensor: Tensor) -> InferResponse {
        InferResponse {
            model_name: "m".into(),
            model_version: "1".into(),
            outputs: vec![NamedTensor::new("y", tensor)],
            ..Default::default()
        }
    }

    #[test]
    fn answer_is_right_with_same_class_or_label_or_nearly_same_value() {
        let metadata = parm_protocol::ModelMetadata { name: "m".into(), ..Default::default() };
        let inputs = Inputs::generate(&metadata, 1, 1).unwrap();
        let is_right = |answer: &[f64], tensor| {
            let reference = Reference { inputs: inputs.clone(), answers: vec![answer.to_vec()] };
            reference.is_right(0, &response(tensor))
        };
        let floats = |values: &[f32]| Tensor::from_f32([1, values.len()].as_slice(), values).unwrap();
        let one =
            |datatype, data: &[u8]| Tensor::new(datatype, [1usize].as_slice(), data.to_vec().into()).unwrap();
        let scores = [1.0, 3.0, 2.0];
        assert!(is_right(&scores, floats(&[0.9, 2.8, 2.7])) && !is_right(&scores, floats(&[3.0, 2.0, 1.0])));
        assert!(!is_right(&scores, floats(&[1.0, 3.0])), "it has another shape");
        assert!(is_right(&[10.0], floats(&[10.05])) && !is_right(&[10.0], floats(&[11.0])));
        assert!(is_right(&[10.0], one(DataType::Fp64, &10.05f64.to_le_bytes())));
        assert!(is_right(&[10.0], one(DataType::Fp16, &DataType::Fp16.half_precision(10.05).unwrap())));
        let label = |value: i64| one(DataType::Int64, &value.to_le_bytes());
        assert!(is_right(&[200.0], label(200)) && !is_right(&[200.0], label(201)), "labels are exact");
    }
}
