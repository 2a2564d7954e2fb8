//! Unpacks weights that a node converts to 32-bit floats: 8-bit weights behind `DequantizeLinear`, and 16-bit ones behind
//! `Cast`. All families need the weights themselves. The 32-bit values are those that the nodes compute at each run.

use std::collections::BTreeSet;

use parm_parity_models::onnx::proto::{NodeProto, ValueInfoProto};
use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{DataType, Defect, Tensor, Value};

use super::dynamic::widen;
use crate::graph::NodeExt;

/// Replaces such nodes by their result, and computes a graph with 16-bit weights, or products of 8-bit values, in 32 bits.
pub(crate) fn unpack(draft: Draft) -> Result<Draft, Defect> {
    widened(converted(widen(draft)?)?)
}

fn converted(mut draft: Draft) -> Result<Draft, Defect> {
    let outputs: BTreeSet<String> = draft.graph().output.iter().map(|output| output.name.clone()).collect();
    let mut kept = Vec::with_capacity(draft.nodes.len());
    let before = draft.nodes.len();
    for node in std::mem::take(&mut draft.nodes) {
        let result = node.only_output().filter(|name| !outputs.contains(*name)).map(str::to_owned);
        match result.and_then(|name| Some((unpacked(&draft, &node)?.renamed(&name), name))) {
            Some((tensor, name)) => drop(draft.constants.insert(name, tensor)),
            None => kept.push(node),
        }
    }
    draft.nodes = kept;
    if draft.nodes.len() == before {
        return Ok(draft);
    }
    // Several nodes may have read one result: each gets its own copy again.
    draft.forget(|_| true);
    Draft::new(&draft.finish()?)
}

/// The graph in 32 bits, between its own inputs and outputs; unchanged if it has no 16-bit weights, or holds inner graphs
/// or 16-bit attributes.
fn widened(mut draft: Draft) -> Result<Draft, Defect> {
    let is_half = |tensor: &Tensor| tensor.datatype() == DataType::Float16;
    let is_fixed = |node: &NodeProto| {
        let half = DataType::Float16 as i32;
        let mut all = node.attribute.iter();
        node.int("dtype") == Some(half.into())
            || all.any(|one| {
                one.g.is_some()
                    || !one.graphs.is_empty()
                    || one.t.as_ref().is_some_and(|t| t.data_type == half)
            })
    };
    if !draft.constants.values().any(is_half) || draft.nodes.iter().any(is_fixed) {
        return Ok(draft);
    }
    for tensor in draft.constants.values_mut().filter(|tensor| is_half(tensor)) {
        *tensor = Tensor::from_f32(tensor.name(), tensor.dims(), &tensor.to_f32()?)?;
    }
    for node in draft.nodes.iter_mut().filter(|node| node.is(&["Cast"])) {
        for to in node.attribute.iter_mut().filter(|one| one.name == "to") {
            to.i =
                to.i.map(|kind| if kind == DataType::Float16 as i64 { DataType::Float as i64 } else { kind });
        }
    }
    let halves = |declared: &[ValueInfoProto]| {
        let values = declared.iter().map(Value::from_proto);
        values.filter(|one| one.datatype == DataType::Float16).map(|one| one.name).collect::<Vec<_>>()
    };
    let (inputs, outputs) = (halves(&draft.graph().input), halves(&draft.graph().output));
    for name in inputs {
        let wide = draft.fresh(&format!("{name}.wide"));
        let readers = draft.nodes.iter_mut().flat_map(|node| &mut node.input);
        readers.filter(|input| **input == name).for_each(|input| input.clone_from(&wide));
        let cast = draft.make("Cast", &[&name], &wide, [("to", (DataType::Float as i64).into())]);
        draft.nodes.insert(0, cast);
    }
    for name in outputs {
        let wide = draft.fresh(&format!("{name}.wide"));
        let values = draft.nodes.iter_mut().flat_map(|node| node.input.iter_mut().chain(&mut node.output));
        values.filter(|value| **value == name).for_each(|value| value.clone_from(&wide));
        let cast = draft.make("Cast", &[&wide], &name, [("to", (DataType::Float16 as i64).into())]);
        draft.nodes.push(cast);
    }
    draft.forget(|_| true);
    Ok(draft)
}

