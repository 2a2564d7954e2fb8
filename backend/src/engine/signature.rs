//! The input and output tensors of a model.

use parm_protocol::{DataType, ModelConfig, ModelConfigTensor, ModelMetadata, Shape, Tensor, TensorMetadata};

use crate::Error;

/// A tensor that a model declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// Its name.
    pub name: String,
    /// Its element type.
    pub datatype: DataType,
    /// Its dimensions; -1 for dynamic ones.
    pub shape: Vec<i64>,
}

/// The tensors of a model, in the model's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signature {
    /// Inputs.
    pub inputs: Vec<Declared>,
    /// Outputs.
    pub outputs: Vec<Declared>,
}

/// The most elements of a generated warm-up input: 1 GiB of FP32.
const MAX_WARM_UP: usize = 1 << 28;

impl Signature {
    /// The protocol's metadata.
    pub fn metadata(&self, name: &str, version: &str, platform: &str) -> ModelMetadata {
        let describe = |tensors: &[Declared]| tensors.iter().map(Declared::metadata).collect();
        ModelMetadata {
            name: name.into(),
            versions: vec![version.into()],
            platform: platform.into(),
            inputs: describe(&self.inputs),
            outputs: describe(&self.outputs),
        }
    }

    /// The protocol's configuration; `max_batch` is 0 for a model without a batch dimension.
    pub fn config(&self, name: &str, platform: &str, max_batch: usize) -> ModelConfig {
        let describe =
            |tensors: &[Declared]| tensors.iter().map(|tensor| tensor.config(max_batch > 0)).collect();
        ModelConfig {
            name: name.into(),
            platform: platform.into(),
            max_batch_size: i32::try_from(max_batch).unwrap_or(i32::MAX),
            input: describe(&self.inputs),
            output: describe(&self.outputs),
            ..ModelConfig::default()
        }
    }

    /// Whether the first dimension of every tensor varies, so that rows of several requests can share a run.
    pub fn is_batched(&self) -> bool {
        parm_protocol::validate::has_batch_dimension(&self.metadata("", "", ""))
    }

    /// Inputs of zeros: `rows` rows if there is a batch dimension, 1 for any other dynamic dimension.
    pub fn blank(&self, rows: usize) -> Result<Vec<Tensor>, Error> {
        let batched = self.is_batched();
        self.inputs.iter().map(|input| input.blank(if batched { rows } else { 1 })).collect()
    }
}

impl Declared {
    pub(crate) fn metadata(&self) -> TensorMetadata {
        TensorMetadata {
            name: self.name.clone(),
            datatype: self.datatype.to_string(),
            shape: self.shape.clone(),
        }
    }

    fn config(&self, batched: bool) -> ModelConfigTensor {
        let data_type = match self.datatype {
            DataType::Bytes => "TYPE_STRING".into(),
            datatype => format!("TYPE_{datatype}"),
        };
        ModelConfigTensor {
            name: self.name.clone(),
            data_type,
            dims: self.shape[usize::from(batched)..].into(),
        }
    }

    fn blank(&self, rows: usize) -> Result<Tensor, Error> {
        let mut shape: Shape = self.shape.iter().map(|&dim| usize::try_from(dim).unwrap_or(1)).collect();
        if let (Some(first), Some(-1)) = (shape.first_mut(), self.shape.first()) {
            *first = rows;
        }
        let elements = shape.iter().fold(1usize, |product, &dim| product.saturating_mul(dim));
        if elements > MAX_WARM_UP {
            return Err(Error::WarmUpTooLarge { name: self.name.clone(), elements, limit: MAX_WARM_UP });
        }
        // Four zero bytes are the length of an empty string.
        let bytes = elements * self.datatype.size().unwrap_or(4);
        Ok(Tensor::new(self.datatype, shape, vec![0; bytes].into())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_inputs_fit_every_datatype() {
        for datatype in DataType::ALL {
            let input = Declared { name: "x".into(), datatype, shape: vec![-1, 2, -1] };
            let signature = Signature { inputs: vec![input], outputs: vec![] };
            assert_eq!(signature.blank(3).unwrap()[0].shape(), [3, 2, 1]);
        }
    }

    #[test]
    fn configuration_omits_the_batch_dimension() {
        let tensor = Declared { name: "x".into(), datatype: DataType::Bytes, shape: vec![-1, 7] };
        let signature = Signature { inputs: vec![tensor], outputs: vec![] };
        let config = signature.config("m", "p", 8);
        assert_eq!((config.max_batch_size, &config.input[0].dims[..]), (8, &[7][..]));
        assert_eq!(config.input[0].data_type, "TYPE_STRING");
        assert_eq!(signature.config("m", "p", 0).input[0].dims, [-1, 7]);
    }
}
