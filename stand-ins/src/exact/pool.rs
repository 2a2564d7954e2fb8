//! What rises goes before a maximum pool, so that it becomes part of the convolution there.
//!
//! The greatest of `f(x)` is `f` of the greatest where f rises. A normalisation with factors above zero and a rectifier between a
//! convolution and its pool cost nothing: the first is folded into the weights, the second engines put into the layer. Behind the pool
//! they are steps of their own, and 8-bit copies turn numbers back and forth for them. (Behind a global maximum it is the other way
//! around: one number is left there, so functions are moved behind it.)

use parm_parity_models::onnx::Defect;
use parm_parity_models::onnx::proto::NodeProto;
use parm_parity_models::onnx::rewrite::Draft;

use super::fold::follower_of;
use crate::graph::{Links, NodeExt};

/// Moves what rises from behind pools to before them.
pub(super) fn advance(draft: &mut Draft) -> Result<(), Defect> {
    // Each move changes who reads what, and brings a node before its pool: there are no more of them than nodes.
    for _ in 0..draft.nodes.len() {
        let links = Links::of(draft);
        let mut pair = None;
        for at in 0..draft.nodes.len() {
            pair = pair.or(risen(draft, &links, at)?.map(|next| (at, next)));
        }
        let Some((pool, next)) = pair else { break };
        let (read, made) = (draft.nodes[pool].input[0].clone(), draft.nodes[next].output[0].clone());
        let between = draft.fresh(&format!("{made}/whole"));
        let pooled = draft.nodes[pool].output[0].clone();
        let place = draft.nodes[next].input.iter().position(|name| *name == pooled).unwrap_or(0);
        draft.nodes[next].input[place] = read;
        draft.nodes[next].output[0].clone_from(&between);
        draft.nodes[pool].input[0] = between;
        draft.nodes[pool].output[0] = made;
    }
    Ok(())
}

/// The node behind a pool that rises, where a convolution is before the pool and nobody else reads what lies between.
fn risen(draft: &Draft, links: &Links, pool: usize) -> Result<Option<usize>, Defect> {
    let node = &draft.nodes[pool];
    let (true, Some(read), Some(made)) = (node.is(&["MaxPool"]), node.at(0), node.only_output()) else {
        return Ok(None);
    };
    let Some(next) = links.only_reader(made).filter(|_| links.only_reader(read) == Some(pool)) else {
        return Ok(None);
    };
    let Some(channels) = channels(draft, links, read) else { return Ok(None) };
    let rises = match follower_of(draft, next, made, channels)? {
        Some(affine) => affine.rises(),
        None => draft.nodes[next].is(&["Relu"]),
    };
    Ok(rises.then_some(next))
}

/// Output channels and rank of the convolution that makes a value, through what was moved behind it already.
fn channels(draft: &Draft, links: &Links, value: &str) -> Option<(usize, usize)> {
    let mut at = value;
    loop {
        let node: &NodeProto = &draft.nodes[links.maker(at)?];
        if node.is(&["Conv"]) {
            let dims = draft.constants.get(node.at(1)?)?.dims();
            return Some((*dims.first()?, dims.len()));
        }
        let is_passed = node.is(&["BatchNormalization", "Add", "Mul", "Relu"]);
        at = node.input.iter().find(|name| is_passed && !draft.constants.contains_key(*name))?;
        links.only_reader(at)?;
    }
}
