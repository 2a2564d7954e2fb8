//! Exact rewrites: save time without changing the answers, and remove what would hinder the families.
//!
//! Engines rewrite graphs too, but only by patterns known to their authors. These rewrites cover what engines leave: a
//! one-hot matrix times weights becomes a lookup, operators on looked-up rows are applied to the table once, a function
//! before a maximum moves behind it, and a normalisation behind a convolution becomes part of its weights.
//!
//! The rule of a rewrite says that the answers do not change, and a check confirms it: the rewritten graph must give the
//! deployed model's outputs on calibration rows, up to rounding. Otherwise it is not used.

mod fuse;
mod idle;
mod lookup;
mod maximum;

use std::collections::BTreeSet;

use parm_parity_models::onnx::ops::axes;
use parm_parity_models::onnx::proto::NodeProto;
use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{DataType, Tensor};

use crate::Error;
use crate::graph::{Size, Survey, probe, tidy, types};
use crate::rows::Rows;
use crate::workshop::Workshop;

/// Shorter sums take no time.
const FEWEST: usize = 16;

/// Applies all rewrites, or all except that functions stay before a maximum.
pub(crate) fn rewrite(
    workshop: &Workshop,
    draft: &Draft,
    rows: &Rows,
    postpones: bool,
) -> Result<Draft, Error> {
    let mut draft = draft.clone();
    fuse::gather(&mut draft);
    fuse::fold(&mut draft)?;
    let survey = Survey::of(workshop, &draft, rows)?;
    idle::settle(&mut draft, &survey)?;
    idle::bypass(&mut draft, &survey);
    lookup::look_up(&mut draft, &survey)?;
    lookup::precompute(&mut draft)?;
    if postpones {
        maximum::postpone(&mut draft, &survey)?;
    }
    tidy(&mut draft);
    settle(workshop, draft, rows)
}

/// Replaces steps by faster ones that `prune` and `layers` do not recognise: they read the graph without it, `int8` with it.
///
/// Engines sum quickly along the last axis and number by number along others: a layer normalisation over positions spends
/// more time on its two sums than on the rest. A product with a row of ones reads the same numbers in memory order.
pub(crate) fn quicken(workshop: &Workshop, draft: &Draft, rows: &Rows) -> Result<Draft, Error> {
    let survey = Survey::of(workshop, draft, rows)?;
    let (types, mut quick) = (types(draft), draft.clone());
    for at in 0..quick.nodes.len() {
        let node = quick.nodes[at].clone();
        let (Some(read), Some(made)) = (node.at(0), node.only_output()) else { continue };
        let summed = summed(&quick, &survey, &node).filter(|_| types.get(read) == Some(&DataType::Float));
        let Some((count, axis)) = summed else { continue };
        let each = if node.is(&["ReduceMean"]) { 1.0 / count as f32 } else { 1.0 };
        let ones = Tensor::from_f32(&format!("{made}/ones"), &[1, count], &vec![each; count])?;
        let ones = quick.add_constant(ones);
        if node.int("keepdims").unwrap_or(1) != 0 {
            quick.nodes[at] = quick.make("MatMul", &[&ones, read], made, []);
            continue;
        }
        let sums = quick.fresh(&format!("{made}/sums"));
        quick.nodes[at] = quick.make("MatMul", &[&ones, read], &sums, []);
        let mut squeeze = quick.make("Squeeze", &[&sums], made, []);
        quick.give(&mut squeeze, "axes", &[axis], 13)?;
        quick.nodes.push(squeeze);
    }
    quick.forget(|_| true);
    quick.sort();
    Ok(quick)
}

/// The length of each sum over the axis before the last, and that axis.
fn summed(draft: &Draft, survey: &Survey, node: &NodeProto) -> Option<(usize, i64)> {
    let sizes = survey.sizes(node.at(0).filter(|_| node.is(&["ReduceSum", "ReduceMean"]))?)?;
    let rank = sizes.len() as i64;
    let [axis] = axes(draft, node, rank)?[..] else { return None };
    // The rows are not one of its dimensions, and more than one number per row remains.
    let [_, .., Size::Fixed(count), Size::Fixed(beside)] = sizes else { return None };
    (axis == rank - 2 && rank > 2 && *count >= FEWEST && *beside > 1).then_some((*count, axis))
}

/// The most elements of a result.
const LARGEST: usize = 1 << 26;

