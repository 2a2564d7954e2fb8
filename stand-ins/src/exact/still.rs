//! Replaces constants that are only reshaped with constants of the new shape.
//!
//! Neither an engine nor `fold` recognises a bias that is reshaped before it is added.

use parm_parity_models::onnx::proto::NodeProto;
use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{Defect, Tensor};

use crate::graph::{Links, NodeExt};

/// Replaces such nodes with constants. Nodes stand in execution order.
pub(super) fn settle(draft: &mut Draft) -> Result<(), Defect> {
    let links = Links::of(draft);
    for node in std::mem::take(&mut draft.nodes) {
        match shaped(draft, &node).filter(|(made, _)| !links.is_kept(made)) {
            Some((made, dims)) => {
                let read = &draft.constants[&node.input[0]];
                let tensor = Tensor::new(&made, read.datatype(), &dims, read.data().clone())?;
                draft.constants.insert(made, tensor);
            }
            None => draft.nodes.push(node),
        }
    }
    Ok(())
}

/// The result and its sizes if a node only reshapes a constant.
fn shaped(draft: &Draft, node: &NodeProto) -> Option<(String, Vec<usize>)> {
    let read = draft.constants.get(node.at(0)?)?;
    let dims: Vec<i64> = read.dims().iter().map(|&dim| dim as i64).collect();
    let numbers = |place: usize| draft.constants.get(node.at(place)?)?.to_i64().ok();
    let made = match node.op_type.as_str() {
        _ if !node.is(&[&node.op_type]) => return None,
        "Identity" => dims,
        "Reshape" if node.int("allowzero").unwrap_or(0) == 0 => {
            let mut target = numbers(1)?;
            for (at, size) in target.iter_mut().enumerate().filter(|(_, size)| **size == 0) {
                *size = *dims.get(at)?;
            }
            let known = target.iter().filter(|size| **size >= 0).copied().try_fold(1, i64::checked_mul)?;
            let open = target.iter_mut().filter(|size| **size < 0);
            open.for_each(|size| *size = (read.len() as i64).checked_div(known).unwrap_or(-1));
            target
        }
        "Unsqueeze" => {
            let axes = node.ints("axes").map(<[i64]>::to_vec).or_else(|| numbers(1))?;
            let rank = (dims.len() + axes.len()) as i64;
            let mut axes: Vec<i64> =
                axes.iter().map(|axis| if *axis < 0 { axis + rank } else { *axis }).collect();
            axes.sort_unstable();
            let mut made = dims;
            for axis in axes {
                made.insert(usize::try_from(axis).ok().filter(|at| *at <= made.len())?, 1);
            }
            made
        }
        _ => return None,
    };
    let made: Vec<usize> = made.into_iter().map(usize::try_from).collect::<Result<_, _>>().ok()?;
    let is_whole = made.iter().copied().try_fold(1, usize::checked_mul) == Some(read.len());
    is_whole.then(|| Some((node.only_output()?.to_owned(), made)))?
}

#[cfg(test)]
mod tests {
    use parm_parity_models::onnx::{Builder, Tensor, Value};

    use super::*;

    #[test]
    fn constant_stays_when_its_new_shape_overflows() {
        for target in [[1 << 33, 1 << 33, -1], [i64::MAX, i64::MAX, i64::MAX], [1 << 62, 8, 0]] {
            let mut graph = Builder::new("reshaped", 1);
            graph.constant(Tensor::from_f32("c", &[4], &[0.0; 4]).unwrap());
            graph.constant(Tensor::from_i64("s", &[3], &target).unwrap());
            graph.node("Reshape", "y", &["c", "s"]);
            graph.output(Value::batch_of_f32("y", &[4]));
            let draft = Draft::new(&graph.build().unwrap()).unwrap();
            assert_eq!(shaped(&draft, &draft.nodes[0]), None, "{target:?}");
        }
    }
}
