//! Exact rewrites: save time without changing any output.
//!
//! Engines rewrite graphs too, but only by patterns known to their authors. These rewrites cover what engines leave:
//! a one-hot matrix times weights becomes a lookup, operators on looked-up rows are applied to the table once, a
//! function before a maximum moves behind it, and a normalisation behind a convolution becomes part of its weights.
//! Each also removes nodes that would hinder the other families.
//!
//! The rule of a rewrite says that no output changes, and a check confirms it: the rewritten graph must give the
//! deployed model's outputs on calibration rows, up to rounding. Otherwise it is not used.

mod dynamic;
mod fold;
mod idle;
mod lookup;
mod maximum;
mod pool;
mod still;
mod sums;
mod swish;
mod table;
mod unpack;

use parm_parity_models::onnx::rewrite::Draft;

pub(crate) use unpack::unpack;

use crate::Error;
use crate::graph::{Survey, sort, sweep};
use crate::rows::Rows;
use crate::workshop::Workshop;

/// How far a function may be moved out of a maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Maxima {
    /// A function that decreases before it increases is computed for the smallest value as well: exact for every
    /// input.
    Proven,
    /// A function is computed for the largest value only: exact if that lies on the increasing side, as on all
    /// calibration rows.
    Seen,
}

/// Applies the rewrites until none applies.
pub(crate) fn rewrite(
    workshop: &Workshop,
    draft: &Draft,
    rows: &Rows,
    maxima: Maxima,
) -> Result<Draft, Error> {
    let mut draft = draft.clone();
    still::settle(&mut draft)?;
    swish::gather(&mut draft);
    pool::advance(&mut draft)?;
    sort(&mut draft);
    fold::fold(&mut draft)?;
    let survey = Survey::of(workshop, &draft, rows)?;
    idle::settle(&mut draft, &survey)?;
    idle::bypass(&mut draft, &survey);
    lookup::look_up(&mut draft, &survey)?;
    table::precompute(&mut draft)?;
    maximum::postpone(&mut draft, &survey, maxima);
    draft.forget(|_| true);
    sweep(&mut draft);
    sort(&mut draft);
    Ok(draft)
}

/// Replaces steps by faster ones that the other families do not recognise; therefore it runs last.
pub(crate) fn quicken(workshop: &Workshop, draft: &Draft, rows: &Rows) -> Result<Draft, Error> {
    let mut quick = draft.clone();
    let survey = Survey::of(workshop, draft, rows)?;
    sums::multiply(&mut quick, &survey)?;
    quick.forget(|_| true);
    sort(&mut quick);
    Ok(quick)
}

#[cfg(test)]
mod tests {
    use parm_parity_models::onnx::{
        Attribute, BatchNorm, Builder, Conv, DataType, Dim, Model, Pool, Tensor, Value,
    };

    use super::*;
    use crate::testing::{Stage, operators};

    /// The rewritten graph, after a check that its outputs equal the original's.
    fn rewritten(model: &Model, rows: &[parm_protocol::Tensor], maxima: Maxima) -> Draft {
        let stage = Stage::new();
        let rows = stage.rows(model, rows);
        let before = stage.answers(model, &rows);
        let draft = rewrite(&stage.workshop, &Draft::new(model).unwrap(), &rows, maxima).unwrap();
        let draft = quicken(&stage.workshop, &draft, &rows).unwrap();
        let after = stage.answers(&draft.clone().finish().unwrap(), &rows);
        for (before, after) in before.iter().zip(&after) {
            assert!((before - after).abs() <= 1e-5 * (1.0 + before.abs()), "{before} became {after}");
        }
        draft
    }

    /// One-hot rows of tokens, as exporters of other frameworks write them, and an embedding with an activation.
    fn embedding() -> Model {
        let mut builder = Builder::new("embedding", 1);
        let batch = Dim::Symbol("batch".into());
        let shape = Some(vec![batch.clone(), Dim::Fixed(6)]);
        let tokens = builder.input(Value { name: "tokens".into(), datatype: DataType::Int64, shape });
        let target = builder.constant(Tensor::from_i64("target", &[3], &[-1, 6, 1]).unwrap());
        let counts =
            builder.constant(Tensor::from_i64("counts", &[1, 1, 9], &[0, 1, 2, 3, 4, 5, 6, 7, 8]).unwrap());
        let tail = builder.constant(Tensor::from_i64("tail", &[2], &[6, 9]).unwrap());
        let values = builder.random("w").uniforms(1.0, 36);
        let weight = builder.constant(Tensor::from_f32("w", &[9, 4], &values).unwrap());
        let bias = builder.constant(Tensor::from_f32("b", &[1, 1, 4], &[0.3, -0.2, 0.1, 0.7]).unwrap());
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
        builder.build().unwrap()
    }

