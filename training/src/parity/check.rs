//! Checks before a run: mistakes in the data that would show late or never.

use parm_parity_models::onnx::{Dim, Value};

use crate::distil::{Set, largest};
use crate::{Array, Error};

/// With fewer rows, a low agreement with the labels may be chance and is accepted.
const ENOUGH_ROWS: usize = 500;
/// An agreement with the labels below this multiple of chance means a wrong file.
const BETTER_THAN_CHANCE: f64 = 1.5;

/// Compares a model's answers with the labels.
pub(crate) fn hold(set: &Set, is_classifier: bool) -> Result<(), Error> {
    let values = set.values();
    if let Some(at) = set.outputs.data().iter().position(|value| !value.is_finite()) {
        return Err(Error::Output { row: at / values, value: set.outputs.data()[at] });
    }
    let Some(labels) = set.labels.as_ref().filter(|_| is_classifier) else { return Ok(()) };
    if let Some(row) = labels.iter().position(|&label| label >= values) {
        return Err(Error::Label { row, label: labels[row], classes: values });
    }
    let said = set.outputs.data().chunks_exact(values).map(largest);
    let right = said.zip(labels).filter(|(said, label)| said == *label).count();
    let agreement = right as f64 / labels.len() as f64;
    if labels.len() >= ENOUGH_ROWS && agreement < BETTER_THAN_CHANCE / values as f64 {
        return Err(Error::WrongLabels { agreement });
    }
    Ok(())
}

/// Checks that rows have the model's declared shape.
pub(crate) fn rows(inputs: &Array<f32>, input: &Value) -> Result<(), Error> {
    let fits = input.shape.as_ref().is_none_or(|shape| {
        shape.len() == inputs.shape().len()
            && shape.iter().zip(inputs.shape()).skip(1).all(|(dim, &size)| match dim {
                Dim::Fixed(fixed) => *fixed == size,
                _ => true,
            })
    });
    if fits {
        Ok(())
    } else {
        Err(Error::RowShape { data: inputs.shape()[1..].into(), model: input.to_string() })
    }
}
