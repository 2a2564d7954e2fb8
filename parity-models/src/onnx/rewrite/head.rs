//! Widens the last layers for slots.
//!
//! The last layers are those from which no other layer is reached on the way to the outputs. Their weights and biases
//! are repeated for each slot, so that at first every slot produces the deployed prediction. The tail, which follows
//! them, is after most networks nothing, a bias, or a softmax. Copies of these for each slot would take much of a small
//! model's time. So flat rows of k predictions are reshaped to `[N, k, C]`, on which such a tail works unchanged; any other
//! tail is copied for each slot.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;

use super::super::proto::{NodeProto, reads, writes};
use super::super::{Defect, Dim, Layer, LayerOp, Tensor, Value};
use super::draft::Draft;
use super::slot::{self, Names, Plain, Row, plain};
use super::weights::repeat;

/// One of the last layers.
#[derive(Clone)]
pub(super) struct Last {
    pub(super) at: usize,
    value: String,
    /// Features of one slot.
    features: usize,
    layer: Layer,
}

/// The graph after its last layers.
pub(super) struct Head {
    pub(super) layers: Vec<Last>,
    /// Positions of the nodes that depend on them.
    tail: Vec<usize>,
}

impl Draft {
    /// Widens the last layers and every output to `slots` predictions, along the new second dimension of the outputs.
    pub fn widen_head(&mut self, slots: NonZeroUsize) -> Result<(), Defect> {
        let slots = slots.get();
        if slots == 1 {
            return Ok(());
        }
        let head = Head::trace(self)?;
        for layer in &head.layers {
            widen(self, layer, slots)?;
        }
        let stale: BTreeSet<String> = head.values(self);
        self.forget(|name| stale.contains(name));
        if !reshape(self, &head, slots)? {
            copy_tail(self, &head, slots)?;
        }
        for output in &mut self.graph_mut().output {
            let mut wide = Value::from_proto(output);
            if let Some(shape) = wide.shape.as_mut().filter(|shape| !shape.is_empty()) {
                shape.insert(1, Dim::Fixed(slots));
            }
            *output = wide.to_proto();
        }
        Ok(())
    }
}

impl Head {
    pub(super) fn trace(draft: &Draft) -> Result<Self, Defect> {
        let candidates = candidates(draft);
        let after: Vec<BTreeSet<usize>> =
            candidates.iter().map(|last| followers(draft, &[last.at])).collect();
        let is_last = |after: &BTreeSet<usize>| !candidates.iter().any(|other| after.contains(&other.at));
        let layers = candidates.iter().zip(&after).filter(|(_, after)| is_last(after));
        let layers: Vec<Last> = layers.map(|(last, _)| last.clone()).collect();
        let places: Vec<usize> = layers.iter().map(|last| last.at).collect();
        let head = Self { tail: followers(draft, &places).into_iter().collect(), layers };
        let made = head.values(draft);
        match draft.graph().output.iter().find(|output| !made.contains(&output.name)) {
            Some(output) => Err(Defect::Unusable(format!(
                "output '{}' does not come from a Conv, Gemm or MatMul with constant weights: slots need a last layer to widen: \
                 use another code",
                output.name
            ))),
            None => Ok(head),
        }
    }

    /// Values with a new meaning: the outputs of the last layers and of the tail.
    fn values(&self, draft: &Draft) -> BTreeSet<String> {
        let tail = self.tail.iter().flat_map(|&at| writes(&draft.nodes[at])).map(str::to_owned);
        tail.chain(self.layers.iter().map(|last| last.value.clone())).collect()
    }
}

/// Layers from which an output is reached without passing another layer.
fn candidates(draft: &Draft) -> Vec<Last> {
    let mut wanted: BTreeSet<&str> = draft.graph().output.iter().map(|output| output.name.as_str()).collect();
    let mut candidates = Vec::new();
    for (at, node) in draft.nodes.iter().enumerate().rev() {
        if !writes(node).any(|name| wanted.contains(name)) {
            continue;
        }
        match Layer::whole(draft, node) {
            Some(layer) => {
                let features = draft.constants[&node.input[1]].dims()[layer.makes];
                candidates.push(Last { at, value: node.output[0].clone(), features, layer });
            }
            None => wanted.extend(reads(node)),
        }
    }
    candidates
}

/// Positions of the nodes that depend on those in `places`.
fn followers(draft: &Draft, places: &[usize]) -> BTreeSet<usize> {
    let mut made: BTreeSet<&str> = places.iter().flat_map(|&at| writes(&draft.nodes[at])).collect();
    let mut followers = BTreeSet::new();
    for (at, node) in draft.nodes.iter().enumerate() {
        if reads(node).iter().any(|name| made.contains(name)) {
            made.extend(writes(node));
            followers.insert(at);
        }
    }
    followers
}

fn widen(draft: &mut Draft, layer: &Last, slots: usize) -> Result<(), Defect> {
    let node = &draft.nodes[layer.at];
    let (name, bias) = (node.input[1].clone(), node.at(2).map(|bias| &draft.constants[bias]));
    let weight = repeat(&draft.constants[&name], layer.layer.makes, slots)?;
    if let Some(bias) = bias.filter(|bias| bias.dims().last() == Some(&layer.features)) {
        let wide = repeat(bias, bias.dims().len() - 1, slots)?;
        draft.constants.insert(wide.name().to_owned(), wide);
    }
    draft.constants.insert(name, weight);
    Ok(())
}

