//! Changes of single nodes: their axes, their summands, and inner values that become outputs.

use std::collections::HashMap;

use parm_parity_models::onnx::proto::NodeProto;
use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{DataType, Defect, Model, Tensor, Value};

use super::{Links, sweep};
use crate::Error;

/// Sets the axes of a node as its operator version expects them.
pub(crate) fn with_axes(
    draft: &mut Draft,
    mut node: NodeProto,
    numbers: Vec<i64>,
    as_input_from: i64,
) -> NodeProto {
    if draft.opset() < as_input_from {
        node.set("axes", numbers);
    } else if let Ok(tensor) = Tensor::from_i64(&format!("{}/axes", node.name), &[numbers.len()], &numbers) {
        node.input.push(draft.add_constant(tensor));
    }
    node
}

/// Adds a summand per output to a linear operator: to its bias, or behind it.
pub(crate) fn add_bias(draft: &mut Draft, at: usize, shift: &[f32]) -> Result<(), Defect> {
    let node = &draft.nodes[at];
    let made = node.only_output().unwrap_or_default().to_owned();
    let bias = match node.at(2).map(|name| &draft.constants[name]) {
        Some(bias) => summed(bias, shift)?,
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

fn summed(constant: &Tensor, shift: &[f32]) -> Result<Tensor, Defect> {
    let sums: Vec<f32> = constant.to_f32()?.iter().zip(shift).map(|(a, b)| a + b).collect();
    constant.with_f32(&sums)
}

/// Adds a product's summand to the addition behind it, or inserts one.
fn add_to_next(draft: &mut Draft, at: usize, (made, bias): (&str, Tensor)) -> Result<(), Defect> {
    let next = Links::of(draft).only_reader(made).filter(|&next| draft.nodes[next].is(&["Add"]));
    let place = next.and_then(|next| {
        let fits = |name: &String| {
            let constant = draft.constants.get(name);
            constant.is_some_and(|one| one.len() == bias.len() && one.dims().last() == Some(&bias.len()))
        };
        Some((next, draft.nodes[next].input.iter().position(fits)?))
    });
    let Some((next, place)) = place else {
        add_behind(draft, at, bias);
        return Ok(());
    };
    let sum = summed(&draft.constants[&draft.nodes[next].input[place]], &bias.to_f32()?)?;
    draft.nodes[next].input[place] = draft.add_constant(sum);
    Ok(())
}

/// Adds a constant behind a node.
pub(crate) fn add_behind(draft: &mut Draft, at: usize, constant: Tensor) {
    let made = draft.nodes[at].only_output().unwrap_or_default().to_owned();
    let (before, constant) = (draft.fresh(&format!("{made}/before")), draft.add_constant(constant));
    draft.nodes[at].output = vec![before.clone()];
    let add = draft.make("Add", &[&before, &constant], &made, []);
    draft.nodes.push(add);
}

/// A model that outputs these values only. Their types must be known.
pub(crate) fn probe(
    draft: &Draft,
    values: &[String],
    types: &HashMap<String, DataType>,
) -> Result<Model, Error> {
    let mut probe = draft.clone();
    let declared = values.iter().map(|name| {
        let datatype = types.get(name).copied().unwrap_or(DataType::Float);
        Value { name: name.clone(), datatype, shape: None }.to_proto()
    });
    probe.graph_mut().output = declared.collect();
    sweep(&mut probe);
    Ok(probe.finish()?)
}
