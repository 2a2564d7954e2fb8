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

/// The nodes behind a pool that rise, one behind the other, each with the place of what it reads: where a convolution is before the
/// pool that they can become part of, and nobody else reads what lies between.
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
        // Behind a rectifier nothing becomes part of the weights any more.
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

/// Output channels and rank of the convolution that makes a value, with nothing between but what becomes part of it.
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