    #[test]
    fn one_hot_product_becomes_a_lookup_in_an_activated_table() {
        // Tokens outside the vocabulary give rows of zeros.
        let tokens: Vec<u8> = (-4..32i64).flat_map(i64::to_le_bytes).collect();
        let rows =
            parm_protocol::Tensor::new(parm_protocol::DataType::Int64, [6, 6].as_slice(), tokens.into())
                .unwrap();
        let draft = rewritten(&embedding(), &[rows], Maxima::Proven);
        assert_eq!(operators(&draft), ["Clip", "Gather", "Reshape", "Squeeze"]);
    }

    /// A convolution with normalisation, an activation in two nodes, and a maximum.
    fn pooled() -> Model {
        let mut builder = Builder::new("pooled", 3);
        let x = builder.input(Value::batch_of_f32("x", &[2, 5, 5]));
        let layer = Conv { bias: false, ..Conv::same(2, 3, 3) };
        let conv = builder.conv("conv", &x, layer).unwrap();
        let norm = builder.batch_norm("norm", &conv, BatchNorm { channels: 3 }).unwrap();
        let shift = builder.constant(Tensor::from_f32("shift", &[1, 3, 1, 1], &[-3.0, 0.0, 1.0]).unwrap());
        let idle = builder.node("Identity", "idle", &[&norm]);
        let shifted = builder.node("Add", "shifted", &[&idle, &shift]);
        let gate = builder.node("Sigmoid", "gate", &[&shifted]);
        let swish = builder.node("Mul", "swish", &[&shifted, &gate]);
        builder.node("GlobalMaxPool", "y", &[&swish]);
        builder.output(Value::batch_of_f32("y", &[3, 1, 1]));
        builder.build().unwrap()
    }

    fn pictures() -> parm_protocol::Tensor {
        let values = parm_random::Random::new(5).normals(4 * 50);
        parm_protocol::Tensor::from_f32([4, 2, 5, 5].as_slice(), &values).unwrap()
    }

    #[test]
    fn non_monotonic_function_moves_behind_both_extremes() {
        let draft = rewritten(&pooled(), &[pictures()], Maxima::Proven);
        let names = operators(&draft);
        let count = |op: &str| names.iter().filter(|name| *name == op).count();
        assert_eq!(
            (count("GlobalMaxPool"), count("ReduceMin"), count("Sigmoid"), count("Max")),
            (1, 1, 2, 1)
        );
        assert_eq!((count("BatchNormalization"), count("Conv")), (0, 1));
    }

    #[test]
    fn normalisation_and_shift_become_convolution_weights() {
        let mut builder = Builder::new("folded", 3);
        let x = builder.input(Value::batch_of_f32("x", &[2, 5, 5]));
        let conv = builder.conv("conv", &x, Conv::same(2, 3, 3)).unwrap();
        let norm = builder.batch_norm("norm", &conv, BatchNorm { channels: 3 }).unwrap();
        let shift = builder.constant(Tensor::from_f32("shift", &[3, 1, 1], &[-3.0, 0.0, 1.0]).unwrap());
        let shifted = builder.node("Add", "shifted", &[&norm, &shift]);
        let factor = builder.constant(Tensor::from_f32("factor", &[1], &[0.5]).unwrap());
        builder.node("Mul", "y", &[&shifted, &factor]);
        builder.output(Value::batch_of_f32("y", &[3, 5, 5]));
        let draft = rewritten(&builder.build().unwrap(), &[pictures()], Maxima::Proven);
        assert_eq!(operators(&draft), ["Conv"]);
    }

    #[test]
    fn sums_over_the_axis_before_the_last_become_products() {
        for keepdims in [0, 1] {
            let mut builder = Builder::new("sums", 3);
            let x = builder.input(Value::batch_of_f32("x", &[20, 3]));
            let axes = builder.constant(Tensor::from_i64("axes", &[1], &[-2]).unwrap());
            let sum = builder.node_with("ReduceSum", "sum", &[&x, &axes], [("keepdims", keepdims.into())]);
            let mean = [("axes", Attribute::Ints(vec![1])), ("keepdims", keepdims.into())];
            let mean = builder.node_with("ReduceMean", "mean", &[&x], mean);
            builder.node("Mul", "y", &[&sum, &mean]);
            let shape: &[usize] = if keepdims == 1 { &[1, 3] } else { &[3] };
            builder.output(Value::batch_of_f32("y", shape));
            let values = parm_random::Random::new(5).normals(4 * 60);
            let rows = parm_protocol::Tensor::from_f32([4, 20, 3].as_slice(), &values).unwrap();
            let draft = rewritten(&builder.build().unwrap(), &[rows], Maxima::Proven);
            let kinds = operators(&draft);
            assert_eq!(kinds.iter().filter(|kind| *kind == "MatMul").count(), 2, "{kinds:?}");
            assert!(!kinds.iter().any(|kind| kind.starts_with("Reduce")), "{kinds:?}");
        }
    }

