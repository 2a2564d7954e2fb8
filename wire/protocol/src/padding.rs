//! Padding of inputs of unequal lengths, a parameter of a model's configuration.
//!
//! A worker states it for a model that takes a mask, after a comparison of padded rows with the same rows alone. Frontends
//! pad the rows of a batch with zeros, the mask as well, and cut each row of the outputs back to its own length. Padding is
//! done where batches are made: a batch with rows of unequal lengths has no form on the wire.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{DataType, Error, ModelConfig, ModelMetadata, NamedTensor, Tensor, TensorMetadata};

const NAME: &str = "parm_padding";

/// The request parameter of a frontend that padded rows. A server whose model does not take them rejects the request.
pub const PADDED: &str = "parm_padded";

/// How the rows of a model are padded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Padding {
    /// The input that masks the padding.
    pub mask: String,
    /// The axes of outputs that are as long as the inputs, by output. Axis 0 counts rows.
    pub axes: BTreeMap<String, Vec<usize>>,
}

impl Padding {
    /// Whether an input is padded: it has a row of any length for each query.
    pub fn pads(input: &TensorMetadata) -> bool {
        input.shape == [-1, -1] && input.datatype != DataType::Bytes.to_string()
    }

    /// The length of a request's padded inputs, which are in the model's order; `None` if they disagree or are empty.
    pub fn length(model: &ModelMetadata, inputs: &[NamedTensor]) -> Option<usize> {
        let padded = model.inputs.iter().zip(inputs).filter(|(declared, _)| Self::pads(declared));
        let mut lengths = padded.map(|(_, input)| input.tensor.shape().get(1).copied());
        let length = lengths.next()?.filter(|length| *length > 0)?;
        lengths.all(|other| other == Some(length)).then_some(length)
    }

    /// Whether padding cannot change the answer to any of these rows: each mask has an element above zero. Models that add a
    /// large number where the mask is zero do not mask the padding of a row without one.
    pub fn is_masked(&self, inputs: &[NamedTensor]) -> bool {
        let Some(mask) = inputs.iter().find(|input| input.name == self.mask) else { return false };
        let (rows, datatype) = (mask.tensor.rows(), mask.tensor.datatype());
        let data = mask.tensor.data();
        let Some(size) = datatype.size().filter(|_| rows > 0) else { return false };
        let is_above = |number: &[u8]| {
            let is_negative = datatype.is_signed() && number.last().is_some_and(|last| last & 0x80 != 0);
            !is_negative && number.iter().any(|byte| *byte != 0)
        };
        data.len() >= rows && data.chunks(data.len() / rows).all(|row| row.chunks(size).any(is_above))
    }

    /// A row of an output, cut back to its own length.
    pub fn cut(&self, output: &str, row: Tensor, length: usize) -> Result<Tensor, Error> {
        let axes = self.axes.get(output).map(Vec::as_slice).unwrap_or_default();
        axes.iter().try_fold(row, |row, axis| row.resized(*axis, length))
    }
}

impl ModelConfig {
    /// Sets how rows are padded; `None` if they must not be.
    pub fn set_padding(&mut self, padding: Option<&Padding>) {
        self.set_parameter(NAME, padding.map(|padding| serde_json::json!(padding).to_string()));
    }

    /// How the server pads rows; invalid values are ignored.
    pub fn padding(&self) -> Option<Padding> {
        let padding: Padding = serde_json::from_str(self.parameter(NAME)?).ok()?;
        // The first axis counts rows.
        padding.axes.values().flatten().all(|axis| *axis > 0).then_some(padding)
    }
}