/// Replaces nodes that only read constants by their results: exporters reshape biases, convert weights and compute sizes in
/// the graph, and no family recognises a weight behind such a node. The engine computes them, so no operator needs a rule
/// here. A graph whose results the engine cannot return stays as it is.
pub(crate) fn settle(workshop: &Workshop, draft: Draft, rows: &Rows) -> Result<Draft, Error> {
    let types = types(&draft);
    let outputs: BTreeSet<&str> = draft.graph().output.iter().map(|output| output.name.as_str()).collect();
    let mut settled: BTreeSet<String> = BTreeSet::new();
    for node in &draft.nodes {
        let mut reads = node.input.iter().filter(|name| !name.is_empty());
        let is_constant = reads.all(|name| draft.constants.contains_key(name) || settled.contains(name));
        let is_random = node.op_type.starts_with("Random") || node.is(&["Bernoulli", "Multinomial"]);
        let is_known = |name: &str| types.get(name).is_some_and(|kind| kind.to_protocol().is_some());
        let made = node.only_output().filter(|made| is_known(made) && !outputs.contains(made));
        if is_constant && !node.input.is_empty() && !is_random {
            settled.extend(made.map(str::to_owned));
        }
    }
    // Only results that other nodes read are wanted.
    let is_read = |name: &String| {
        draft.nodes.iter().any(|node| {
            node.input.contains(name) && !node.only_output().is_some_and(|made| settled.contains(made))
        })
    };
    let values: Vec<String> = settled.iter().filter(|name| is_read(name)).cloned().collect();
    if values.is_empty() {
        return Ok(draft);
    }
    let model = probe(&draft, &values)?;
    let Ok(mut runner) = workshop.load("constants", model.bytes()) else { return Ok(draft) };
    let Ok(results) = runner.run(&rows.first(1)?, 0..1) else { return Ok(draft) };
    let mut folded = draft.clone();
    for (name, result) in values.iter().zip(results) {
        let datatype = types.get(name).copied().unwrap_or(DataType::Float);
        if datatype.to_protocol() != Some(result.datatype()) || result.len() > LARGEST {
            return Ok(draft);
        }
        let tensor = Tensor::new(name, datatype, result.shape(), result.data().clone())?;
        folded.constants.insert(name.clone(), tensor);
    }
    folded.nodes.retain(|node| !node.only_output().is_some_and(|made| settled.contains(made)));
    folded.forget(|_| true);
    // Several nodes may have read one result: each gets its own copy again.
    Ok(Draft::new(&folded.finish()?)?)
}

#[cfg(test)]
mod tests {
    use parm_parity_models::onnx::{Attribute, BatchNorm, Builder, Conv, Dim, Value};
    use parm_random::Random;

    use super::*;
    use crate::testing::{Stage, operators};

    type Rows = parm_protocol::Tensor;

    /// The operators of the rewritten graph, after a check that its outputs equal the original's.
    fn rewritten(builder: Builder, rows: Rows) -> Vec<String> {
        let (model, stage) = (builder.build().unwrap(), Stage::new());
        let rows = stage.rows(&model, &[rows]);
        let before = stage.answers(&model, &rows);
        let draft = settle(&stage.workshop, Draft::new(&model).unwrap(), &rows).unwrap();
        let draft = rewrite(&stage.workshop, &draft, &rows, true).unwrap();
        let draft = quicken(&stage.workshop, &draft, &rows).unwrap();
        let after = stage.answers(&draft.clone().finish().unwrap(), &rows);
        for (before, after) in before.iter().zip(&after) {
            assert!((before - after).abs() <= 1e-5 * (1.0 + before.abs()), "{before} became {after}");
        }
        operators(&draft)
    }

    fn floats(row: &[usize]) -> Rows {
        let shape = [&[4], row].concat();
        let values = Random::new(5).normals(shape.iter().product());
        Rows::from_f32(shape.as_slice(), &values).unwrap()
    }

    fn numbers(builder: &mut Builder, name: &str, dims: &[usize], values: &[f32]) -> String {
        builder.constant(Tensor::from_f32(name, dims, values).unwrap())
    }

