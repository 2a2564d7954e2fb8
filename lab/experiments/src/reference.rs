//! What is asked, and what the deployed model answers to it: asked of a healthy worker before anything goes wrong.

use parm_loadgen::inputs::Inputs;
use parm_protocol::client::CallContext;
use parm_protocol::{InferRequest, InferResponse, ModelRef};
use parm_transport::client;
use tokio::runtime::Handle;

use crate::Error;

/// Requests in turn, with their right answers.
#[derive(Debug)]
pub(crate) struct Reference {
    inputs: Inputs,
    answers: Vec<Vec<f32>>,
}

/// Requests whose answers are known.
const DISTINCT: usize = 16;
/// How far a single value may be from the right one, as a share of it.
const TOLERANCE: f32 = 0.01;

impl Reference {
    /// Asks a worker.
    pub(crate) fn ask(url: &str, model: &str, seed: u64, runtime: &Handle) -> Result<Self, Error> {
        let refused = |reason: String| Error::Reference { url: url.into(), reason };
        let failed = |error: parm_protocol::Error| refused(error.to_string());
        let _inside = runtime.enter();
        let client =
            client::connect(&url.parse().map_err(failed)?, &client::Config::default()).map_err(failed)?;
        let metadata = runtime.block_on(client.model_metadata(&ModelRef::latest(model))).map_err(failed)?;
        let inputs = Inputs::generate(&metadata, 1, seed)?;
        let ask = |index| {
            let request = inputs.request(index);
            let response = runtime.block_on(client.infer(request, CallContext::default())).map_err(failed)?;
            values(&response).ok_or_else(|| refused("its outputs are no numbers".into()))
        };
        let answers = (0..DISTINCT).map(ask).collect::<Result<_, _>>()?;
        Ok(Self { inputs, answers })
    }

    /// The request to send as number `index`.
    pub(crate) fn request(&self, index: usize) -> InferRequest {
        self.inputs.request(index % DISTINCT)
    }

    /// Whether a response says what the deployed model says: the same class, or nearly the same single value.
    pub(crate) fn is_right(&self, index: usize, response: &InferResponse) -> bool {
        let right = &self.answers[index % DISTINCT];
        let near =
            |(value, right): (&f32, &f32)| (value - right).abs() <= TOLERANCE * right.abs().max(TOLERANCE);
        values(response).filter(|values| values.len() == right.len()).is_some_and(|values| {
            match values.len() {
                0 | 1 => values.iter().zip(right).all(near),
                _ => largest(&values) == largest(right),
            }
        })
    }
}

fn values(response: &InferResponse) -> Option<Vec<f32>> {
    Some(response.outputs.first()?.tensor.as_f32().ok()?.into_owned())
}

fn largest(values: &[f32]) -> Option<usize> {
    (0..values.len()).max_by(|a, b| values[*a].total_cmp(&values[*b]))
}

#[cfg(test)]
mod tests {
    use parm_protocol::{NamedTensor, Parameters, Tensor};

    use super::*;

    fn response(values: &[f32]) -> InferResponse {
        let tensor = Tensor::from_f32([1, values.len()].as_slice(), values).unwrap();
        InferResponse {
            model_name: "m".into(),
            model_version: "1".into(),
            id: String::new(),
            parameters: Parameters::new(),
            outputs: vec![NamedTensor::new("y", tensor)],
        }
    }

    #[test]
    fn answers_are_right_when_they_name_the_same_class_or_nearly_the_same_value() {
        let metadata = parm_protocol::ModelMetadata { name: "m".into(), ..Default::default() };
        let inputs = Inputs::generate(&metadata, 1, 1).unwrap();
        let classes = Reference { inputs: inputs.clone(), answers: vec![vec![1.0, 3.0, 2.0]] };
        assert!(
            classes.is_right(0, &response(&[0.9, 2.8, 2.7]))
                && !classes.is_right(0, &response(&[3.0, 2.0, 1.0]))
        );
        assert!(!classes.is_right(0, &response(&[1.0, 3.0])), "it is of another shape");
        let value = Reference { inputs, answers: vec![vec![10.0]] };
        assert!(value.is_right(0, &response(&[10.05])) && !value.is_right(0, &response(&[11.0])));
    }
}
