//! A network divided between the slots.
//!
//! Weights that are the same for every slot treat all slots alike, and so does every gradient that follows from them: what
//! belongs to which query must first be told apart, which takes long where there are many, and may never happen. So every
//! layer's features are dealt out, a k-th of them to each slot, and weights between features of different slots begin
//! at zero. What is left are k thin networks side by side, each the deployed one with most of its features gone, and
//! training may use the weights between them as it likes. Features are dealt out by their place alone, so that
//! those that are added or flattened together stay together; where a graph rearranges features, the start is worse.

use std::num::NonZeroUsize;

use super::super::{Defect, Tensor};
use super::draft::Draft;
use super::linear::Linear;

impl Draft {
    /// Divides all layers whose weights mix features between `slots`; recurrent ones stay as they are.
    pub(super) fn divide(&mut self, slots: NonZeroUsize) -> Result<(), Defect> {
        let layers: Vec<Linear> = self.nodes.iter().filter_map(|node| Linear::of(self, node)).collect();
        for Linear { weight, weight_in, out, .. } in layers {
            let Some(out) = out else { continue };
            let axes = Axes { read: weight_in, made: out.weight_axis };
            let divided = divided(&self.constants[&weight], &axes, slots.get())?;
            self.constants.insert(weight, divided);
        }
        Ok(())
    }
}

/// Where the features that a weight reads and makes lie.
struct Axes {
    read: usize,
    made: usize,
}

/// `weight` without what leads from one slot to another. What remains is scaled by the share of the features that it
/// still reads, so that what is made stays about as large.
fn divided(weight: &Tensor, axes: &Axes, slots: usize) -> Result<Tensor, Defect> {
    let dims = weight.dims();
    let (read, made) = (dims[axes.read], dims[axes.made]);
    // Too few features to give each slot one: they stay common.
    if read < slots || made < slots {
        return Ok(weight.clone());
    }
    let run = |axis: usize| dims[axis + 1..].iter().product::<usize>();
    let owner = |feature: usize, of: usize| feature * slots / of;
    let mut owned = vec![0usize; slots];
    (0..read).for_each(|feature| owned[owner(feature, read)] += 1);
    let kept = |at: usize, value: f32| {
        let slot = owner(at / run(axes.read) % read, read);
        let is_own = slot == owner(at / run(axes.made) % made, made);
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
    fn a_matrix_keeps_a_block_for_each_slot_and_its_scale() {
        let matrix = divided(&ones(&[4, 2]), &Axes { read: 0, made: 1 }, 2).unwrap();
        assert_eq!(matrix.to_f32().unwrap(), [2.0, 0.0, 2.0, 0.0, 0.0, 2.0, 0.0, 2.0]);
        let transposed = divided(&ones(&[2, 4]), &Axes { read: 1, made: 0 }, 2).unwrap();
        assert_eq!(transposed.to_f32().unwrap(), [2.0, 2.0, 0.0, 0.0, 0.0, 0.0, 2.0, 2.0]);
    }

    #[test]
    fn filters_are_kept_or_dropped_whole_and_an_uneven_rest_goes_to_some() {
        let filters = divided(&ones(&[2, 3, 2, 1]), &Axes { read: 1, made: 0 }, 2).unwrap();
        // Of three channels two are the first slot's.
        let expected = [1.5, 1.5, 1.5, 1.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 3.0];
        assert_eq!(filters.to_f32().unwrap(), expected);
    }

    #[test]
    fn fewer_features_than_slots_stay_common() {
        let narrow = ones(&[1, 8]);
        assert_eq!(divided(&narrow, &Axes { read: 1, made: 0 }, 2).unwrap(), narrow);
    }
}
