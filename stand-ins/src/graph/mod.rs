//! A graph as the families of stand-ins see it: nodes, constants, links and sizes.
//!
//! Nodes and constants are a [`Draft`]. Exporters write the same network in
//! many ways: shapes computed from shapes, expansions before operators that broadcast anyway, slices that take
//! everything. Shape inference by rules, operator by operator, was rejected: such a table is never complete. Instead
//! the engine that will run the model provides the sizes: the graph runs on two and on three rows (one and two if rows are
//! large), with the `Shape` of every value as an output ([`Survey`]). A size that is equal in both runs is fixed; a size that
//! grows in proportion to the rows counts them.
//!
//! This holds for every input only if the model's rows have fixed sizes. For others the sizes are known per run, and
//! one more run takes rows of half the length. That is enough to follow channels through a graph, which must be at
//! the same place in every run.

mod raise;
mod survey;

use std::collections::{BTreeSet, HashMap};

use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{DataType, Defect, Kind, Model, Tensor, Value};

pub(crate) use raise::{PER_CHANNEL, raise};
pub use survey::Work;
pub(crate) use survey::{Look, Size, Survey, inner_values, name, work};

use crate::Error;

/// An index of a draft's nodes; invalid as soon as nodes are added, removed or moved.
#[derive(Debug)]
pub(crate) struct Links {
    makers: HashMap<String, usize>,
    readers: HashMap<String, Vec<usize>>,
    /// Values that nodes' bodies may read by name, and the graph's outputs: they must stay.
    kept: BTreeSet<String>,
}

impl Links {
    pub(crate) fn of(draft: &Draft) -> Self {
        let (mut makers, mut readers) = (HashMap::new(), HashMap::<String, Vec<usize>>::new());
        let mut kept: BTreeSet<String> =
            draft.graph().output.iter().map(|output| output.name.clone()).collect();
        for (at, node) in draft.nodes.iter().enumerate() {
            for name in node.output.iter().filter(|name| !name.is_empty()) {
                makers.insert(name.clone(), at);
            }
            for name in node.input.iter().filter(|name| !name.is_empty()) {
                readers.entry(name.clone()).or_default().push(at);
            }
            let bodies =
                node.attribute.iter().flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs));
            kept.extend(bodies.flat_map(|body| body.node.iter().flat_map(|node| node.input.clone())));
        }
        Self { makers, readers, kept }
    }

    /// The position of the node that makes `value`; `None` for inputs and constants.
    pub(crate) fn maker(&self, value: &str) -> Option<usize> {
        self.makers.get(value).copied()
    }

    /// The positions of the nodes that read `value`; a node that reads it twice is listed twice.
    pub(crate) fn readers(&self, value: &str) -> &[usize] {
        self.readers.get(value).map_or(&[], Vec::as_slice)
    }

    /// Whether `value` must keep its name because something other than a node's input refers to it.
    pub(crate) fn is_kept(&self, value: &str) -> bool {
        self.kept.contains(value)
    }

    /// The only node that reads `value`; `None` if there are several.
    pub(crate) fn only_reader(&self, value: &str) -> Option<usize> {
        match self.readers(value) {
            [one] if !self.is_kept(value) => Some(*one),
            _ => None,
        }
    }
}

/// Removes nodes whose outputs have no reader.
pub(crate) fn sweep(draft: &mut Draft) {
    loop {
        let links = Links::of(draft);
        let is_wanted = |name: &String| links.is_kept(name) || !links.readers(name).is_empty();
        let before = draft.nodes.len();
        draft.nodes.retain(|node| node.output.iter().any(is_wanted));
        if draft.nodes.len() == before {
            return;
        }
    }
}

/// Removes nodes without readers and declarations that no longer hold, and brings the nodes into order.
pub(crate) fn tidy(draft: &mut Draft) {
    draft.forget(|_| true);
    sweep(draft);
    draft.sort();
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
pub(crate) fn probe(draft: &Draft, values: &[String]) -> Result<Model, Error> {
    let (types, mut probe) = (types(draft), draft.clone());
    let declared = values.iter().map(|name| {
        let datatype = types.get(name).copied().unwrap_or(DataType::Float);
        Value { name: name.clone(), datatype, shape: None }.to_proto()
    });
    probe.graph_mut().output = declared.collect();
    sweep(&mut probe);
    Ok(probe.finish()?)
}

/// The types of values; unknown for outputs of a node with a body, or of other operator sets.
pub(crate) fn types(draft: &Draft) -> HashMap<String, DataType> {
    let mut types: HashMap<String, DataType> =
        draft.constants.iter().map(|(name, tensor)| (name.clone(), tensor.datatype())).collect();
    types.extend(draft.graph().input.iter().map(Value::from_proto).map(|value| (value.name, value.datatype)));
    for node in &draft.nodes {
        if !matches!(node.domain.as_str(), "" | "ai.onnx") || node.attribute.iter().any(|a| a.g.is_some()) {
            continue;
        }
        let of = |place: usize| node.at(place).and_then(|name| types.get(name)).copied();
        let first = match (Kind::of(node), node.op_type.as_str()) {
            (Kind::Truth, _) => Some(DataType::Bool),
            (Kind::Count, _) => Some(DataType::Int64),
            (_, "Cast") => node.int("to").and_then(|code| DataType::try_from(code as i32).ok()),
            (_, "Where" | "CastLike" | "DequantizeLinear") => of(1),
            (_, "QuantizeLinear") => of(2).or(Some(DataType::Uint8)),
            (_, "OneHot") => of(2),
            (_, "ConstantOfShape") => {
                let value = node.attribute("value").and_then(|value| value.t.as_ref());
                value.map_or(Some(DataType::Float), |value| DataType::try_from(value.data_type).ok())
            }
            (_, "MatMulInteger" | "ConvInteger") => Some(DataType::Int32),
            _ => of(0),
        };
        let Some(first) = first else { continue };
        for (at, output) in node.output.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            let datatype = match at {
                1 if node.is(&["MaxPool", "TopK"]) => DataType::Int64,
                1 if node.is(&["Dropout"]) => DataType::Bool,
                _ => first,
            };
            types.insert(output.clone(), datatype);
        }
    }
    types
}
