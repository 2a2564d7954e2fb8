//! Compares answers with labels: the class of a row is its largest output, or its output if that is a whole number.

use parm_protocol::{DataType, InferResponse, ModelMetadata};

use crate::Error;

/// Reads a row's class from an output of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grader {
    output: String,
    /// Scores of a row; `None` for whole numbers, and if the number varies.
    columns: Option<i64>,
}

impl Grader {
    /// Creates a grader that reads the output of this name; a single output needs no name.
    pub fn new(model: &ModelMetadata, output: Option<&str>) -> Result<Self, Error> {
        let known = || model.outputs.iter().map(|output| output.name.clone()).collect::<Vec<_>>().join(", ");
        let found = match output {
            Some(name) => model.outputs.iter().find(|output| output.name == name),
            None => model.outputs.first().filter(|_| model.outputs.len() == 1),
        };
        let found = found.ok_or_else(|| match output {
            Some(name) => Error::NoSuchTensor { name: name.to_owned(), known: known() },
            None => Error::NoLabelOutput { known: known() },
        })?;
        let datatype: DataType = found.datatype.parse()?;
        let scores = matches!(datatype, DataType::Fp32 | DataType::Fp64);
        let whole = matches!(datatype, DataType::Int32 | DataType::Int64);
        if !(whole || scores && found.shape.last() != Some(&1)) {
            return Err(Error::NoClasses { output: found.name.clone(), datatype: found.datatype.clone() });
        }
        let row = match &found.shape[..] {
            [-1 | 1, row @ ..] if !row.is_empty() => row,
            row => row,
        };
        let columns = row.iter().try_fold(1i64, |all, &dim| (dim >= 0).then(|| all.saturating_mul(dim)));
        Ok(Self { output: found.name.clone(), columns: columns.filter(|&columns| scores || columns > 1) })
    }

    /// Checks that each label is the index of a score: otherwise all answers would count as wrong.
    pub fn check(&self, labels: &[i64]) -> Result<(), Error> {
        let Some(columns) = self.columns else { return Ok(()) };
        let without = labels.iter().find(|label| !(0..columns).contains(*label));
        without.map_or(Ok(()), |&label| {
            Err(Error::NoColumn { label, output: self.output.clone(), last: columns - 1 })
        })
    }

    /// Returns the class of each row; `None` where the answer has no row or its number is not a number.
    pub fn classes(&self, response: &InferResponse, rows: usize) -> Vec<Option<i64>> {
        let tensor =
            response.outputs.iter().find(|output| output.name == self.output).map(|output| &output.tensor);
        let Some(tensor) = tensor.filter(|tensor| rows > 0 && tensor.len() % rows == 0) else {
            return vec![None; rows];
        };
        let Some(numbers) = parm_arrays::numbers(tensor) else { return vec![None; rows] };
        let numbers: Vec<f64> = numbers.collect();
        let width = (numbers.len() / rows).max(1);
        if width == 1 && matches!(tensor.datatype(), DataType::Int32 | DataType::Int64) {
            return numbers.into_iter().map(|class| Some(class as i64)).collect();
        }
        let class = |row: &[f64]| {
            let scores = row.iter().enumerate();
            let (at, score) = scores.reduce(|best, next| if next.1 > best.1 { next } else { best })?;
            (!score.is_nan()).then_some(at as i64)
        };
        numbers.chunks(width).map(class).collect()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use parm_protocol::{NamedTensor, Tensor, TensorMetadata};

    use super::*;

    fn model(outputs: &[(&str, &str, &[i64])]) -> ModelMetadata {
        let output = |(name, datatype, shape): &(&str, &str, &[i64])| TensorMetadata {
            name: (*name).into(),
            datatype: (*datatype).into(),
            shape: shape.to_vec(),
        };
        ModelMetadata { outputs: outputs.iter().map(output).collect(), ..ModelMetadata::default() }
    }

    fn answer(tensor: Tensor) -> InferResponse {
        InferResponse { outputs: vec![NamedTensor::new("y", tensor)], ..InferResponse::default() }
    }

    #[test]
    fn class_is_the_largest_score_or_the_whole_number() {
        let grader = Grader::new(&model(&[("y", "FP32", &[-1, 3])]), None).unwrap();
        let scores =
            Tensor::from_f32(vec![3, 3], &[0.1, 0.9, 0.0, 2.0, 2.0, 1.0, f32::NAN, 1.0, 2.0]).unwrap();
        assert_eq!(grader.classes(&answer(scores), 3), [Some(1), Some(0), None], "a tie goes to the first");
        let whole: Vec<u8> = [7i64, 2].iter().flat_map(|class| class.to_le_bytes()).collect();
        let whole = Tensor::new(DataType::Int64, vec![2], Bytes::from(whole)).unwrap();
        assert_eq!(grader.classes(&answer(whole), 2), [Some(7), Some(2)]);
        let few = Tensor::from_f32(vec![4], &[0.0; 4]).unwrap();
        assert_eq!(grader.classes(&answer(few), 3), [None; 3], "four numbers are not three rows");
    }

    #[test]
    fn label_without_a_column_is_rejected() {
        let check = |datatype, shape: &[i64], labels: &[i64]| {
            let grader = Grader::new(&model(&[("y", datatype, shape)]), None).unwrap();
            grader.check(labels).map_err(|error| error.to_string())
        };
        let said =
            "label 3 has no column: output 'y' has the columns 0 to 2: number classes from 0, in their order";
        assert_eq!(check("FP32", &[-1, 3], &[1, 2, 3]), Err(said.into()));
        assert_eq!(check("FP32", &[1, 3], &[3, 1]), Err(said.into()));
        assert_eq!(check("INT64", &[-1, 3], &[3]), Err(said.into()), "scores of a quantised model");
        for (datatype, shape) in [("FP32", &[-1, -1][..]), ("INT64", &[-1]), ("INT64", &[-1, 1])] {
            assert_eq!(check(datatype, shape, &[7]), Ok(()), "{datatype} {shape:?}");
        }
        assert_eq!(check("FP32", &[-1, 3], &[0, 2]), Ok(()));
    }

    #[test]
    fn output_without_a_class_is_rejected() {
        let two = model(&[("a", "FP32", &[-1, 3]), ("b", "FP32", &[-1, 1]), ("c", "FP16", &[-1, 3])]);
        assert!(Grader::new(&two, Some("a")).is_ok());
        for (output, reason) in
            [(None, "a, b, c"), (Some("z"), "a, b, c"), (Some("b"), "output 'b'"), (Some("c"), "FP16")]
        {
            let error = Grader::new(&two, output).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
