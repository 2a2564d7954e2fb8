//! What derived graphs do to weights: repeat and scale them, divide them between the slots, or draw new ones.
//!
//! *Divided.* If the initial weights are equal for all slots, so are their gradients: training must first learn to tell the
//! queries apart, which takes long for many slots and may fail. Each slot therefore gets a k-th of the features of
//! every layer, and weights between features of different slots start at zero. The result is k thin networks next to
//! one another, and training may use the weights between them. Only the position of a feature decides its slot, so
//! features that are added or flattened together stay together. A graph that rearranges features gets a worse start.
//!
//! *Drawn.* The rules are those of the paper's framework: weights and biases of layers uniform within 1/sqrt(fan-in),
//! recurrent ones within 1/sqrt(hidden), embeddings normal, normalisation the identity. A constant without a rule stays: it
//! may be a mean to subtract or the coefficient of an activation.

use std::num::NonZeroUsize;

use bytes::{Bytes, BytesMut};
use parm_random::Random;

use super::super::proto::NodeProto;
use super::super::{Defect, Layer, Tensor};
use super::draft::Draft;

/// `tensor` repeated `times` times along `axis`: `a b` becomes `a b a b`.
pub(super) fn repeat(tensor: &Tensor, axis: usize, times: usize) -> Result<Tensor, Defect> {
    let mut dims = tensor.dims().to_vec();
    let block = match dims[..axis].iter().product::<usize>() {
        0 => 0,
        outer => tensor.data().len() / outer,
    };
    dims[axis] = dims[axis].checked_mul(times).ok_or_else(|| tensor.overflow())?;
    let data = tensor.data();
    let repeated: Bytes = match block {
        0 => Bytes::new(),
        block => {
            let mut repeated = BytesMut::with_capacity(data.len() * times);
            for run in data.chunks_exact(block) {
                (0..times).for_each(|_| repeated.extend_from_slice(run));
            }
            repeated.freeze()
        }
    };
    Tensor::new(tensor.name(), tensor.datatype(), &dims, repeated)
}

pub(super) fn scale(tensor: &Tensor, factor: f32) -> Result<Tensor, Defect> {
    let values: Vec<f32> = tensor.to_f32()?.iter().map(|value| value * factor).collect();
    tensor.with_f32(&values)
}

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

/// The initial values of a weight.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    Uniform { fan_in: usize },
    Normal,
    Filled(f32),
}

impl Draft {
    /// Draws new weights; they are equal for equal seeds and names.
    pub fn reinitialise(&mut self, seed: u64) -> Result<(), Defect> {
        let rules: Vec<(String, Rule)> = self.nodes.iter().flat_map(|node| rules(self, node)).collect();
        for (name, rule) in rules {
            let Some(weight) = self.constants.get(&name) else { continue };
            if !weight.datatype().is_float() {
                continue;
            }
            let drawn = draw(weight, rule, Random::named(seed, &name))?;
            self.constants.insert(name, drawn);
        }
        Ok(())
    }
}

fn draw(weight: &Tensor, rule: Rule, mut random: Random) -> Result<Tensor, Defect> {
    let values = match rule {
        Rule::Uniform { fan_in } => random.uniforms((fan_in.max(1) as f32).sqrt().recip(), weight.len()),
        Rule::Normal => random.normals(weight.len()),
        Rule::Filled(value) => vec![value; weight.len()],
    };
    weight.with_f32(&values)
}

fn rules(draft: &Draft, node: &NodeProto) -> Vec<(String, Rule)> {
    let rule_at = |places: &[(usize, Rule)]| {
        let named = places.iter().filter_map(|&(at, rule)| Some((node.input.get(at)?.clone(), rule)));
        named.filter(|(name, _)| draft.constants.contains_key(name)).collect()
    };
    let uniform = |fan_in| [(1, Rule::Uniform { fan_in }), (2, Rule::Uniform { fan_in })];
    let (one, zero) = (Rule::Filled(1.0), Rule::Filled(0.0));
    match (fan_in(draft, node), node.op_type.as_str()) {
        (Some(fan_in), _) => rule_at(&uniform(fan_in)),
        (None, "BatchNormalization") => rule_at(&[(1, one), (2, zero), (3, zero), (4, one)]),
        (None, "LayerNormalization" | "InstanceNormalization" | "GroupNormalization") => {
            rule_at(&[(1, one), (2, zero)])
        }
        (None, "PRelu") => rule_at(&[(1, Rule::Filled(0.25))]),
        (None, "Gather") => rule_at(&[(0, Rule::Normal)]),
        (None, "LSTM" | "GRU" | "RNN") => {
            let hidden = node.int("hidden_size").unwrap_or(1).max(1) as usize;
            [1, 2, 3].map(|at| rule_at(&[(at, Rule::Uniform { fan_in: hidden })])).concat()
        }
        (None, "Add") => product_before(draft, node).map_or_else(Vec::new, |fan_in| {
            [0, 1].map(|at| rule_at(&[(at, Rule::Uniform { fan_in })])).concat()
        }),
        _ => Vec::new(),
    }
}

/// Number of values that produce one output of a layer.
fn fan_in(draft: &Draft, node: &NodeProto) -> Option<usize> {
    let dims = draft.constants.get(node.input.get(1)?)?.dims();
    if node.is(&["Conv", "ConvTranspose"]) {
        return Some(dims.iter().skip(1).fold(1, |product, &dim| product.saturating_mul(dim)));
    }
    if node.is(&["Gemm"]) {
        return dims.get(if node.int("transB").unwrap_or(0) != 0 { 1 } else { 0 }).copied();
    }
    if node.is(&["MatMul"]) {
        return dims.len().checked_sub(2).map(|axis| dims[axis]);
    }
    None
}

/// The fan-in of the matrix product to which `add` adds a bias.
fn product_before(draft: &Draft, add: &NodeProto) -> Option<usize> {
    let makes_input = |node: &&NodeProto| node.output.iter().any(|output| add.input.contains(output));
    let matmul = draft.nodes.iter().find(makes_input).filter(|node| node.is(&["MatMul"]))?;
    fan_in(draft, matmul)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_tensor_is_repeated() {
        let empty = Tensor::from_f32("w", &[0, 3], &[]).unwrap();
        assert_eq!(repeat(&empty, 1, 4).unwrap().dims(), [0, 12]);
    }

    fn ones(dims: &[usize]) -> Tensor {
        Tensor::from_f32("w", dims, &vec![1.0; dims.iter().product()]).unwrap()
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
