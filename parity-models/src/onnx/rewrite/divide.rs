//! Divides the features of a network between the slots.
//!
//! If the initial weights are equal for all slots, so are their gradients: training must first learn to tell the
//! queries apart, which takes long for many slots and may fail. Each slot therefore gets a k-th of the features of
//! every layer, and weights between features of different slots start at zero. The result is k thin networks next to
//! one another, and training may use the weights between them. Only the position of a feature decides its slot, so
//! features that are added or flattened together stay together. A graph that rearranges features gets a worse start.

use std::num::NonZeroUsize;

use super::super::{Defect, Layer, Tensor};
use super::draft::Draft;

impl Draft {
    /// Divides all layers whose weights mix features between `slots`, except recurrent ones.
    pub(super) fn divide(&mut self, slots: NonZeroUsize) -> Result<(), Defect> {
        for node in &self.nodes {
            let Some(layer) = Layer::whole(self, node) else { continue };
            let divided = divided(&self.constants[&node.input[1]], (layer.reads, layer.makes), slots.get())?;
            self.constants.insert(node.input[1].clone(), divided);
        }
        Ok(())
    }
}

/// `weight` without the connections between slots, where `reads` and `makes` are its axes of features. The rest is scaled
/// by the inverse share of the remaining inputs, so that outputs keep their size.
fn divided(weight: &Tensor, (reads, makes): (usize, usize), slots: usize) -> Result<Tensor, Defect> {
    let dims = weight.dims();
    let (read, made) = (dims[reads], dims[makes]);
    // Fewer features than slots stay common.
    if read < slots || made < slots {
        return Ok(weight.clone());
    }
    let run = |axis: usize| dims[axis + 1..].iter().product::<usize>();
    let owner = |feature: usize, of: usize| feature * slots / of;
    let mut owned = vec![0usize; slots];
    (0..read).for_each(|feature| owned[owner(feature, read)] += 1);
    let kept = |at: usize, value: f32| {
        let slot = owner(at / run(reads) % read, read);
        let is_own = slot == owner(at / run(makes) % made, made);
        if is_own { value * read as f32 / owned[slot] as f32 } else { 0.0 }
    };
    let values = weight.to_f32()?;
    let values: Vec<f32> = values.into_iter().enumerate().map(|(at, value)| kept(at, value)).collect();
    weight.with_f32(&values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ones(dims: &[usize]) -> Tensor {
        Tensor::from_f32("w", dims, &vec![1.0; dims.iter().product()]).unwrap()
    }

    #[test]
    fn divided_matrix_keeps_a_block_per_slot_and_its_scale() {
        let matrix = divided(&ones(&[4, 2]), (0, 1), 2).unwrap();
        assert_eq!(matrix.to_f32().unwrap(), [2.0, 0.0, 2.0, 0.0, 0.0, 2.0, 0.0, 2.0]);
        let transposed = divided(&ones(&[2, 4]), (1, 0), 2).unwrap();
        assert_eq!(transposed.to_f32().unwrap(), [2.0, 2.0, 0.0, 0.0, 0.0, 0.0, 2.0, 2.0]);
    }

    #[test]
    fn divided_filters_are_kept_or_dropped_whole() {
        let filters = divided(&ones(&[2, 3, 2, 1]), (1, 0), 2).unwrap();
        // The first slot gets two of three channels.
        let expected = [1.5, 1.5, 1.5, 1.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 3.0];
        assert_eq!(filters.to_f32().unwrap(), expected);
    }

    #[test]
    fn features_stay_common_if_fewer_than_slots() {
        let narrow = ones(&[1, 8]);
        assert_eq!(divided(&narrow, (1, 0), 2).unwrap(), narrow);
    }
}
