//! Raises a graph of an older ONNX operator version to the version that 8-bit copies use.
//!
//! Exporters write old versions for years, so this is common. A changed meaning, and an attribute that became an input,
//! are rewritten; an operator that nothing replaces is an error that names it. All others mean the same in both versions:
//! a candidate's answers are compared with the deployed model's, so an operator that does not would show.

use std::collections::BTreeMap;

use parm_parity_models::onnx::proto::{GraphProto, NodeProto};
use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{Attribute, DataType, Defect, Tensor, Value};

/// The first version whose `DequantizeLinear` has a scale per channel.
pub(crate) const PER_CHANNEL: i64 = 13;
/// The oldest supported version: in earlier ones too many operators had another meaning.
const OLDEST: i64 = 9;
/// Raises the graph to [`PER_CHANNEL`], unless it has that version or a newer one. The error names the obstacle.
pub(crate) fn raise(draft: &mut Draft) -> Result<(), String> {
    let version = draft.opset();
    if version >= PER_CHANNEL {
        return Ok(());
    }
    let refused = |obstacle: String| {
        format!(
            "8-bit numbers want version {PER_CHANNEL} of the operators, and {obstacle}: export the model anew"
        )
    };
    if version < OLDEST {
        return Err(refused(format!("those of version {version} mean too much else")));
    }
    let declared = draft.graph().output.iter().chain(&draft.graph().value_info).map(Value::from_proto);
    let ranks = declared.filter_map(|value| Some((value.name, value.shape?.len() as i64))).collect();
    let mut raised = Vec::with_capacity(draft.nodes.len());
    for node in draft.nodes.clone() {
        let op = node.op_type.clone();
        let nodes = raised_node(draft, node, version, &ranks).map_err(|defect| defect.to_string())?;
        let obstacle = || refused(format!("{op} of version {version} cannot be brought to it"));
        raised.extend(nodes.ok_or_else(obstacle)?);
    }
    draft.nodes = raised;
    draft.set_opset(PER_CHANNEL);
    Ok(())
}

/// The replacement of a node in the newer version; `None` if none is known. `ranks` are those that the file declares.
fn raised_node(
    draft: &mut Draft,
    mut node: NodeProto,
    version: i64,
    ranks: &BTreeMap<String, i64>,
) -> Result<Option<Vec<NodeProto>>, Defect> {
    if node.attribute.iter().filter_map(|attribute| attribute.g.as_ref()).any(needs_a_change) {
        return Ok(None);
    }
    if is_changed(&node) {
        match node.op_type.as_str() {
            "Squeeze" | "Unsqueeze" | "ReduceSum" => to_input(draft, &mut node, "axes", 1)?,
            "Split" => to_input(draft, &mut node, "split", 1)?,
            "Slice" if version < 10 => {
                if node.ints("axes").is_none() {
                    let count = node.ints("starts").map_or(0, <[i64]>::len) as i64;
                    node.set("axes", (0..count).collect::<Vec<i64>>());
                }
                for (place, name) in ["starts", "ends", "axes"].into_iter().enumerate() {
                    to_input(draft, &mut node, name, place + 1)?;
                }
            }
            "Pad" if version < 11 => {
                to_input(draft, &mut node, "pads", 1)?;
                to_input(draft, &mut node, "value", 2)?;
            }
            "Clip" if version < 11 => {
                to_input(draft, &mut node, "min", 1)?;
                to_input(draft, &mut node, "max", 2)?;
            }
            "TopK" if version < 10 => {
                let count = node.int("k").unwrap_or(1);
                node.set("k", vec![count]);
                to_input(draft, &mut node, "k", 1)?;
            }
            "Slice" | "Pad" | "Clip" | "TopK" => {}
            // Dropout has no effect in inference.
            "Dropout" => node.attribute.retain(|attribute| attribute.name != "ratio"),
            "Resize" if version >= 11 => {
                if node.text("coordinate_transformation_mode").as_deref() == Some("tf_half_pixel_for_nn") {
                    return Ok(None);
                }
                // An empty constant used to stand for an omitted input.
                let is_empty = |name: &String| draft.constants.get(name).is_some_and(Tensor::is_empty);
                node.input.iter_mut().skip(1).filter(|name| is_empty(name)).for_each(String::clear);
            }
            "Softmax" | "LogSoftmax" | "Hardmax" => return Ok(Some(along_the_last(draft, node, ranks))),
            _ => return Ok(None),
        }
    }
    Ok(Some(vec![node]))
}

/// Whether an operator needs a change, or no newer one replaces it.
fn is_changed(node: &NodeProto) -> bool {
    node.is(&["Squeeze", "Unsqueeze", "ReduceSum", "Split", "Slice", "Pad", "Clip", "TopK"])
        || node.is(&["Dropout", "Resize", "Softmax", "LogSoftmax", "Hardmax", "Upsample", "Scatter"])
}

/// Whether a node of a body needs a change, which is not made there.
fn needs_a_change(body: &GraphProto) -> bool {
    body.node.iter().any(|node| {
        is_changed(node)
            || node.attribute.iter().filter_map(|attribute| attribute.g.as_ref()).any(needs_a_change)
    })
}

/// Older versions of softmax flatten all axes from `axis` on: the value is reshaped to two dimensions for it.
fn along_the_last(draft: &mut Draft, mut node: NodeProto, ranks: &BTreeMap<String, i64>) -> Vec<NodeProto> {
    let axis = node.int("axis").unwrap_or(1);
    let rank = node.only_output().and_then(|made| ranks.get(made));
    node.set("axis", -1i64);
    if axis == -1 || rank.is_some_and(|&rank| axis + 1 == rank) {
        return vec![node];
    }
    let (read, made) = (node.input[0].clone(), node.output[0].clone());
    let [sizes, flat, done] = ["sizes", "flat", "done"].map(|name| draft.fresh(&format!("{made}/{name}")));
    let measure = draft.make("Shape", &[&read], &sizes, []);
    let flatten = draft.make("Flatten", &[&read], &flat, [("axis", Attribute::Int(axis))]);
    (node.input[0], node.output[0]) = (flat, done.clone());
    let back = draft.make("Reshape", &[&done, &sizes], &made, []);
    vec![measure, flatten, node, back]
}

