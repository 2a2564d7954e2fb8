//! Ids of query shapes: only queries of one shape share a batch or a coding group.

use std::collections::HashMap;

use parking_lot::Mutex;
use parm_protocol::{ModelMetadata, NamedTensor, Padding};
use smallvec::SmallVec;

/// Maximum remembered shapes; beyond it equal shapes may get different ids and share less.
const REMEMBERED: usize = 4096;

type Dimensions = SmallVec<[usize; 8]>;

/// Shapes of one model's queries.
pub(crate) struct Shapes {
    /// Whether every dimension but the batch is fixed, so that there is only one shape.
    fixed: bool,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    names: HashMap<Dimensions, u32>,
    last: u32,
}

impl Shapes {
    pub(crate) fn of(model: &ModelMetadata, batched: bool) -> Self {
        let skipped = usize::from(batched);
        let fixed = model.inputs.iter().all(|input| input.shape.iter().skip(skipped).all(|&dim| dim >= 0));
        Self { fixed, known: Mutex::default() }
    }

    /// The id of the shape of one row of these inputs.
    pub(crate) fn name(&self, inputs: &[NamedTensor], batched: bool) -> u32 {
        if self.fixed {
            return 0;
        }
        let skipped = usize::from(batched);
        let mut dimensions = Dimensions::new();
        for input in inputs {
            let row = &input.tensor.shape()[skipped.min(input.tensor.shape().len())..];
            dimensions.push(row.len());
            dimensions.extend_from_slice(row);
        }
        self.known.lock().name(dimensions)
    }

    /// The id of the shape of one row, without the length of padded inputs. No other query has it.
    pub(crate) fn padded(&self, inputs: &[NamedTensor], model: &ModelMetadata) -> u32 {
        let mut dimensions = Dimensions::new();
        for (input, declared) in inputs.iter().zip(&model.inputs) {
            let row = &input.tensor.shape()[1..];
            dimensions.push(row.len());
            if Padding::pads(declared) {
                dimensions.push(usize::MAX);
            } else {
                dimensions.extend_from_slice(row);
            }
        }
        self.known.lock().name(dimensions)
    }

    /// A unique id, for a query that must not share.
    pub(crate) fn alone(&self) -> u32 {
        self.known.lock().fresh()
    }
}

impl Known {
    fn name(&mut self, dimensions: Dimensions) -> u32 {
        if let Some(name) = self.names.get(&dimensions) {
            return *name;
        }
        if self.names.len() == REMEMBERED {
            self.names.clear();
        }
        let name = self.fresh();
        self.names.insert(dimensions, name);
        name
    }

    fn fresh(&mut self) -> u32 {
        // Ids repeat after four billion; by then the first are unused. 0 is the fixed shape.
        self.last = self.last.checked_add(1).unwrap_or(1);
        self.last
    }
}

#[cfg(test)]
mod tests {
    use parm_protocol::{Tensor, TensorMetadata};

    use super::*;

    fn model(shape: &[i64]) -> ModelMetadata {
        let input = TensorMetadata { name: "x".into(), datatype: "FP32".into(), shape: shape.into() };
        ModelMetadata { inputs: vec![input], ..ModelMetadata::default() }
    }

    fn inputs(shape: &[usize]) -> Vec<NamedTensor> {
        let values = vec![0.0; shape.iter().product()];
        vec![NamedTensor::new("x", Tensor::from_f32(shape, &values).unwrap())]
    }

    #[test]
    fn shape_has_all_dimensions_but_the_batch() {
        let shapes = Shapes::of(&model(&[-1, -1]), true);
        let name = |shape: &[usize]| shapes.name(&inputs(shape), true);
        assert_eq!(name(&[1, 4]), name(&[7, 4]));
        assert_ne!(name(&[1, 4]), name(&[1, 5]));
        assert_ne!(shapes.alone(), shapes.alone());
        let fixed = Shapes::of(&model(&[-1, 4]), true);
        assert_eq!(fixed.name(&inputs(&[1, 4]), true), 0);
        let model = model(&[-1, -1]);
        let padded = |shape: &[usize]| shapes.padded(&inputs(shape), &model);
        assert_eq!(padded(&[1, 4]), padded(&[7, 5]));
        assert!([4, 5, 0].iter().all(|size| name(&[1, *size]) != padded(&[1, 4])), "not padded");
        assert_ne!(fixed.alone(), 0);
    }
}