impl Tensor {
    /// Changes the size of an axis: elements at its end are removed, or zeros are added.
    pub fn resized(&self, axis: usize, size: usize) -> Result<Tensor, Error> {
        let (datatype, shape) = (self.datatype(), self.shape());
        let (Some(&before), Some(bytes)) = (shape.get(axis), datatype.size()) else {
            let message =
                format!("axis {axis} of a {datatype} tensor of shape {shape:?} cannot be padded or cut");
            return Err(Error::Invalid { message });
        };
        if before == size {
            return Ok(self.clone());
        }
        let mut resized = crate::Shape::from(shape);
        resized[axis] = size;
        let inner = shape[axis + 1..].iter().product::<usize>() * bytes;
        let outer: usize = shape[..axis].iter().product();
        let total = outer.checked_mul(size).and_then(|count| count.checked_mul(inner));
        let total = total.ok_or_else(|| crate::tensor::overflow(&resized))?;
        let mut data = Vec::with_capacity(total);
        for at in 0..outer {
            let part = &self.data()[at * before * inner..][..before.min(size) * inner];
            data.extend_from_slice(part);
            data.resize((at + 1) * size * inner, 0);
        }
        Tensor::new(datatype, resized, data.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(shape: &[usize], values: &[f32]) -> Tensor {
        Tensor::from_f32(shape, values).unwrap()
    }

    #[test]
    fn padding_is_read_as_it_was_set() {
        let mut config = ModelConfig::default();
        assert_eq!(config.padding(), None);
        let axes = [("a:1,b".to_owned(), vec![1]), ("scores".to_owned(), vec![2, 3])].into();
        let padding = Padding { mask: "attention_mask".into(), axes };
        config.set_padding(Some(&padding));
        assert_eq!(config.padding(), Some(padding));
        config.set_padding(Some(&Padding::default()));
        assert_eq!(config.padding(), Some(Padding::default()), "no output has the length");
        for invalid in ["", "1", "{\"y\":[1]}", "{\"mask\":\"m\",\"axes\":{\"y\":[0]}}", "[]"] {
            config.set_parameter(NAME, Some(invalid.into()));
            assert_eq!(config.padding(), None, "{invalid}");
        }
    }

    #[test]
    fn resized_tensor_keeps_its_elements() {
        let rows = floats(&[2, 2], &[1., 2., 3., 4.]);
        assert_eq!(rows.resized(1, 3).unwrap(), floats(&[2, 3], &[1., 2., 0., 3., 4., 0.]));
        assert_eq!(rows.resized(1, 3).unwrap().resized(1, 2).unwrap(), rows);
        assert_eq!(rows.resized(0, 1).unwrap(), floats(&[1, 2], &[1., 2.]));
        let deep = floats(&[1, 2, 2, 1], &[1., 2., 3., 4.]);
        let cut = deep.resized(1, 1).unwrap().resized(2, 1).unwrap();
        assert_eq!(cut, floats(&[1, 1, 1, 1], &[1.]));
        assert_eq!(floats(&[0, 2], &[]).resized(1, 5).unwrap().shape(), [0, 5]);
    }

    #[test]
    fn tensors_that_cannot_be_resized_are_errors() {
        let rows = floats(&[1, 1], &[1.]);
        let error = rows.resized(2, 5).unwrap_err().to_string();
        assert!(error.contains("axis 2 of a FP32 tensor"), "{error}");
        let wide = floats(&[2, 1], &[1., 2.]);
        assert!(wide.resized(1, usize::MAX / 4).is_err());
        let strings = Tensor::new(DataType::Bytes, [1, 1].as_slice(), vec![0; 4].into()).unwrap();
        assert!(strings.resized(1, 2).is_err());
    }

    #[test]
    fn rows_need_an_element_above_zero_in_their_mask() {
        let padding = Padding { mask: "m".into(), ..Padding::default() };
        let masked = |tensor| padding.is_masked(&[NamedTensor::new("m", tensor)]);
        let integers = |values: [i64; 4]| {
            let data: Vec<u8> = values.into_iter().flat_map(i64::to_le_bytes).collect();
            Tensor::new(DataType::Int64, [2, 2].as_slice(), data.into()).unwrap()
        };
        assert!(masked(integers([1, 0, 0, 1])) && masked(integers([0, 256, -1, 1])));
        assert!(!masked(integers([1, 1, 0, 0])) && !masked(integers([-1, -1, 1, 1])));
        assert!(masked(floats(&[1, 2], &[0.0, 0.5])) && !masked(floats(&[1, 2], &[-0.0, -1.0])));
        let switch = |on| Tensor::new(DataType::Bool, [1, 1].as_slice(), vec![on].into()).unwrap();
        assert!(masked(switch(1)) && !masked(switch(0)));
        let bytes = Tensor::new(DataType::Uint8, [1, 1].as_slice(), vec![0x80].into()).unwrap();
        assert!(masked(bytes) && !masked(floats(&[0, 2], &[])) && !masked(floats(&[2, 0], &[])));
        assert!(!padding.is_masked(&[]), "the mask is missing");
    }

    #[test]
    fn length_is_that_of_all_padded_inputs() {
        let declared = |name: &str, shape: &[i64]| TensorMetadata {
            name: name.into(),
            datatype: "FP32".into(),
            shape: shape.into(),
        };
        let inputs =
            vec![declared("ids", &[-1, -1]), declared("fixed", &[-1, 3]), declared("mask", &[-1, -1])];
        let model = ModelMetadata { inputs, ..ModelMetadata::default() };
        let length = |ids: usize, mask: usize| {
            let sizes = [("ids", ids), ("fixed", 3), ("mask", mask)];
            let input = |(name, size)| NamedTensor::new(name, floats(&[1, size], &vec![0.; size]));
            Padding::length(&model, &sizes.map(input))
        };
        assert_eq!((length(4, 4), length(4, 5), length(0, 0)), (Some(4), None, None));
    }
}
