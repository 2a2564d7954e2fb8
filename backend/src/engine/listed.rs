//! A model that runs batches of listed sizes only: those of Triton's `preferred_batch_size`, or those that an engine needs
//! on a card.
//!
//! A batch of another size gets copies of its last row up to the next size, and their outputs are dropped: a copy is valid
//! wherever the row is, which zeros may not be. A batch above the largest size runs in several parts. Frontends need not
//! know the sizes: they measure that a batch of three takes as long as one of four.

use std::sync::Arc;

use parm_protocol::{Shape, Tensor};

use super::{Model, Signature};
use crate::Error;

/// A model with its sizes, in ascending order.
struct Listed {
    model: Box<dyn Model>,
    sizes: Arc<[usize]>,
}

/// A model that runs only batches of these sizes, in ascending order; any if there are none.
pub(crate) fn listed(model: Box<dyn Model>, sizes: &Arc<[usize]>) -> Box<dyn Model> {
    if sizes.is_empty() { model } else { Box::new(Listed { model, sizes: sizes.clone() }) }
}

/// Tensors of several runs, stacked one by one.
pub(crate) fn joined(parts: &[impl AsRef<[Tensor]>]) -> Result<Vec<Tensor>, parm_protocol::Error> {
    let count = parts.first().map_or(0, |part| part.as_ref().len());
    let joined = |at: usize| {
        let rows: Vec<Tensor> = parts.iter().filter_map(|part| part.as_ref().get(at).cloned()).collect();
        Tensor::concat_rows(&rows)
    };
    (0..count).map(joined).collect()
}

impl Listed {
    fn largest(&self) -> usize {
        self.sizes.last().copied().unwrap_or(usize::MAX)
    }

    /// The size in which so many rows run.
    fn size_of(&self, rows: usize) -> usize {
        self.sizes.iter().copied().find(|size| *size >= rows).unwrap_or(rows)
    }

    /// Runs rows that are at most the largest size.
    fn run_part(&mut self, inputs: &[Tensor], rows: usize) -> Result<Vec<Tensor>, Error> {
        let size = self.size_of(rows);
        if size == rows {
            return self.model.run(inputs);
        }
        let padded = |input: &Tensor| {
            let last = input.slice_rows(rows - 1, 1)?;
            let copies = std::iter::repeat_n(last, size - rows);
            Tensor::concat_rows(&std::iter::once(input.clone()).chain(copies).collect::<Vec<_>>())
        };
        let padded = inputs.iter().map(padded).collect::<Result<Vec<_>, _>>()?;
        let outputs = self.model.run(&padded)?;
        if let Some(odd) = outputs.iter().find(|output| output.rows() != size) {
            return Err(Error::Run { message: format!("{size} rows given, {} returned", odd.rows()) });
        }
        Ok(outputs.iter().map(|output| output.slice_rows(0, rows)).collect::<Result<_, _>>()?)
    }
}

impl Model for Listed {
    fn signature(&self) -> &Signature {
        self.model.signature()
    }

    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        let rows = inputs.first().map_or(0, Tensor::rows);
        if rows == 0 {
            return self.model.run(inputs);
        }
        let mut parts = Vec::new();
        for start in (0..rows).step_by(self.largest()) {
            let count = (rows - start).min(self.largest());
            let part = inputs.iter().map(|input| input.slice_rows(start, count));
            let part = part.collect::<Result<Vec<_>, _>>()?;
            parts.push(self.run_part(&part, count)?);
        }
        Ok(joined(&parts)?)
    }

    fn counts_tokens(&self) -> bool {
        self.model.counts_tokens()
    }

    fn is_steady(&self) -> bool {
        self.model.is_steady()
    }

    fn prepare(&mut self, shapes: &[Shape]) -> Result<(), Error> {
        let sized = shapes.iter().map(|shape| {
            let mut shape = shape.clone();
            if let Some(rows) = shape.first_mut() {
                *rows = self.size_of(*rows).min(self.largest());
            }
            shape
        });
        let sized: Vec<Shape> = sized.collect();
        self.model.prepare(&sized)
    }

    fn replica(&self) -> Option<Box<dyn Model>> {
        self.model.replica().map(|model| listed(model, &self.sizes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds the number of rows of the run to each row.
    struct Counting(Signature);

    impl Model for Counting {
        fn signature(&self) -> &Signature {
            &self.0
        }

        fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
            let rows = inputs[0].rows() as f32;
            let values: Vec<f32> = inputs[0].as_f32().unwrap().iter().map(|value| value + rows).collect();
            Ok(vec![Tensor::from_f32(inputs[0].shape(), &values).unwrap()])
        }
    }

    fn sums(sizes: &[usize], rows: u8) -> Vec<f32> {
        let mut model = listed(Box::new(Counting(Signature::default())), &sizes.into());
        let values: Vec<f32> = (0..rows).map(|row| 100.0 * f32::from(row)).collect();
        let outputs = model.run(&[Tensor::from_f32([rows.into(), 1].as_slice(), &values).unwrap()]).unwrap();
        outputs[0].as_f32().unwrap().to_vec()
    }

    #[test]
    fn batches_run_in_the_next_listed_size() {
        assert_eq!(sums(&[1, 4], 1), [1.0]);
        assert_eq!(sums(&[1, 4], 2), [4.0, 104.0]);
        assert_eq!(sums(&[4], 4), [4.0, 104.0, 204.0, 304.0]);
        assert_eq!(sums(&[], 3), [3.0, 103.0, 203.0], "without a list as they come");
    }

    #[test]
    fn batches_above_the_largest_size_run_in_parts() {
        assert_eq!(sums(&[2, 4], 5), [4.0, 104.0, 204.0, 304.0, 402.0]);
    }
}