/// The result of a node that converts a constant to 32-bit floats.
fn unpacked(draft: &Draft, node: &NodeProto) -> Option<Tensor> {
    let constant = |place: usize| node.at(place).and_then(|name| draft.constants.get(name));
    let packed = constant(0)?;
    if node.is(&["Cast"]) && node.int("to") == Some(DataType::Float as i64) {
        return Tensor::from_f32(packed.name(), packed.dims(), &packed.to_f32().ok()?).ok();
    }
    if !node.is(&["DequantizeLinear"]) || node.int("block_size").unwrap_or(0) != 0 {
        return None;
    }
    let scales = constant(1).filter(|scale| scale.datatype() == DataType::Float)?.to_f32().ok()?;
    let zeros = match node.at(2).filter(|name| !name.is_empty()) {
        Some(_) => constant(2)?.to_i64().ok()?,
        None => vec![0; scales.len()],
    };
    let (dims, values) = (packed.dims(), packed.to_i64().ok()?);
    let axis = node.int("axis").unwrap_or(1);
    let axis = usize::try_from(if axis < 0 { axis + dims.len() as i64 } else { axis }).ok()?;
    let each = match scales.len() {
        1 => values.len().max(1),
        count if dims.get(axis) == Some(&count) => dims[axis + 1..].iter().product::<usize>().max(1),
        _ => return None,
    };
    if zeros.len() != scales.len() {
        return None;
    }
    let value = |(at, value): (usize, &i64)| {
        let channel = at / each % scales.len();
        (value - zeros[channel]) as f32 * scales[channel]
    };
    let values: Vec<f32> = values.iter().enumerate().map(value).collect();
    Tensor::from_f32(packed.name(), dims, &values).ok()
}

#[cfg(test)]
mod tests {
    use parm_parity_models::onnx::{Attribute, Builder};

    use super::*;
    use crate::testing::{Stage, operators};

    #[test]
    fn packed_weights_become_those_that_nodes_compute() {
        let mut builder = Builder::new("packed", 1);
        let x = builder.input(Value::batch_of_f32("x", &[3]));
        let bytes = |name: &str, dims: &[usize], data: &[u8]| {
            Tensor::new(name, DataType::Int8, dims, data.to_vec().into()).unwrap()
        };
        let weight = builder.constant(bytes("w", &[3, 2], &[1, 2, 3, 4, 250, 6]));
        let scale = builder.constant(Tensor::from_f32("scale", &[2], &[0.5, 0.25]).unwrap());
        let zero = builder.constant(bytes("zero", &[2], &[1, 0]));
        let axis = [("axis", Attribute::Int(1))];
        let wide = builder.node_with("DequantizeLinear", "wide", &[&weight, &scale, &zero], axis);
        let first = builder.node("MatMul", "first", &[&x, &wide]);
        let half: Vec<u8> =
            [0x3c00u16, 0x4000, 0x3800, 0xbc00].iter().flat_map(|bits| bits.to_le_bytes()).collect();
        let half = Tensor::new("half", DataType::Float16, &[2, 2], half.into()).unwrap();
        let half = builder.constant(half);
        let to = [("to", Attribute::Int(DataType::Float as i64))];
        let half = builder.node_with("Cast", "cast", &[&half], to);
        builder.node("MatMul", "y", &[&first, &half]);
        builder.output(Value::batch_of_f32("y", &[2]));
        let (model, stage) = (builder.build().unwrap(), Stage::new());
        let values = [1.0, -2.0, 0.5, 3.0, 0.0, 7.0];
        let rows =
            stage.rows(&model, &[parm_protocol::Tensor::from_f32([2, 3].as_slice(), &values).unwrap()]);
        let draft = unpack(Draft::new(&model).unwrap()).unwrap();
        assert_eq!(operators(&draft), ["MatMul", "MatMul"]);
        let unpacked = draft.finish().unwrap();
        assert_eq!(stage.answers(&model, &rows), stage.answers(&unpacked, &rows));
    }

    #[test]
    fn graph_of_16_bits_is_computed_in_32() {
        let mut builder = Builder::new("half", 1);
        let half = |name: &str| Value { datatype: DataType::Float16, ..Value::batch_of_f32(name, &[2]) };
        let x = builder.input(half("x"));
        let data: Vec<u8> =
            [0x3c00u16, 0x4000, 0x3800, 0xbc00].iter().flat_map(|bits| bits.to_le_bytes()).collect();
        let weight = builder.constant(Tensor::new("w", DataType::Float16, &[2, 2], data.into()).unwrap());
        let product = builder.node("MatMul", "product", &[&x, &weight]);
        builder.node("Relu", "y", &[&product]);
        builder.output(half("y"));
        let (model, stage) = (builder.build().unwrap(), Stage::new());
        let array = parm_protocol::Tensor::from_f32([2, 2].as_slice(), &[1.0, -2.0, 0.5, 3.0]).unwrap();
        let rows = stage.rows(&model, &[array]);
        let draft = unpack(Draft::new(&model).unwrap()).unwrap();
        assert_eq!(operators(&draft), ["Cast", "Cast", "MatMul", "Relu"]);
        assert!(draft.constants.values().all(|tensor| tensor.datatype() == DataType::Float));
        let run = |model: &[u8]| stage.workshop.load("half", model).unwrap().run(&rows, 0..2).unwrap();
        assert_eq!(run(model.bytes()), run(draft.finish().unwrap().bytes()));
    }
}
