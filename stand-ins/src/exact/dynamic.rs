//! Computes products of values in 8 bits with their weights in 32 bits: `DynamicQuantizeLinear`, `MatMulInteger`, `Cast` and
//! two `Mul`, as dynamic quantisation writes them.
//!
//! No family recognises weights in such a product, so a model in 8 bits got no candidate with fewer channels. The result
//! lacks the rounding of values to 8 bits, so it is a base for candidates and not an exact copy; they are judged by the
//! deployed model's own answers.

use parm_parity_models::onnx::proto::NodeProto;
use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{DataType, Defect, Tensor};

use crate::graph::{Links, NodeExt, sweep};

/// A product to replace.
struct Product {
    /// The nodes of the integers, of their conversion, and of the scaled result.
    nodes: [usize; 3],
    read: String,
    weight: Tensor,
    made: String,
}

/// Replaces such products.
pub(super) fn widen(mut draft: Draft) -> Result<Draft, Defect> {
    let links = Links::of(&draft);
    let found: Vec<Product> = (0..draft.nodes.len()).filter_map(|at| product(&draft, &links, at)).collect();
    if found.is_empty() {
        return Ok(draft);
    }
    let mut spent: Vec<usize> = Vec::new();
    for Product { nodes: [integers, conversion, scaled], read, weight, made } in found {
        let weight = draft.add_constant(weight);
        draft.nodes[scaled] = draft.make("MatMul", &[&read, &weight], &made, []);
        spent.extend([integers, conversion]);
    }
    let mut at = 0..;
    draft.nodes.retain(|_| at.next().is_some_and(|at| !spent.contains(&at)));
    // Quantised values may have other readers.
    sweep(&mut draft);
    draft.forget(|_| true);
    Ok(draft)
}

fn product(draft: &Draft, links: &Links, at: usize) -> Option<Product> {
    let node = |at: usize| &draft.nodes[at];
    let integers = Some(node(at)).filter(|node| node.is(&["MatMulInteger"]))?;
    let quantised = node(links.maker(integers.at(0)?)?);
    let made = |place: usize| quantised.output.get(place).map(String::as_str);
    let is_whole = made(0) == integers.at(0) && made(2) == integers.at(2) && made(2).is_some();
    if !quantised.is(&["DynamicQuantizeLinear"]) || !is_whole {
        return None;
    }
    let conversion = links.only_reader(integers.only_output()?)?;
    let is_float = node(conversion).int("to") == Some(DataType::Float as i64);
    let converted = node(conversion).only_output().filter(|_| node(conversion).is(&["Cast"]) && is_float)?;
    let scaled = links.only_reader(converted)?;
    let scales = node(links.maker(other(node(scaled), converted)?)?);
    let scales = draft.constants.get(other(scales, made(1)?)?)?;
    Some(Product {
        nodes: [at, conversion, scaled],
        read: quantised.at(0)?.to_owned(),
        weight: weight(draft, integers, scales)?,
        made: node(scaled).only_output()?.to_owned(),
    })
}

/// The other factor of a product of two.
fn other<'a>(node: &'a NodeProto, one: &str) -> Option<&'a str> {
    let (a, b) = (node.at(0)?, node.at(1)?);
    match node.is(&["Mul"]) {
        true if a == one => Some(b),
        true if b == one => Some(a),
        _ => None,
    }
}

/// The weights, with a scale and a zero for all or for each column.
fn weight(draft: &Draft, integers: &NodeProto, scales: &Tensor) -> Option<Tensor> {
    let packed = draft.constants.get(integers.at(1)?)?;
    let &[_, columns] = packed.dims() else { return None };
    let scales = Some(scales).filter(|scales| scales.datatype() == DataType::Float)?.to_f32().ok()?;
    let zeros = match integers.at(3) {
        Some(zeros) => draft.constants.get(zeros)?.to_i64().ok()?,
        None => vec![0],
    };
    let fits = |count: usize| count == 1 || count == columns;
    if !fits(scales.len()) || !fits(zeros.len()) || columns == 0 {
        return None;
    }
    let value = |(at, value): (usize, i64)| {
        let column = at % columns;
        (value - zeros[column % zeros.len()]) as f32 * scales[column % scales.len()]
    };
    let values: Vec<f32> = packed.to_i64().ok()?.into_iter().enumerate().map(value).collect();
    Tensor::from_f32(packed.name(), packed.dims(), &values).ok()
}