    #[test]
    fn one_hot_product_becomes_a_lookup_in_an_activated_table() {
        // One-hot rows of tokens, as exporters of other frameworks write them, and an embedding with an activation.
        let mut builder = Builder::new("embedding", 1);
        let batch = Dim::Symbol("batch".into());
        let shape = Some(vec![batch.clone(), Dim::Fixed(6)]);
        let tokens = builder.input(Value { name: "tokens".into(), datatype: DataType::Int64, shape });
        let mut whole = |name: &str, dims: &[usize], values: &[i64]| {
            builder.constant(Tensor::from_i64(name, dims, values).unwrap())
        };
        let (target, tail) = (whole("target", &[3], &[-1, 6, 1]), whole("tail", &[2], &[6, 9]));
        let counts = whole("counts", &[1, 1, 9], &[0, 1, 2, 3, 4, 5, 6, 7, 8]);
        let values = builder.random("w").uniforms(1.0, 36);
        let weight = numbers(&mut builder, "w", &[9, 4], &values);
        let bias = numbers(&mut builder, "b", &[1, 1, 4], &[0.3, -0.2, 0.1, 0.7]);
        let apart = builder.node("Reshape", "apart", &[&tokens, &target]);
        let shape = builder.node_with("Shape", "shape", &[&tokens], [("start", 0.into()), ("end", 1.into())]);
        let wide = builder.node_with("Concat", "wide", &[&shape, &tail], [("axis", 0.into())]);
        let expanded = builder.node("Expand", "expanded", &[&apart, &wide]);
        let equal = builder.node("Equal", "equal", &[&expanded, &counts]);
        let hot = builder.node_with("Cast", "hot", &[&equal], [("to", (DataType::Float as i64).into())]);
        let product = builder.node("MatMul", "product", &[&hot, &weight]);
        let sum = builder.node("Add", "sum", &[&product, &bias]);
        let gate = builder.node("Sigmoid", "gate", &[&sum]);
        builder.node("Mul", "y", &[&sum, &gate]);
        let shape = Some(vec![batch, Dim::Fixed(6), Dim::Fixed(4)]);
        builder.output(Value { name: "y".into(), datatype: DataType::Float, shape });
        // Tokens outside the vocabulary give rows of zeros.
        let tokens: Vec<u8> = (-4..32i64).flat_map(i64::to_le_bytes).collect();
        let rows = Rows::new(parm_protocol::DataType::Int64, [6, 6].as_slice(), tokens.into()).unwrap();
        assert_eq!(rewritten(builder, rows), ["Clip", "Gather", "Reshape", "Squeeze"]);
    }

    #[test]
    fn function_of_a_convolution_moves_behind_its_maximum() {
        let (mut builder, x) = Builder::reading("pooled", 3, Value::batch_of_f32("x", &[2, 5, 5]));
        let layer = Conv { bias: false, ..Conv::same(2, 3, 3) };
        let conv = builder.conv("conv", &x, layer).unwrap();
        let norm = builder.batch_norm("norm", &conv, BatchNorm { channels: 3 }).unwrap();
        // The largest values lie where the function increases.
        let shift = numbers(&mut builder, "shift", &[1, 3, 1, 1], &[1.0, 2.0, 3.0]);
        let idle = builder.node("Identity", "idle", &[&norm]);
        let shifted = builder.node("Add", "shifted", &[&idle, &shift]);
        let gate = builder.node("Sigmoid", "gate", &[&shifted]);
        let swish = builder.node("Mul", "swish", &[&shifted, &gate]);
        builder.node("GlobalMaxPool", "y", &[&swish]);
        builder.output(Value::batch_of_f32("y", &[3, 1, 1]));
        let found = rewritten(builder, floats(&[2, 5, 5]));
        assert_eq!(found, ["Add", "Conv", "GlobalMaxPool", "Identity", "Mul", "Sigmoid"]);
    }

    #[test]
    fn normalisation_and_reshaped_constants_become_convolution_weights() {
        let (mut builder, x) = Builder::reading("folded", 3, Value::batch_of_f32("x", &[2, 5, 5]));
        let conv = builder.conv("conv", &x, Conv::same(2, 3, 3)).unwrap();
        let norm = builder.batch_norm("norm", &conv, BatchNorm { channels: 3 }).unwrap();
        let bias = numbers(&mut builder, "b", &[3], &[-3.0, 0.0, 1.0]);
        let target = builder.constant(Tensor::from_i64("target", &[4], &[1, -1, 1, 1]).unwrap());
        let shaped = builder.node("Reshape", "shaped", &[&bias, &target]);
        let shifted = builder.node("Add", "shifted", &[&norm, &shaped]);
        let factor = numbers(&mut builder, "factor", &[1], &[0.5]);
        builder.node("Mul", "y", &[&shifted, &factor]);
        builder.output(Value::batch_of_f32("y", &[3, 5, 5]));
        assert_eq!(rewritten(builder, floats(&[2, 5, 5])), ["Conv"]);
    }

    #[test]
    fn value_with_several_readers_is_not_folded() {
        let (mut builder, x) = Builder::reading("shared", 3, Value::batch_of_f32("x", &[2, 5, 5]));
        let conv = builder.conv("conv", &x, Conv::same(2, 3, 3)).unwrap();
        let shift = numbers(&mut builder, "shift", &[3, 1, 1], &[-3.0, 0.0, 1.0]);
        let shifted = builder.node("Add", "shifted", &[&conv, &shift]);
        builder.node_with("Concat", "y", &[&conv, &shifted], [("axis", Attribute::Int(1))]);
        builder.output(Value::batch_of_f32("y", &[6, 5, 5]));
        assert_eq!(rewritten(builder, floats(&[2, 5, 5])), ["Add", "Concat", "Conv"]);
    }

