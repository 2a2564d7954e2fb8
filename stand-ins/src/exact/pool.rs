//! Moves increasing functions from behind a maximum pool to before it, so that they become part of the convolution
//! there.
//!
//! The maximum of `f(x)` is `f` of the maximum if f increases. A normalisation with positive factors and a rectifier
//! cost nothing between a convolution and its pool: the first is folded into the weights, the second is fused into
//! the layer by engines. Behind the pool they are separate steps, and 8-bit copies convert numbers back and forth for
//! them. A global maximum leaves one number, so there functions move the other way.

use parm_parity_models::onnx::Defect;
use parm_parity_models::onnx::proto::NodeProto;
use parm_parity_models::onnx::rewrite::Draft;

use super::fold::follower_of;
use crate::graph::{Links, NodeExt};

/// Moves increasing functions from behind pools to before them.
pub(super) fn advance(draft: &mut Draft) -> Result<(), Defect> {
    let links = Links::of(draft);
    for pool in 0..draft.nodes.len() {
        let chain = risen(draft, &links, pool)?;
        let (Some(&(first, place)), Some(&(last, _))) = (chain.first(), chain.last()) else { continue };
        let (read, made) = (draft.nodes[pool].input[0].clone(), draft.nodes[last].output[0].clone());
        let between = draft.fresh(&format!("{made}/whole"));
        draft.nodes[first].input[place] = read;
        draft.nodes[last].output[0].clone_from(&between);
        draft.nodes[pool].input[0] = between;
        draft.nodes[pool].output[0] = made;
    }
    Ok(())
}

/// The chain of increasing nodes behind a pool, each with the position of its input. Empty unless the nodes can
/// become part of a convolution before the pool and no other node reads the values between.
fn risen(draft: &Draft, links: &Links, pool: usize) -> Result<Vec<(usize, usize)>, Defect> {
    let (node, mut chain) = (&draft.nodes[pool], Vec::new());
    let (true, Some(read), Some(mut made)) = (node.is(&["MaxPool"]), node.at(0), node.only_output()) else {
        return Ok(chain);
    };
    let Some(channels) = channels(draft, links, read).filter(|_| links.only_reader(read) == Some(pool))
    else {
        return Ok(chain);
    };
    while let Some(next) = links.only_reader(made) {
        let affine = follower_of(draft, next, made, channels)?;
        // Behind a rectifier no node can be folded into the weights.
        let is_last = draft.nodes[next].is(&["Relu"]);
        let (true, Some(after)) =
            (is_last || affine.is_some_and(|affine| affine.rises()), draft.nodes[next].only_output())
        else {
            break;
        };
        let place = draft.nodes[next].input.iter().position(|name| name == made).unwrap_or(0);
        chain.push((next, place));
        if is_last {
            break;
        }
        made = after;
    }
    Ok(chain)
}

/// Output channels and rank of the convolution that makes a value, with only foldable nodes between.
fn channels(draft: &Draft, links: &Links, value: &str) -> Option<(usize, usize)> {
    let mut at = value;
    loop {
        let node: &NodeProto = &draft.nodes[links.maker(at)?];
        if node.is(&["Conv"]) {
            let dims = draft.constants.get(node.at(1)?)?.dims();
            return Some((*dims.first()?, dims.len()));
        }
        let mut varying = node.input.iter().filter(|name| !draft.constants.contains_key(*name));
        at = varying.next().filter(|_| node.is(&["BatchNormalization", "Add", "Mul"]))?;
        if varying.next().is_some() {
            return None;
        }
        links.only_reader(at)?;
    }
}