/// Splits the outputs of the last layers into slots, runs the tail once for each, and stacks the results.
fn copy_tail(draft: &mut Draft, head: &Head, slots: usize) -> Result<(), Defect> {
    let mut names: Vec<Names> = vec![Names::new(); slots];
    let mut back = Vec::new();
    for layer in &head.layers {
        let wide = draft.fresh(&format!("{}.wide", layer.value));
        draft.nodes[layer.at].output[0] = wide.clone();
        let (node, parts) = slot::split(draft, (&wide, layer.layer.axis), (slots, Some(layer.features)))?;
        back.push(node);
        names.iter_mut().zip(parts).for_each(|(names, part)| drop(names.insert(layer.value.clone(), part)));
    }
    for (slot, names) in names.iter_mut().enumerate() {
        back.extend(draft.copy(&head.tail, (&format!("slot{slot}"), true), names)?);
    }
    let outputs: Vec<String> = draft.graph().output.iter().map(|output| output.name.clone()).collect();
    for output in outputs {
        let mut stacked = Vec::with_capacity(slots);
        for names in &names {
            let row = draft.fresh(&format!("{output}.row"));
            let mut node = draft.make("Unsqueeze", &[&names[&output]], &row, []);
            draft.give(&mut node, "axes", &[1], 13)?;
            back.push(node);
            stacked.push(row);
        }
        let rows: Vec<&str> = stacked.iter().map(String::as_str).collect();
        back.push(draft.make("Concat", &rows, &output, [("axis", 1.into())]));
    }
    let nodes = std::mem::take(&mut draft.nodes).into_iter().enumerate();
    draft.nodes = nodes.filter(|(at, _)| !head.tail.contains(at)).map(|(_, node)| node).chain(back).collect();
    Ok(())
}

/// Reshapes the predictions for a simple tail, which needs no copies. `false` leaves the draft unchanged.
fn reshape(draft: &mut Draft, head: &Head, slots: usize) -> Result<bool, Defect> {
    let Some(constants) = simple(draft, head) else { return Ok(false) };
    let [layer] = head.layers.as_slice() else { return Ok(false) };
    for (at, place) in constants {
        // Each slot has numbers of its own, so that training can tell them apart.
        let constant = &draft.constants[&draft.nodes[at].input[place]];
        let rows = repeat(constant, constant.dims().len() - 1, slots)?.data().clone();
        let rows = Tensor::new(constant.name(), constant.datatype(), &[slots, layer.features], rows)?;
        draft.nodes[at].input[place] = draft.add_constant(rows);
    }
    for &at in head.tail.iter().filter(|&&at| draft.nodes[at].is(&SOFTMAX)).collect::<Vec<_>>() {
        draft.nodes[at].set("axis", 2i64);
    }
    let (value, target) = (&layer.value, [-1, slots as i64, layer.features as i64]);
    let wide = draft.fresh(&format!("{value}.wide"));
    draft.nodes[layer.at].output[0] = wide.clone();
    let shape = draft.add_constant(Tensor::from_i64(&format!("{value}.shape"), &[3], &target)?);
    let node = draft.make("Reshape", &[&wide, &shape], value, []);
    draft.nodes.insert(layer.at + 1, node);
    Ok(true)
}

const SOFTMAX: [&str; 2] = ["Softmax", "LogSoftmax"];

/// Whether the tail is one chain from one flat layer to the only output whose nodes work on each prediction alike; returns the
/// constants with a number per class, as nodes and inputs.
fn simple(draft: &Draft, head: &Head) -> Option<Vec<(usize, usize)>> {
    let ([layer], [output]) = (head.layers.as_slice(), draft.graph().output.as_slice()) else { return None };
    let declared = Value::from_proto(output);
    let is_flat = layer.layer.op == LayerOp::Gemm || declared.shape.is_some_and(|shape| shape.len() == 2);
    let (mut value, mut constants) = (layer.value.as_str(), Vec::new());
    for &at in &head.tail {
        let node = &draft.nodes[at];
        let is_chained = node.input.iter().filter(|input| *input == value).count() == 1;
        if !is_chained || node.output.len() != 1 {
            return None;
        }
        // Both for flat rows: 1 is the default of the old operator, -1 of the new one.
        let is_softmax = node.is(&SOFTMAX) && matches!(node.int("axis"), None | Some(1 | -1));
        if !is_softmax && plain(draft, node, Row::default()) != Some(Plain::Elementwise) {
            constants.push((at, row(draft, node, layer.features)?));
        }
        value = &node.output[0];
    }
    (is_flat && value == output.name).then_some(constants)
}

/// The input of a node that combines rows with a constant row of this length.
fn row(draft: &Draft, node: &NodeProto, features: usize) -> Option<usize> {
    let is_row = |name: &String| {
        let constant = draft.constants.get(name);
        constant
            .is_some_and(|c| c.len() == features && c.dims().last() == Some(&features) && c.dims().len() <= 2)
    };
    node.input.iter().position(is_row).filter(|_| node.is(&["Add", "Sub", "Mul", "Div"]))
}
