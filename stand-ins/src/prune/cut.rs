//! Cuts a block to the remaining channels and compensates for the removed ones.

use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{DataType, Defect, Layer, Tensor};

use super::gram::{Estimate, estimate};
use super::region::{Block, Cut, Reader, Reading, Target};
use crate::graph::{add_behind, add_bias};

/// Removes channels from the nodes that make them and from all nodes on the way. Nodes keep their positions.
pub(super) fn narrow(draft: &mut Draft, block: &Block, kept: &[usize]) -> Result<(), Defect> {
    for &Cut { at, place, axis } in &block.cuts {
        let whole = &draft.constants[&draft.nodes[at].input[place]];
        let part = whole.pick(axis, kept)?;
        draft.nodes[at].input[place] = draft.add_constant(part);
    }
    for &at in &block.grouped {
        draft.nodes[at].set("group", kept.len() as i64);
    }
    block.targets.iter().try_for_each(|target| retarget(draft, target, (block.width, kept.len())))
}

/// Compensates for removed channels in the weights of the readers. All blocks must be cut already: a reader of one
/// block may make another, and a value that is added to its outputs must have the new number of channels. New nodes
/// stand at the end.
pub(super) fn make_up(draft: &mut Draft, block: &Block, kept: &[usize]) -> Result<(), Defect> {
    let gone: Vec<usize> = (0..block.width).filter(|channel| kept.binary_search(channel).is_err()).collect();
    if gone.is_empty() {
        return Ok(());
    }
    for (reader, gram) in block.readers.iter().zip(&block.grams) {
        let estimate = estimate(gram, kept, &gone);
        let change = Change { reader, kept, gone: &gone, estimate: &estimate };
        match reader.reading {
            Reading::Weighted(layer) => change.weights(draft, layer)?,
            Reading::Sum => change.sum(draft, 1.0)?,
            Reading::Mean => change.sum(draft, 1.0 / block.width as f64)?,
        }
    }
    Ok(())
}

struct Change<'a> {
    reader: &'a Reader,
    kept: &'a [usize],
    gone: &'a [usize],
    estimate: &'a Estimate,
}

impl Change<'_> {
    fn weights(&self, draft: &mut Draft, layer: Layer) -> Result<(), Defect> {
        let at = self.reader.at;
        let weight = &draft.constants[&draft.nodes[at].input[1]];
        let (dims, values) = (weight.dims(), weight.to_f32()?);
        let run = self.reader.channels.run;
        let behind: usize = dims[layer.reads + 1..].iter().product::<usize>() * run;
        let width = self.kept.len() + self.gone.len();
        let mut shift = vec![0.0f64; dims[layer.makes]];
        let mut folded = Vec::with_capacity(values.len() / width * self.kept.len());
        for (outer, values) in values.chunks(width * behind).enumerate() {
            let channel = |channel: usize| &values[channel * behind..(channel + 1) * behind];
            let start = folded.len();
            self.kept.iter().for_each(|&kept| folded.extend_from_slice(channel(kept)));
            for ((&gone, shares), constant) in
                self.gone.iter().zip(&self.estimate.shares).zip(&self.estimate.constants)
            {
                let own = channel(gone);
                for (run, share) in folded[start..].chunks_mut(behind).zip(shares) {
                    run.iter_mut().zip(own).for_each(|(sum, weight)| *sum += *share as f32 * weight);
                }
                for (place, weight) in own.iter().enumerate() {
                    let made = if layer.makes < layer.reads { outer } else { place % dims[layer.makes] };
                    shift[made] += constant * f64::from(*weight);
                }
            }
        }
        let mut dims = dims.to_vec();
        dims[layer.reads] = self.kept.len() * run;
        let folded = Tensor::from_f32(weight.name(), &dims, &folded)?;
        draft.nodes[at].input[1] = draft.add_constant(folded);
        let shift: Vec<f32> = shift.into_iter().map(|value| value as f32).collect();
        match shift.iter().any(|value| *value != 0.0) {
            true => add_bias(draft, at, &shift),
            false => Ok(()),
        }
    }

    /// Weights the channels before they are summed. `scale` is 1, or for a mean one divided by the original number of
    /// channels.
    fn sum(&self, draft: &mut Draft, scale: f64) -> Result<(), Defect> {
        let Reader { at, value, channels, rank, reading } = self.reader;
        // A mean is divided by the number of remaining channels.
        let divisor = if *reading == Reading::Mean { self.kept.len() as f64 } else { 1.0 };
        let weight =
            |place: usize| 1.0 + self.estimate.shares.iter().map(|shares| shares[place]).sum::<f64>();
        let weights: Vec<f32> =
            (0..self.kept.len()).map(|place| (weight(place) * scale * divisor) as f32).collect();
        let mut dims = vec![1; rank - channels.axis];
        dims[0] = weights.len();
        let weights = Tensor::from_f32(&format!("{value}/weights"), &dims, &weights)?;
        let weights = draft.add_constant(weights);
        let weighted = draft.fresh(&format!("{value}/weighted"));
        let mul = draft.make("Mul", &[value, &weights], &weighted, []);
        draft.nodes[*at].input[0] = weighted;
        draft.nodes.push(mul);
        let shift = self.estimate.constants.iter().sum::<f64>() * scale;
        add_behind(draft, *at, Tensor::from_f32(&format!("{value}/shift"), &[], &[shift as f32])?);
        Ok(())
    }
}

