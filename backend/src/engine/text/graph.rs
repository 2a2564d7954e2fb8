//! The graph of an encoder with its pooling, for tools that rewrite graphs.

use parm_parity_models::onnx::proto::{NodeProto, TensorShapeProto, ValueInfoProto};
use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{Attribute, DataType, Defect, Model, Tensor};

use super::pooling::Pooling;

/// The input that hides padding.
const MASK: &str = "attention_mask";

/// From this version on, axes are inputs of operators and no longer attributes.
const AXES_ARE_INPUTS: i64 = 13;

/// The model with one vector for each row in each output that had one for each token.
pub(super) fn pooled(model: &Model, pooling: Pooling) -> Result<Model, Defect> {
    let mut draft = Draft::new(model)?;
    let outputs: Vec<String> = draft
        .graph()
        .output
        .iter()
        .filter(|output| is_of_tokens(output))
        .map(|output| output.name.clone())
        .collect();
    for output in outputs {
        let tokens = draft.fresh(&format!("{output}/tokens"));
        for node in &mut draft.nodes {
            let names = node.input.iter_mut().chain(&mut node.output);
            names.filter(|name| **name == output).for_each(|name| name.clone_from(&tokens));
        }
        draft.forget(|name| name == output);
        match pooling {
            Pooling::First => first(&mut draft, &tokens, &output)?,
            Pooling::Mean => mean(&mut draft, &tokens, &output)?,
        }
        let declared = draft.graph_mut().output.iter_mut().find(|declared| declared.name == output);
        if let Some(shape) = declared.and_then(shape_of) {
            shape.dim.remove(1);
        }
    }
    draft.finish()
}

fn first(draft: &mut Draft, tokens: &str, output: &str) -> Result<(), Defect> {
    let zero = draft.add_constant(Tensor::from_i64("first", &[], &[0])?);
    let node = draft.make("Gather", &[tokens, &zero], output, [("axis", Attribute::Int(1))]);
    draft.nodes.push(node);
    Ok(())
}

fn mean(draft: &mut Draft, tokens: &str, output: &str) -> Result<(), Defect> {
    let [seen, wide, kept, sum, count, some] =
        ["seen", "wide", "kept", "sum", "count", "some"].map(|name| draft.fresh(&format!("{output}/{name}")));
    let one = draft.add_constant(Tensor::from_f32("one", &[], &[1.0])?);
    let cast = draft.make("Cast", &[MASK], &seen, [("to", Attribute::Int(DataType::Float as i64))]);
    draft.nodes.push(cast);
    along(draft, "Unsqueeze", &seen, 2, &wide)?;
    let masked = draft.make("Mul", &[tokens, &wide], &kept, []);
    draft.nodes.push(masked);
    along(draft, "ReduceSum", &kept, 1, &sum)?;
    along(draft, "ReduceSum", &wide, 1, &count)?;
    // A row without tokens has the mean 0.
    let at_least = draft.make("Max", &[&count, &one], &some, []);
    let divided = draft.make("Div", &[&sum, &some], output, []);
    draft.nodes.extend([at_least, divided]);
    Ok(())
}

/// Adds an operator along one axis. A sum loses the axis.
fn along(draft: &mut Draft, op: &str, input: &str, axis: i64, output: &str) -> Result<(), Defect> {
    let mut node: NodeProto = if draft.opset() >= AXES_ARE_INPUTS {
        let axes = draft.add_constant(Tensor::from_i64("axes", &[1], &[axis])?);
        draft.make(op, &[input, &axes], output, [])
    } else {
        draft.make(op, &[input], output, [("axes", Attribute::Ints(vec![axis]))])
    };
    if op == "ReduceSum" {
        node.attribute.push(Attribute::Int(0).to_proto("keepdims"));
    }
    draft.nodes.push(node);
    Ok(())
}

fn is_of_tokens(output: &ValueInfoProto) -> bool {
    let tensor = output.r#type.as_ref().and_then(|kind| kind.tensor_type.as_ref());
    tensor.is_some_and(|tensor| {
        let is_float = tensor.elem_type == DataType::Float as i32;
        is_float && tensor.shape.as_ref().is_some_and(|shape| shape.dim.len() == 3)
    })
}

fn shape_of(output: &mut ValueInfoProto) -> Option<&mut TensorShapeProto> {
    output.r#type.as_mut()?.tensor_type.as_mut()?.shape.as_mut()
}
