//! Replaces trained weights by random ones.
//!
//! The rules are those of the paper's framework: weights and biases of layers uniform within 1/sqrt(fan-in), recurrent
//! ones within 1/sqrt(hidden), embeddings normal, normalisation the identity. A constant without a rule stays: it may
//! be a mean to subtract or the coefficient of an activation.

use parm_random::Random;

use super::super::proto::NodeProto;
use super::super::{Defect, Tensor};
use super::draft::Draft;

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

/// The weights of one node, with the rule for each.
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