/// Replaces the number of channels in the target of a `Reshape`.
fn retarget(draft: &mut Draft, target: &Target, (width, left): (usize, usize)) -> Result<(), Defect> {
    let Target { at, made } = target;
    let (old, new) = ((width * made.run) as i64, (left * made.run) as i64);
    let Some(name) = draft.nodes[*at].at(1).map(str::to_owned) else { return Ok(()) };
    if let Some(renamed) = renumbered(draft, &name, made.axis, (old, new))? {
        draft.nodes[*at].input[1] = renamed;
        return Ok(());
    }
    // The target is computed: a concatenation of sizes, one of which is the number of channels.
    let makes = |draft: &Draft, name: &str| {
        draft.nodes.iter().position(|node| node.output.iter().any(|made| made == name))
    };
    let mut maker = makes(draft, &name);
    while let Some(cast) = maker.filter(|&at| draft.nodes[at].is(&["Cast", "Identity"])) {
        maker = makes(draft, &draft.nodes[cast].input[0]);
    }
    let Some(concat) = maker.filter(|&at| draft.nodes[at].is(&["Concat"])) else { return Ok(()) };
    let mut axis = made.axis;
    for place in 0..draft.nodes[concat].input.len() {
        let name = draft.nodes[concat].input[place].clone();
        // A part that is not a constant is one size.
        let length = draft.constants.get(&name).map_or(1, Tensor::len);
        if axis < length {
            if let Some(renamed) = renumbered(draft, &name, axis, (old, new))? {
                draft.nodes[concat].input[place] = renamed;
            }
            break;
        }
        axis -= length;
    }
    Ok(())
}

/// The name of a list of sizes in which `old` in this place became `new`; `None` if it is not a constant.
fn renumbered(
    draft: &mut Draft,
    name: &str,
    place: usize,
    (old, new): (i64, i64),
) -> Result<Option<String>, Defect> {
    let Some(constant) = draft.constants.get(name) else { return Ok(None) };
    let mut sizes = constant.to_i64()?;
    if sizes.get(place) != Some(&old) {
        return Ok(Some(name.to_owned()));
    }
    sizes[place] = new;
    let changed = match constant.datatype() {
        DataType::Int32 => {
            let data: Vec<u8> = sizes.iter().flat_map(|&size| (size as i32).to_le_bytes()).collect();
            Tensor::new(name, constant.datatype(), constant.dims(), data.into())?
        }
        _ => Tensor::from_i64(name, constant.dims(), &sizes)?,
    };
    Ok(Some(draft.add_constant(changed)))
}