/// Moves an attribute, a list of integers or a number, to the input at this position.
fn to_input(draft: &mut Draft, node: &mut NodeProto, name: &str, place: usize) -> Result<(), Defect> {
    let Some(attribute) = node.attribute(name) else { return Ok(()) };
    let label = format!("{}/{name}", node.name);
    let tensor = match attribute.f {
        Some(number) => Tensor::new(&label, DataType::Float, &[], number.to_le_bytes().to_vec().into())?,
        None => Tensor::from_i64(&label, &[attribute.ints.len()], &attribute.ints)?,
    };
    node.attribute.retain(|attribute| attribute.name != name);
    node.input.resize(node.input.len().max(place + 1), String::new());
    node.input[place] = draft.add_constant(tensor);
    Ok(())
}

#[cfg(test)]
mod tests {
    use parm_parity_models::onnx::Builder;
    use parm_random::Random;

    use super::*;
    use crate::testing::Stage;

    /// The outputs of nodes of an old version on rows of 4 x 6, and those of the raised graph. `build` names the last
    /// value, whose rows have these sizes.
    fn both(
        version: i64,
        sizes: &[usize],
        build: impl FnOnce(&mut Builder, &str) -> String,
    ) -> (Draft, [Vec<f32>; 2]) {
        let (mut builder, x) = Builder::reading("old", 1, Value::batch_of_f32("x", &[4, 6]));
        let last = build(&mut builder, &x);
        builder.output(Value::batch_of_f32(&last, sizes));
        let model = builder.opset(version).build().unwrap();
        let (stage, values) = (Stage::new(), Random::new(2).normals(3 * 24));
        let array = parm_protocol::Tensor::from_f32([3, 4, 6].as_slice(), &values).unwrap();
        let rows = stage.rows(&model, &[array]);
        let mut draft = Draft::new(&model).unwrap();
        raise(&mut draft).unwrap();
        assert_eq!(draft.opset(), PER_CHANNEL);
        let raised = draft.clone().finish().unwrap();
        (draft, [&model, &raised].map(|model| stage.answers(model, &rows)))
    }

    fn ints(numbers: &[i64]) -> Attribute {
        Attribute::Ints(numbers.to_vec())
    }

    #[test]
    fn raised_attribute_becomes_an_input_with_equal_outputs() {
        let (draft, [old, new]) = both(9, &[1, 2], |builder, x| {
            let cut = [("starts", ints(&[1, -4])), ("ends", ints(&[3, 6]))];
            let [starts, ends] = cut;
            let part = builder.node_with("Slice", "part", &[x], [starts, ends, ("axes", ints(&[1, 2]))]);
            let wide = builder.node_with(
                "Pad",
                "wide",
                &[&part],
                [("pads", ints(&[0, 0, 1, 0, 0, 1])), ("value", Attribute::Float(0.5))],
            );
            let bounded = builder.node_with("Clip", "bounded", &[&wide], [("max", Attribute::Float(0.7))]);
            let sums = builder.node_with("ReduceSum", "sums", &[&bounded], [("axes", ints(&[2]))]);
            let flat = builder.node_with("Squeeze", "flat", &[&sums], [("axes", ints(&[2]))]);
            builder.node_with("Unsqueeze", "y", &[&flat], [("axes", ints(&[1]))])
        });
        assert_eq!(old, new);
        assert!(old.iter().any(|value| *value != old[0]));
        let settings =
            draft.nodes.iter().flat_map(|node| &node.attribute).map(|setting| setting.name.as_str());
        assert_eq!(settings.collect::<Vec<_>>(), Vec::<&str>::new());
    }

    #[test]
    fn raised_softmax_still_normalises_over_flattened_axes() {
        for (axis, nodes) in [(Some(1), 4), (None, 4), (Some(2), 1), (Some(-1), 1)] {
            let (draft, [old, new]) = both(11, &[4, 6], |builder, x| match axis {
                Some(axis) => builder.node_with("Softmax", "y", &[x], [("axis", Attribute::Int(axis))]),
                None => builder.node("Softmax", "y", &[x]),
            });
            assert!(old.iter().zip(&new).all(|(a, b)| (a - b).abs() < 1e-6), "{axis:?}: {old:?} {new:?}");
            let row: f32 = new[..24].iter().sum();
            assert!((row - if nodes == 4 { 1.0 } else { 4.0 }).abs() < 1e-4, "{axis:?}: {row}");
            assert_eq!(draft.nodes.len(), nodes, "{axis:?}");
        }
    }

    #[test]
    fn raise_names_the_operator_that_it_cannot_convert() {
        let refused = |version: i64, op: &str| {
            let (mut builder, x) = Builder::reading("old", 1, Value::batch_of_f32("x", &[4, 6]));
            let y = builder.node(op, "y", &[&x]);
            builder.output(Value::batch_of_f32(&y, &[4, 6]));
            let mut draft = Draft::new(&builder.opset(version).build().unwrap()).unwrap();
            raise(&mut draft).unwrap_err()
        };
        assert!(refused(9, "Upsample").contains("Upsample of version 9"));
        assert!(refused(10, "Resize").contains("Resize of version 10"));
        assert!(refused(8, "Relu").contains("version 8"));
    }
}