#[cfg(test)]
mod tests {
    use parm_parity_models::onnx::{Builder, Dense, Model, Value};

    use super::*;
    use crate::testing::{Stage, operators};

    /// Two products of the same quantised values, one with a scale for each column.
    fn quantised() -> Model {
        let mut builder = Builder::new("quantised", 1);
        let x = builder.input(Value::batch_of_f32("x", &[3]));
        builder.dense("y", &x, Dense { inputs: 3, outputs: 2 }).unwrap();
        builder.output(Value::batch_of_f32("y", &[2]));
        let mut draft = Draft::new(&builder.build().unwrap()).unwrap();
        let bytes = |name: &str, dims: &[usize], data: &[u8]| {
            Tensor::new(name, DataType::Int8, dims, data.to_vec().into()).unwrap()
        };
        let mut quantise = draft.make("DynamicQuantizeLinear", &["x"], "q", []);
        quantise.output.extend(["scale".to_owned(), "zero".to_owned()]);
        draft.nodes = vec![quantise];
        for (name, scales) in [("a", vec![0.02f32]), ("b", vec![0.01, 0.03])] {
            let weight = draft.add_constant(bytes("w", &[3, 2], &[100, 20, 130, 40, 250, 6]));
            let zeros = draft.add_constant(bytes("zeros", &[2], &[1, 0]));
            let scales = draft.add_constant(Tensor::from_f32("scales", &[scales.len()], &scales).unwrap());
            let of = |what: &str| format!("{name}.{what}");
            let (sums, wide, both) = (of("sums"), of("wide"), of("both"));
            let to = [("to", (DataType::Float as i64).into())];
            let made = [
                draft.make("MatMulInteger", &["q", &weight, "zero", &zeros], &sums, []),
                draft.make("Cast", &[&sums], &wide, to),
                draft.make("Mul", &["scale", &scales], &both, []),
                draft.make("Mul", &[&both, &wide], name, []),
            ];
            draft.nodes.extend(made);
        }
        let sum = draft.make("Add", &["a", "b"], "y", []);
        draft.nodes.push(sum);
        draft.finish().unwrap()
    }

    #[test]
    fn products_of_quantised_values_have_weights_in_32_bits() {
        let (model, stage) = (quantised(), Stage::new());
        let values = [1.0, -2.0, 0.5, 3.0, 0.0, 7.0];
        let rows =
            stage.rows(&model, &[parm_protocol::Tensor::from_f32([2, 3].as_slice(), &values).unwrap()]);
        let draft = widen(Draft::new(&model).unwrap()).unwrap();
        assert_eq!(operators(&draft), ["Add", "MatMul", "MatMul"]);
        let (before, after) = (stage.answers(&model, &rows), stage.answers(&draft.finish().unwrap(), &rows));
        let largest = before.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        for (before, after) in before.iter().zip(&after) {
            assert!((before - after).abs() < 0.02 * largest, "{before} became {after}");
        }
    }

    #[test]
    fn products_with_other_readers_are_left() {
        let mut draft = Draft::new(&quantised()).unwrap();
        let other = draft.make("Identity", &["a.sums"], "seen", []);
        draft.nodes.push(other);
        let left = operators(&widen(draft).unwrap());
        assert_eq!(left.iter().filter(|operator| *operator == "MatMulInteger").count(), 1, "{left:?}");
    }
}