    #[test]
    fn sums_of_integers_stay() {
        let mut builder = Builder::new("sums", 3);
        let x = builder.input(Value::batch_of_f32("x", &[20, 3]));
        let to = |datatype: DataType| [("to", (datatype as i64).into())];
        let whole = builder.node_with("Cast", "whole", &[&x], to(DataType::Int64));
        let axes = builder.constant(Tensor::from_i64("axes", &[1], &[1]).unwrap());
        let sum = builder.node("ReduceSum", "sum", &[&whole, &axes]);
        builder.node_with("Cast", "y", &[&sum], to(DataType::Float));
        builder.output(Value::batch_of_f32("y", &[1, 3]));
        let values: Vec<f32> = (0..240).map(|n| n as f32).collect();
        let rows = parm_protocol::Tensor::from_f32([4, 20, 3].as_slice(), &values).unwrap();
        let draft = rewritten(&builder.build().unwrap(), &[rows], Maxima::Proven);
        assert_eq!(operators(&draft), ["Cast", "Cast", "ReduceSum"]);
    }

    #[test]
    fn nodes_behind_a_rectifier_stay_behind_the_pool() {
        let mut builder = Builder::new("pooled", 3);
        let x = builder.input(Value::batch_of_f32("x", &[2, 6, 6]));
        let conv = builder.conv("conv", &x, Conv::same(2, 3, 3)).unwrap();
        let relu = builder.node("Relu", "relu", &[&conv]);
        let pool = builder.max_pool("pool", &relu, Pool { kernel: 2, stride: 2, padding: 0 });
        builder.batch_norm("y", &pool, BatchNorm { channels: 3 }).unwrap();
        builder.output(Value::batch_of_f32("y", &[3, 3, 3]));
        let values = parm_random::Random::new(5).normals(4 * 72);
        let rows = parm_protocol::Tensor::from_f32([4, 2, 6, 6].as_slice(), &values).unwrap();
        let draft = rewritten(&builder.build().unwrap(), &[rows], Maxima::Proven);
        let ops: Vec<&str> = draft.nodes.iter().map(|node| node.op_type.as_str()).collect();
        assert_eq!(ops, ["Conv", "Relu", "MaxPool", "BatchNormalization"]);
    }

    #[test]
    fn sums_over_rows_or_the_last_axis_stay() {
        let mut builder = Builder::new("sums", 3);
        let x = builder.input(Value::batch_of_f32("x", &[20, 30]));
        let axes = builder.constant(Tensor::from_i64("axes", &[1], &[2]).unwrap());
        builder.node("ReduceSum", "y", &[&x, &axes]);
        builder.output(Value::batch_of_f32("y", &[20, 1]));
        let values = parm_random::Random::new(5).normals(4 * 600);
        let rows = parm_protocol::Tensor::from_f32([4, 20, 30].as_slice(), &values).unwrap();
        assert_eq!(operators(&rewritten(&builder.build().unwrap(), &[rows], Maxima::Proven)), ["ReduceSum"]);
    }

    /// A convolution, a pool, a normalisation with this factor for one channel, and a rectifier.
    fn pooled_first(factor: f32) -> Vec<String> {
        let mut builder = Builder::new("pooled", 3);
        let x = builder.input(Value::batch_of_f32("x", &[2, 6, 6]));
        let conv = builder.conv("conv", &x, Conv::same(2, 3, 3)).unwrap();
        let pool = builder.max_pool("pool", &conv, Pool { kernel: 2, stride: 2, padding: 0 });
        let norm = builder.batch_norm("norm", &pool, BatchNorm { channels: 3 }).unwrap();
        let sizes = builder.constant(Tensor::from_f32("sizes", &[3, 1, 1], &[1.0, factor, 0.2]).unwrap());
        let sized = builder.node("Mul", "sized", &[&norm, &sizes]);
        builder.node("Relu", "y", &[&sized]);
        builder.output(Value::batch_of_f32("y", &[3, 3, 3]));
        let values = parm_random::Random::new(5).normals(4 * 72);
        let rows = parm_protocol::Tensor::from_f32([4, 2, 6, 6].as_slice(), &values).unwrap();
        let draft = rewritten(&builder.build().unwrap(), &[rows], Maxima::Proven);
        draft.nodes.iter().map(|node| node.op_type.clone()).collect()
    }

    #[test]
    fn only_increasing_functions_move_before_a_pool() {
        assert_eq!(pooled_first(0.5), ["Conv", "Relu", "MaxPool"]);
        assert_eq!(pooled_first(-0.5), ["Conv", "MaxPool", "Mul", "Relu"]);
    }