    #[test]
    fn packed_weights_become_those_that_nodes_compute() {
        let (mut builder, x) = Builder::reading("packed", 1, Value::batch_of_f32("x", &[3]));
        let mut bytes = |name: &str, dims: &[usize], data: &[u8]| {
            builder.constant(Tensor::new(name, DataType::Int8, dims, data.to_vec().into()).unwrap())
        };
        let (weight, zero) = (bytes("w", &[3, 2], &[1, 2, 3, 4, 250, 6]), bytes("zero", &[2], &[1, 0]));
        let scale = numbers(&mut builder, "scale", &[2], &[0.5, 0.25]);
        let axis = [("axis", Attribute::Int(1))];
        let wide = builder.node_with("DequantizeLinear", "wide", &[&weight, &scale, &zero], axis);
        builder.node("MatMul", "y", &[&x, &wide]);
        builder.output(Value::batch_of_f32("y", &[2]));
        assert_eq!(rewritten(builder, floats(&[3])), ["MatMul"]);
    }

    #[test]
    fn long_sums_over_the_axis_before_the_last_become_products() {
        let sums = |axis: i64, keepdims: i64, datatype: DataType| {
            let (mut builder, x) = Builder::reading("sums", 3, Value::batch_of_f32("x", &[20, 3]));
            let to = |datatype: DataType| [("to", (datatype as i64).into())];
            let read = builder.node_with("Cast", "read", &[&x], to(datatype));
            let axes = builder.constant(Tensor::from_i64("axes", &[1], &[axis]).unwrap());
            let sum = builder.node_with("ReduceSum", "sum", &[&read, &axes], [("keepdims", keepdims.into())]);
            builder.node_with("Cast", "y", &[&sum], to(DataType::Float));
            builder.output(Value { shape: None, ..Value::batch_of_f32("y", &[]) });
            let found = rewritten(builder, floats(&[20, 3]));
            (found.contains(&"MatMul".to_owned()), found.contains(&"ReduceSum".to_owned()))
        };
        assert_eq!(sums(-2, 0, DataType::Float), (true, false));
        assert_eq!(sums(1, 1, DataType::Float), (true, false));
        assert_eq!(sums(2, 1, DataType::Float), (false, true), "the last axis");
        assert_eq!(sums(1, 1, DataType::Int64), (false, true), "whole numbers");
    }

    /// `x * clip(x + 3, 0, top) / 6` behind a convolution, in one of the orders that exporters write.
    fn written_out(form: &str, top: f32) -> Vec<String> {
        let (mut builder, x) = Builder::reading("swish", 3, Value::batch_of_f32("x", &[2, 5, 5]));
        let conv = builder.conv("conv", &x, Conv::same(2, 3, 3)).unwrap();
        let mut number =
            |name: &str, number: f32, dims: &[usize]| numbers(&mut builder, name, dims, &[number]);
        let (three, six, sixth) =
            (number("three", 3.0, &[1]), number("six", 6.0, &[]), number("sixth", 1.0 / 6.0, &[1]));
        let (zero, top) = (number("zero", 0.0, &[]), number("top", top, &[]));
        let shifted = builder.node("Add", "shifted", &[&three, &conv]);
        let bounded = builder.node("Clip", "bounded", &[&shifted, &zero, &top]);
        match form {
            "product first" => {
                let product = builder.node("Mul", "product", &[&conv, &bounded]);
                builder.node("Div", "y", &[&product, &six]);
            }
            "quotient first" => {
                let share = builder.node("Mul", "share", &[&bounded, &sixth]);
                builder.node("Mul", "y", &[&share, &conv]);
            }
            _ => _ = builder.node("Div", "y", &[&bounded, &six]),
        }
        builder.output(Value::batch_of_f32("y", &[3, 5, 5]));
        rewritten(builder, floats(&[2, 5, 5]))
    }

    #[test]
    fn decomposed_hard_sigmoid_and_swish_become_operators() {
        assert_eq!(written_out("product first", 6.0), ["Conv", "HardSigmoid", "Mul"]);
        assert_eq!(written_out("quotient first", 6.0), ["Conv", "HardSigmoid", "Mul"]);
        assert_eq!(written_out("sigmoid", 6.0), ["Conv", "HardSigmoid"]);
        assert!(written_out("product first", 5.0).contains(&"Clip".into()), "its maximum is below one");
    }
}
