//! Rewrites softmax nodes between 8-bit values, which tract's optimisation breaks.
//!
//! tract 0.23.9 replaces a chain from `DequantizeLinear` to `QuantizeLinear` by a table of 256 results if each operator
//! in between keeps its input's axes. It computes the table by running the chain on all 256 values at once. A softmax
//! then normalises over the table instead of over its row, and every answer is wrong. A softmax that is written as
//! exponentials and sums reads its input twice, so it is not part of such a chain.

use tract_onnx::pb::{AttributeProto, ModelProto, NodeProto, TensorProto, tensor_proto};

/// The first operator set whose softmax normalises over one axis.
const ONE_AXIS: i64 = 13;
/// The first operator set whose `ReduceMax` has its axes as an input.
const AXES_AS_INPUT: i64 = 18;

/// Writes each softmax of a model with 8-bit values as `exp(x - max(x)) / sum(exp(x - max(x)))`.
pub(super) fn spell_out(proto: &mut ModelProto) {
    let is_default = |domain: &str| matches!(domain, "" | "ai.onnx");
    let set = proto.opset_import.iter().find(|set| is_default(&set.domain)).map_or(0, |set| set.version);
    let Some(graph) = proto.graph.as_mut().filter(|_| set >= ONE_AXIS) else { return };
    if !graph.node.iter().any(|node| node.op_type == "DequantizeLinear") {
        return;
    }
    let nodes = std::mem::take(&mut graph.node);
    for node in nodes {
        let is_softmax = node.op_type == "Softmax" && is_default(&node.domain);
        let ([x], [y]) = (&node.input[..], &node.output[..]) else {
            graph.node.push(node);
            continue;
        };
        if !is_softmax {
            graph.node.push(node);
            continue;
        }
        let axis = node.attribute.iter().find(|attribute| attribute.name == "axis").map_or(-1, |axis| axis.i);
        let named = |part: &str| format!("{y}/parm.{part}");
        let axes = named("axes");
        graph.initializer.push(TensorProto {
            name: axes.clone(),
            dims: vec![1],
            data_type: tensor_proto::DataType::Int64 as i32,
            int64_data: vec![axis],
            ..TensorProto::default()
        });
        let operator = |op: &str, output: String, inputs: &[&str]| NodeProto {
            name: output.clone(),
            op_type: op.into(),
            input: inputs.iter().map(ToString::to_string).collect(),
            output: vec![output],
            ..NodeProto::default()
        };
        let (max, less, exp, sum) = (named("max"), named("less"), named("exp"), named("sum"));
        let largest = match set >= AXES_AS_INPUT {
            true => operator("ReduceMax", max.clone(), &[x, &axes]),
            false => {
                let list = AttributeProto { name: "axes".into(), ints: vec![axis], ..integers() };
                NodeProto { attribute: vec![list], ..operator("ReduceMax", max.clone(), &[x]) }
            }
        };
        graph.node.extend([
            largest,
            operator("Sub", less.clone(), &[x, &max]),
            operator("Exp", exp.clone(), &[&less]),
            operator("ReduceSum", sum.clone(), &[&exp, &axes]),
            operator("Div", y.clone(), &[&exp, &sum]),
        ]);
    }
}

/// An attribute with a list of integers.
fn integers() -> AttributeProto {
    let kind = tract_onnx::pb::attribute_proto::AttributeType::Ints as i32;
    AttributeProto { r#type: kind, ..AttributeProto::default() }
}