    /// `x * clip(x + 3, 0, top) / 6` behind a convolution, in one of the orders that exporters write.
    fn written_out(form: &str, top: f32) -> Vec<String> {
        let mut builder = Builder::new("swish", 3);
        let x = builder.input(Value::batch_of_f32("x", &[2, 5, 5]));
        let conv = builder.conv("conv", &x, Conv::same(2, 3, 3)).unwrap();
        let mut number = |name: &str, number: f32, dims: &[usize]| {
            builder.constant(Tensor::from_f32(name, dims, &[number]).unwrap())
        };
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
            "sigmoid" => _ = builder.node("Div", "y", &[&bounded, &six]),
            other => panic!("{other}"),
        }
        builder.output(Value::batch_of_f32("y", &[3, 5, 5]));
        operators(&rewritten(&builder.build().unwrap(), &[pictures()], Maxima::Proven))
    }

    #[test]
    fn decomposed_hard_sigmoid_and_swish_become_operators() {
        assert_eq!(written_out("product first", 6.0), ["Conv", "HardSigmoid", "Mul"]);
        assert_eq!(written_out("quotient first", 6.0), ["Conv", "HardSigmoid", "Mul"]);
        assert_eq!(written_out("sigmoid", 6.0), ["Conv", "HardSigmoid"]);
        assert!(written_out("product first", 5.0).contains(&"Clip".into()), "its maximum is below one");
    }

    #[test]
    fn hard_sigmoid_of_doubles_stays_decomposed() {
        let mut builder = Builder::new("doubles", 1);
        let shape = Some(vec![Dim::Symbol("batch".into()), Dim::Fixed(4)]);
        let value =
            |name: &str| Value { name: name.into(), datatype: DataType::Double, shape: shape.clone() };
        let x = builder.input(value("x"));
        let mut number = |name: &str, number: f64| {
            let data = number.to_le_bytes().to_vec();
            builder.constant(Tensor::new(name, DataType::Double, &[], data.into()).unwrap())
        };
        let (three, zero, six, by) =
            (number("three", 3.0), number("zero", 0.0), number("six", 6.0), number("by", 6.0));
        let shifted = builder.node("Add", "shifted", &[&x, &three]);
        let bounded = builder.node("Clip", "bounded", &[&shifted, &zero, &six]);
        builder.node("Div", "y", &[&bounded, &by]);
        builder.output(value("y"));
        let mut draft = Draft::new(&builder.build().unwrap()).unwrap();
        swish::gather(&mut draft);
        assert_eq!(operators(&draft), ["Add", "Clip", "Div"]);
    }

    #[test]
    fn reshaped_constant_becomes_a_bias() {
        let mut builder = Builder::new("shaped", 3);
        let x = builder.input(Value::batch_of_f32("x", &[2, 5, 5]));
        let conv = builder.conv("conv", &x, Conv::same(2, 3, 3)).unwrap();
        let bias = builder.constant(Tensor::from_f32("b", &[3], &[0.3, -0.2, 0.1]).unwrap());
        let target = builder.constant(Tensor::from_i64("target", &[4], &[1, -1, 1, 1]).unwrap());
        let axes = builder.constant(Tensor::from_i64("axes", &[2], &[1, -1]).unwrap());
        let same = builder.node("Identity", "same", &[&bias]);
        let shaped = builder.node("Reshape", "shaped", &[&same, &target]);
        let added = builder.node("Add", "added", &[&conv, &shaped]);
        let upright = builder.node("Unsqueeze", "upright", &[&bias, &axes]);
        builder.node("Mul", "y", &[&added, &upright]);
        builder.output(Value::batch_of_f32("y", &[3, 5, 5]));
        let draft = rewritten(&builder.build().unwrap(), &[pictures()], Maxima::Proven);
        assert_eq!(operators(&draft), ["Conv"]);
    }

    #[test]
    fn value_with_several_readers_is_not_folded() {
        let mut builder = Builder::new("shared", 3);
        let x = builder.input(Value::batch_of_f32("x", &[2, 5, 5]));
        let conv = builder.conv("conv", &x, Conv::same(2, 3, 3)).unwrap();
        let shift = builder.constant(Tensor::from_f32("shift", &[3, 1, 1], &[-3.0, 0.0, 1.0]).unwrap());
        let shifted = builder.node("Add", "shifted", &[&conv, &shift]);
        builder.node_with("Concat", "y", &[&conv, &shifted], [("axis", Attribute::Int(1))]);
        builder.output(Value::batch_of_f32("y", &[6, 5, 5]));
        let draft = rewritten(&builder.build().unwrap(), &[pictures()], Maxima::Proven);
        assert_eq!(operators(&draft), ["Add", "Concat", "Conv"]);
    }
}
