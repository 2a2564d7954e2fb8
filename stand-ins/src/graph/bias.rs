//! Adds a constant to the output of a linear operator: to its bias, or behind it.

use parm_parity_models::onnx::proto::NodeProto;
use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{Defect, Tensor};

use super::NodeExt;

/// Adds a summand per output to a linear operator.
pub(crate) fn add_bias(draft: &mut Draft, at: usize, shift: &[f32]) -> Result<(), Defect> {
    let node = &draft.nodes[at];
    let made = node.only_output().unwrap_or_default().to_owned();
    let bias = match node.at(2).map(|name| &draft.constants[name]) {
        Some(bias) => {
            let sums: Vec<f32> = bias.to_f32()?.iter().zip(shift).map(|(a, b)| a + b).collect();
            bias.with_f32(&sums)?
        }
        None => Tensor::from_f32(&format!("{made}/bias"), &[shift.len()], shift)?,
    };
    if node.is(&["MatMul"]) {
        return add_to_next(draft, at, (&made, bias));
    }
    let bias = draft.add_constant(bias);
    let inputs = &mut draft.nodes[at].input;
    inputs.resize(3, String::new());
    inputs[2] = bias;
    Ok(())
}

/// Adds a product's summand to the addition behind it, or inserts one.
fn add_to_next(draft: &mut Draft, at: usize, (made, bias): (&str, Tensor)) -> Result<(), Defect> {
    let mut readers =
        draft.nodes.iter().enumerate().filter(|(_, node)| node.input.iter().any(|name| name == made));
    if let (Some((next, node)), None) = (readers.next(), readers.next()) {
        let place = node.input.iter().position(|name| draft.constants.contains_key(name));
        let constant = place.map(|place| &draft.constants[&node.input[place]]);
        let fits =
            |constant: &&Tensor| constant.len() == bias.len() && constant.dims().last() == Some(&bias.len());
        let is_output = draft.graph().output.iter().any(|output| output.name == made);
        if let (Some(place), Some(constant)) =
            (place, constant.filter(fits).filter(|_| node.is(&["Add"]) && !is_output))
        {
            let sums: Vec<f32> = constant.to_f32()?.iter().zip(bias.to_f32()?).map(|(a, b)| a + b).collect();
            let sum = constant.with_f32(&sums)?;
            draft.nodes[next].input[place] = draft.add_constant(sum);
            return Ok(());
        }
    }
    add_behind(draft, at, bias);
    Ok(())
}

/// Adds a constant behind a node.
pub(crate) fn add_behind(draft: &mut Draft, at: usize, constant: Tensor) {
    let made = draft.nodes[at].only_output().unwrap_or_default().to_owned();
    let (before, constant) = (draft.fresh(&format!("{made}/before")), draft.add_constant(constant));
    draft.nodes[at].output = vec![before.clone()];
    let add: NodeProto = draft.make("Add", &[&before, &constant], &made, []);
    draft.nodes.push(add);
}
