//! Widens the first and the last layers of a graph for slots, and copies the operators around them.
//!
//! *First layers.* Values are classified by their relation to the input. *Rows* are the input, changed but not yet mixed by a
//! layer. *Sizes* depend only on its shape (`Shape` and values computed from it). The *trunk* follows a first layer. Every
//! layer between rows and trunk is widened: its weight is repeated for each slot and divided by k, so that k equal
//! queries give the output of one. A network has one such layer, or several that read the input in parallel.
//!
//! *Last layers* are those from which no other layer is reached on the way to the outputs. Their weights and biases
//! are repeated for each slot, so that at first every slot produces the deployed prediction. The tail, which follows
//! them, is after most networks nothing, a bias, or a softmax. Copies of these for each slot would take much of a small
//! model's time. So flat rows of k predictions are reshaped to `[N, k, C]`, on which such a tail works unchanged; any other
//! tail is copied for each slot.
//!
//! *Operators around them* are copied for each slot, or left alone if they commute with concatenating rows: concatenating
//! the slots' rows and then applying such an operator gives the same as applying it to each row and then concatenating.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

use super::super::proto::{NodeProto, reads, writes};
use super::super::{Defect, Dim, Kind, Layer, LayerOp, Tensor, Value};
use super::draft::Draft;
use super::weights::{repeat, scale};

/// The relation of a value to the input. A value without an entry is constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Knows {
    Rows,
    Sizes,
    Trunk,
}

/// The graph around its first layers.
#[derive(Default)]
struct Stem {
    knows: BTreeMap<String, Knows>,
    /// Positions of the nodes that produce rows or sizes.
    prologue: Vec<usize>,
    /// The first layers, with their positions.
    layers: Vec<(usize, Layer)>,
    /// Whether the graph computes sizes, which must be those of one slot.
    computes_sizes: bool,
}

impl Draft {
    /// Widens the input to `slots` concatenated rows and the first layers to match.
    pub fn widen_stem(&mut self, slots: NonZeroUsize) -> Result<(), Defect> {
        let slots = slots.get();
        if slots == 1 {
            return Ok(());
        }
        let rows = Rows::of(self)?;
        let stem = Stem::trace(self)?;
        let weight = |(at, layer): &(usize, Layer)| (self.nodes[*at].input[1].clone(), layer.reads);
        let weights: Vec<(String, usize)> = stem.layers.iter().map(weight).collect();
        if stem.computes_sizes || !stem.is_plain(self, &rows) {
            copy_prologue(self, &stem, &rows, slots)?;
        } else {
            widen_flattening(self, &stem, &rows, slots)?;
        }
        for (name, axis) in weights {
            let weight = repeat(&self.constants[&name], axis, slots)?;
            self.constants.insert(name, scale(&weight, 1.0 / slots as f32)?);
        }
        for input in &mut self.graph_mut().input {
            if rows.inputs.iter().all(|(name, _)| *name != input.name) {
                continue;
            }
            let mut wide = Value::from_proto(input);
            let second = wide.shape.as_mut().and_then(|shape| shape.get_mut(1));
            if let Some(dim) = second {
                *dim = dim.fixed().and_then(|size| size.checked_mul(slots)).map_or(Dim::Unknown, Dim::Fixed);
            }
            *input = wide.to_proto();
        }
        self.forget(|name| matches!(stem.knows.get(name), Some(Knows::Rows | Knows::Sizes)));
        Ok(())
    }
}

/// The declared shapes of the inputs.
struct Rows {
    inputs: Vec<(String, Option<usize>)>,
    /// Batch and row size, if there is only one input.
    only: Row,
    /// Whether the only input has flat rows.
    is_flat: bool,
}

impl Rows {
    fn of(draft: &Draft) -> Result<Self, Defect> {
        // An unused input stays unchanged.
        let used: BTreeSet<&str> = draft.nodes.iter().flat_map(reads).collect();
        let values = draft.graph().input.iter().filter(|input| used.contains(input.name.as_str()));
        let values: Vec<Value> = values.map(Value::from_proto).collect();
        let mut inputs = Vec::with_capacity(values.len());
        for value in &values {
            match value.shape.as_deref() {
                Some([_, second, ..]) => inputs.push((value.name.clone(), second.fixed())),
                _ => {
                    return Err(Defect::Unusable(format!(
                        "input '{value}' has no second dimension for slots: use a code that needs one slot"
                    )));
                }
            }
        }
        let only = match values.as_slice() {
            [value] => value.shape.clone().unwrap_or_default(),
            _ => Vec::new(),
        };
        let size = only.iter().skip(1).try_fold(1usize, |size, dim| size.checked_mul(dim.fixed()?));
        let batch = only.first().and_then(Dim::fixed);
        Ok(Self {
            inputs,
            is_flat: only.len() == 2,
            only: Row { batch, size: size.filter(|_| !only.is_empty()) },
        })
    }
}

impl Stem {
    fn trace(draft: &Draft) -> Result<Self, Defect> {
        let mut stem = Self::default();
        stem.knows.extend(draft.graph().input.iter().map(|input| (input.name.clone(), Knows::Rows)));
        for at in 0..draft.nodes.len() {
            stem.visit(draft, at)?;
        }
        for output in &draft.graph().output {
            if matches!(stem.knows.get(&output.name), Some(Knows::Rows | Knows::Sizes)) {
                return Err(Defect::no_first_layer(&output.name));
            }
        }
        match stem.layers.is_empty() {
            true => {
                let output = draft.graph().output.first();
                Err(Defect::no_first_layer(output.map_or("", |output| &output.name)))
            }
            false => Ok(stem),
        }
    }

    fn visit(&mut self, draft: &Draft, at: usize) -> Result<(), Defect> {
        let (made, layer) = self.classify(draft, at)?;
        match made {
            None => {}
            Some(Knows::Trunk) => self.layers.extend(layer.map(|layer| (at, layer))),
            Some(Knows::Rows) => self.prologue.push(at),
            Some(Knows::Sizes) => {
                self.prologue.push(at);
                self.computes_sizes = true;
            }
        }
        let made = writes(&draft.nodes[at]).filter_map(|name| Some((name.to_owned(), made?)));
        self.knows.extend(made);
        Ok(())
    }

    /// Classifies the outputs of a node, and returns the first layer if the node is one.
    fn classify(&self, draft: &Draft, at: usize) -> Result<(Option<Knows>, Option<Layer>), Defect> {
        let node = &draft.nodes[at];
        let read = reads(node);
        let that_know = |what| read.iter().copied().filter(move |name| self.knows.get(*name) == Some(&what));
        let is_any = |what| that_know(what).next().is_some();
        if let Some(value) = that_know(Knows::Rows).next() {
            let reads_data_only = that_know(Knows::Rows).all(|row| row == node.input[0]);
            let layer = Layer::of(draft, node).filter(|layer| layer.groups == 1 && reads_data_only);
            return match layer {
                _ if is_any(Knows::Trunk) => Err(Defect::Unusable(format!(
                    "{} reads '{value}', a form of the input, together with the output of a first layer, which cannot be \
                     widened for slots: use another code",
                    draft.label(at)
                ))),
                Some(layer) => Ok((Some(Knows::Trunk), Some(layer))),
                None if Kind::of(node) == Kind::Quantised => {
                    let node = draft.label(at);
                    let said = format!("{node} is quantised: derive the parity graph from the float model");
                    Err(Defect::Unusable(said))
                }
                None if node.is(&["Shape", "Size"]) => Ok((Some(Knows::Sizes), None)),
                None => Ok((Some(Knows::Rows), None)),
            };
        }
        let known = [Knows::Trunk, Knows::Sizes].into_iter().find(|what| is_any(*what));
        Ok((known, None))
    }

    /// Whether concatenated rows can pass from the input to the first layers, so that nothing runs per slot.
    fn is_plain(&self, draft: &Draft, rows: &Rows) -> bool {
        let mut flat: Vec<&str> = Vec::new();
        if rows.is_flat {
            flat.extend(rows.inputs.iter().map(|(name, _)| name.as_str()));
        }
        for &at in &self.prologue {
            let node = &draft.nodes[at];
            match plain(draft, node, rows.only) {
                Some(Plain::Flatten) => flat.extend(writes(node)),
                Some(Plain::Elementwise) if reads(node).iter().any(|name| flat.contains(name)) => {
                    flat.extend(writes(node));
                }
                Some(Plain::Elementwise) => {}
                None => return false,
            }
        }
        let is_side_by_side = |(at, layer): &(usize, Layer)| {
            let data = draft.nodes[*at].input[0].as_str();
            layer.axis == 1 || (layer.op == LayerOp::MatMul && flat.contains(&data))
        };
        self.layers.iter().all(is_side_by_side)
    }
}

/// A `Reshape` that flattens to a fixed size must have the wide size.
fn widen_flattening(draft: &mut Draft, stem: &Stem, rows: &Rows, slots: usize) -> Result<(), Defect> {
    for &at in &stem.prologue {
        if !draft.nodes[at].is(&["Reshape"]) {
            continue;
        }
        let target = draft.nodes[at].input[1].clone();
        if let Some([first, size]) =
            flattens(draft, &draft.nodes[at], rows.only).filter(|target| target[1] > 0)
        {
            let wide = Tensor::from_i64(&target, &[2], &[first, size.saturating_mul(slots as i64)])?;
            draft.nodes[at].input[1] = draft.add_constant(wide);
        }
    }
    Ok(())
}

/// Splits the input into slots, runs the operators before the first layers once for each, and concatenates the results.
fn copy_prologue(draft: &mut Draft, stem: &Stem, rows: &Rows, slots: usize) -> Result<(), Defect> {
    let mut front: Vec<NodeProto> = Vec::new();
    let mut names: Vec<Names> = vec![Names::new(); slots];
    for (input, size) in &rows.inputs {
        let (node, parts) = split(draft, (input, 1), (slots, *size))?;
        front.push(node);
        names.iter_mut().zip(parts).for_each(|(names, part)| drop(names.insert(input.clone(), part)));
    }
    // Sizes are equal in every slot: those of slot 0 serve all slots and the trunk.
    let makes_sizes = |draft: &Draft, at: &usize| {
        writes(&draft.nodes[*at]).all(|name| stem.knows.get(name) == Some(&Knows::Sizes))
    };
    let rest: Vec<usize> = stem.prologue.iter().copied().filter(|at| !makes_sizes(draft, at)).collect();
    for slot in 0..slots {
        let places = if slot == 0 { &stem.prologue } else { &rest };
        let mut own = std::mem::take(&mut names[slot]);
        front.extend(draft.copy(places, (&format!("slot{slot}"), false), &mut own)?);
        if slot == 0 {
            let sizes = own.iter().filter(|(name, _)| stem.knows.get(*name) == Some(&Knows::Sizes));
            let sizes: Names = sizes.map(|(old, new)| (old.clone(), new.clone())).collect();
            names.iter_mut().for_each(|names| names.extend(sizes.clone()));
            names[0].extend(own);
        } else {
            names[slot] = own;
        }
    }
    join(draft, stem, &names, &mut front);
    for at in (0..draft.nodes.len()).filter(|at| !stem.prologue.contains(at)) {
        let mut node = draft.nodes[at].clone();
        rename(&mut node, &names[0]).ok_or_else(|| Defect::control_flow(&draft.label(at)))?;
        front.push(node);
    }
    draft.nodes = front;
    draft.sort();
    Ok(())
}

/// Adds a `Concat` of the slots before each first layer.
fn join(draft: &mut Draft, stem: &Stem, names: &[Names], front: &mut Vec<NodeProto>) {
    let mut joined: BTreeMap<(String, i64), String> = BTreeMap::new();
    for (at, layer) in &stem.layers {
        let data = draft.nodes[*at].input[0].clone();
        let key = (data.clone(), layer.axis);
        if !joined.contains_key(&key) {
            let parts: Vec<&str> = names.iter().map(|names| names[&data].as_str()).collect();
            let wide = draft.fresh(&format!("{data}.slots"));
            front.push(draft.make("Concat", &parts, &wide, [("axis", layer.axis.into())]));
            joined.insert(key.clone(), wide);
        }
        draft.nodes[*at].input[0] = joined[&key].clone();
    }
}

/// One of the last layers.
#[derive(Clone)]
struct Last {
    at: usize,
    value: String,
    /// Features of one slot.
    features: usize,
    layer: Layer,
}

/// The graph after its last layers.
struct Head {
    layers: Vec<Last>,
    /// Positions of the nodes that depend on them.
    tail: Vec<usize>,
}

impl Draft {
    /// Widens the last layers and every output to `slots` predictions, along the new second dimension of the outputs.
    pub fn widen_head(&mut self, slots: NonZeroUsize) -> Result<(), Defect> {
        let slots = slots.get();
        if slots == 1 {
            return Ok(());
        }
        let head = Head::trace(self)?;
        for layer in &head.layers {
            widen(self, layer, slots)?;
        }
        let stale: BTreeSet<String> = head.values(self);
        self.forget(|name| stale.contains(name));
        if !reshape(self, &head, slots)? {
            copy_tail(self, &head, slots)?;
        }
        for output in &mut self.graph_mut().output {
            let mut wide = Value::from_proto(output);
            if let Some(shape) = wide.shape.as_mut().filter(|shape| !shape.is_empty()) {
                shape.insert(1, Dim::Fixed(slots));
            }
            *output = wide.to_proto();
        }
        Ok(())
    }
}

impl Head {
    fn trace(draft: &Draft) -> Result<Self, Defect> {
        let candidates = candidates(draft);
        let after: Vec<BTreeSet<usize>> =
            candidates.iter().map(|last| followers(draft, &[last.at])).collect();
        let is_last = |after: &BTreeSet<usize>| !candidates.iter().any(|other| after.contains(&other.at));
        let layers = candidates.iter().zip(&after).filter(|(_, after)| is_last(after));
        let layers: Vec<Last> = layers.map(|(last, _)| last.clone()).collect();
        let places: Vec<usize> = layers.iter().map(|last| last.at).collect();
        let head = Self { tail: followers(draft, &places).into_iter().collect(), layers };
        let made = head.values(draft);
        match draft.graph().output.iter().find(|output| !made.contains(&output.name)) {
            Some(output) => Err(Defect::Unusable(format!(
                "output '{}' does not come from a Conv, Gemm or MatMul with constant weights: slots need a last layer to widen: \
                 use another code",
                output.name
            ))),
            None => Ok(head),
        }
    }

    /// Values with a new meaning: the outputs of the last layers and of the tail.
    fn values(&self, draft: &Draft) -> BTreeSet<String> {
        let tail = self.tail.iter().flat_map(|&at| writes(&draft.nodes[at])).map(str::to_owned);
        tail.chain(self.layers.iter().map(|last| last.value.clone())).collect()
    }
}

/// Layers from which an output is reached without passing another layer.
fn candidates(draft: &Draft) -> Vec<Last> {
    let mut wanted: BTreeSet<&str> = draft.graph().output.iter().map(|output| output.name.as_str()).collect();
    let mut candidates = Vec::new();
    for (at, node) in draft.nodes.iter().enumerate().rev() {
        if !writes(node).any(|name| wanted.contains(name)) {
            continue;
        }
        match Layer::whole(draft, node) {
            Some(layer) => {
                let features = draft.constants[&node.input[1]].dims()[layer.makes];
                candidates.push(Last { at, value: node.output[0].clone(), features, layer });
            }
            None => wanted.extend(reads(node)),
        }
    }
    candidates
}

/// Positions of the nodes that depend on those in `places`.
fn followers(draft: &Draft, places: &[usize]) -> BTreeSet<usize> {
    let mut made: BTreeSet<&str> = places.iter().flat_map(|&at| writes(&draft.nodes[at])).collect();
    let mut followers = BTreeSet::new();
    for (at, node) in draft.nodes.iter().enumerate() {
        if reads(node).iter().any(|name| made.contains(name)) {
            made.extend(writes(node));
            followers.insert(at);
        }
    }
    followers
}

fn widen(draft: &mut Draft, layer: &Last, slots: usize) -> Result<(), Defect> {
    let node = &draft.nodes[layer.at];
    let (name, bias) = (node.input[1].clone(), node.at(2).map(|bias| &draft.constants[bias]));
    let weight = repeat(&draft.constants[&name], layer.layer.makes, slots)?;
    if let Some(bias) = bias.filter(|bias| bias.dims().last() == Some(&layer.features)) {
        let wide = repeat(bias, bias.dims().len() - 1, slots)?;
        draft.constants.insert(wide.name().to_owned(), wide);
    }
    draft.constants.insert(name, weight);
    Ok(())
}

/// Splits the outputs of the last layers into slots, runs the tail once for each, and stacks the results.
fn copy_tail(draft: &mut Draft, head: &Head, slots: usize) -> Result<(), Defect> {
    let mut names: Vec<Names> = vec![Names::new(); slots];
    let mut back = Vec::new();
    for layer in &head.layers {
        let wide = draft.fresh(&format!("{}.wide", layer.value));
        draft.nodes[layer.at].output[0] = wide.clone();
        let (node, parts) = split(draft, (&wide, layer.layer.axis), (slots, Some(layer.features)))?;
        back.push(node);
        names.iter_mut().zip(parts).for_each(|(names, part)| drop(names.insert(layer.value.clone(), part)));
    }
    for (slot, names) in names.iter_mut().enumerate() {
        back.extend(draft.copy(&head.tail, (&format!("slot{slot}"), true), names)?);
    }
    let outputs: Vec<String> = draft.graph().output.iter().map(|output| output.name.clone()).collect();
    for output in outputs {
        let mut stacked = Vec::with_capacity(slots);
        for names in &names {
            let row = draft.fresh(&format!("{output}.row"));
            let mut node = draft.make("Unsqueeze", &[&names[&output]], &row, []);
            draft.give(&mut node, "axes", &[1], 13)?;
            back.push(node);
            stacked.push(row);
        }
        let rows: Vec<&str> = stacked.iter().map(String::as_str).collect();
        back.push(draft.make("Concat", &rows, &output, [("axis", 1.into())]));
    }
    let nodes = std::mem::take(&mut draft.nodes).into_iter().enumerate();
    draft.nodes = nodes.filter(|(at, _)| !head.tail.contains(at)).map(|(_, node)| node).chain(back).collect();
    Ok(())
}

/// Reshapes the predictions for a simple tail, which needs no copies. `false` leaves the draft unchanged.
fn reshape(draft: &mut Draft, head: &Head, slots: usize) -> Result<bool, Defect> {
    let Some(constants) = simple(draft, head) else { return Ok(false) };
    let [layer] = head.layers.as_slice() else { return Ok(false) };
    for (at, place) in constants {
        // Each slot has numbers of its own, so that training can tell them apart.
        let constant = &draft.constants[&draft.nodes[at].input[place]];
        let rows = repeat(constant, constant.dims().len() - 1, slots)?.data().clone();
        let rows = Tensor::new(constant.name(), constant.datatype(), &[slots, layer.features], rows)?;
        draft.nodes[at].input[place] = draft.add_constant(rows);
    }
    for &at in head.tail.iter().filter(|&&at| draft.nodes[at].is(&SOFTMAX)).collect::<Vec<_>>() {
        draft.nodes[at].set("axis", 2i64);
    }
    let (value, target) = (&layer.value, [-1, slots as i64, layer.features as i64]);
    let wide = draft.fresh(&format!("{value}.wide"));
    draft.nodes[layer.at].output[0] = wide.clone();
    let shape = draft.add_constant(Tensor::from_i64(&format!("{value}.shape"), &[3], &target)?);
    let node = draft.make("Reshape", &[&wide, &shape], value, []);
    draft.nodes.insert(layer.at + 1, node);
    Ok(true)
}

const SOFTMAX: [&str; 2] = ["Softmax", "LogSoftmax"];

/// Whether the tail is one chain from one flat layer to the only output whose nodes work on each prediction alike; returns the
/// constants with a number per class, as nodes and inputs.
fn simple(draft: &Draft, head: &Head) -> Option<Vec<(usize, usize)>> {
    let ([layer], [output]) = (head.layers.as_slice(), draft.graph().output.as_slice()) else { return None };
    let declared = Value::from_proto(output);
    let is_flat = layer.layer.op == LayerOp::Gemm || declared.shape.is_some_and(|shape| shape.len() == 2);
    let (mut value, mut constants) = (layer.value.as_str(), Vec::new());
    for &at in &head.tail {
        let node = &draft.nodes[at];
        let is_chained = node.input.iter().filter(|input| *input == value).count() == 1;
        if !is_chained || node.output.len() != 1 {
            return None;
        }
        // Both for flat rows: 1 is the default of the old operator, -1 of the new one.
        let is_softmax = node.is(&SOFTMAX) && matches!(node.int("axis"), None | Some(1 | -1));
        if !is_softmax && plain(draft, node, Row::default()) != Some(Plain::Elementwise) {
            constants.push((at, row(draft, node, layer.features)?));
        }
        value = &node.output[0];
    }
    (is_flat && value == output.name).then_some(constants)
}

/// The input of a node that combines rows with a constant row of this length.
fn row(draft: &Draft, node: &NodeProto, features: usize) -> Option<usize> {
    let is_row = |name: &String| {
        let constant = draft.constants.get(name);
        constant
            .is_some_and(|c| c.len() == features && c.dims().last() == Some(&features) && c.dims().len() <= 2)
    };
    node.input.iter().position(is_row).filter(|_| node.is(&["Add", "Sub", "Mul", "Div"]))
}

/// The names of one slot by the original names.
pub type Names = BTreeMap<String, String>;

impl Draft {
    /// Copies nodes under other names. `names` maps the originals' inputs to those of the copies, and receives the outputs.
    /// The copies share constants, or have weights of their own, so that training can tell them apart.
    pub fn copy(
        &mut self,
        places: &[usize],
        (suffix, has_own_weights): (&str, bool),
        names: &mut Names,
    ) -> Result<Vec<NodeProto>, Defect> {
        let mut copies = Vec::with_capacity(places.len());
        for &at in places {
            let mut node = self.nodes[at].clone();
            rename(&mut node, names).ok_or_else(|| Defect::control_flow(&self.label(at)))?;
            for input in node.input.iter_mut().filter(|_| has_own_weights) {
                let weight = self.constants.get(input.as_str());
                if let Some(weight) = weight.filter(|weight| weight.datatype().is_float() && weight.len() > 1)
                {
                    let own = weight.clone().renamed(&format!("{input}.{suffix}"));
                    *input = self.add_constant(own);
                }
            }
            for output in node.output.iter_mut().filter(|output| !output.is_empty()) {
                let renamed = self.fresh(&format!("{output}.{suffix}"));
                names.insert(std::mem::replace(output, renamed.clone()), renamed);
            }
            if !node.name.is_empty() {
                node.name = self.fresh(&format!("{}.{suffix}", node.name));
            }
            copies.push(node);
        }
        Ok(copies)
    }
}

/// Renames what a node reads; `None` if its body reads a renamed outer value.
fn rename(node: &mut NodeProto, names: &Names) -> Option<()> {
    let is_captured = |name: &str| names.contains_key(name) && !node.input.iter().any(|input| input == name);
    if reads(node).into_iter().any(is_captured) {
        return None;
    }
    for input in &mut node.input {
        if let Some(renamed) = names.get(input) {
            input.clone_from(renamed);
        }
    }
    Some(())
}

/// A node that splits a value along an axis into equal parts, of this size if it is known, and the names of the parts. The
/// form of the sizes changed twice with the operator set.
fn split(
    draft: &mut Draft,
    (value, axis): (&str, i64),
    (slots, part): (usize, Option<usize>),
) -> Result<(NodeProto, Vec<String>), Defect> {
    let parts: Vec<String> = (0..slots).map(|slot| draft.fresh(&format!("{value}.slot{slot}"))).collect();
    let name = draft.fresh(&format!("{value}.split"));
    let mut node = draft.make("Split", &[value], &name, [("axis", axis.into())]);
    match part {
        Some(part) => draft.give(&mut node, "split", &vec![part as i64; slots], 13)?,
        None if draft.opset() >= 18 => node.set("num_outputs", slots as i64),
        None => {}
    }
    node.output = parts.clone();
    Ok((node, parts))
}

/// The declaration of the graph's only input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Row {
    /// Number of rows, if it is fixed.
    batch: Option<usize>,
    /// Values in a row, if their number is fixed.
    size: Option<usize>,
}

/// The effect of a node on concatenated rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plain {
    Elementwise,
    Flatten,
}

/// Recognises `node`; `None` means that it must run once for each slot.
fn plain(draft: &Draft, node: &NodeProto, row: Row) -> Option<Plain> {
    match Kind::of(node) {
        Kind::Unary | Kind::Same => return Some(Plain::Elementwise),
        Kind::Joint => {
            let constants = node.input.iter().filter_map(|name| draft.constants.get(name));
            let is_scalar = |tensor: &&Tensor| tensor.len() == 1 && tensor.dims().len() <= 1;
            let is_of_one = constants.filter(is_scalar).count() + 1 == node.input.len();
            return is_of_one.then_some(Plain::Elementwise);
        }
        _ => {}
    }
    let flattens_batch = node.is(&["Flatten"]) && node.int("axis").unwrap_or(1) == 1;
    let reshapes_flat = node.is(&["Reshape"]) && flattens(draft, node, row).is_some();
    (flattens_batch || reshapes_flat).then_some(Plain::Flatten)
}

/// The target of a `Reshape` that flattens each row, given by constants: the batch, then -1 or the row's size.
fn flattens(draft: &Draft, node: &NodeProto, row: Row) -> Option<[i64; 2]> {
    let target = draft.constants.get(node.input.get(1)?)?.to_i64().ok()?;
    let is_zero_a_copy = node.int("allowzero").unwrap_or(0) == 0;
    let is_batch =
        |dim: i64| (dim == 0 && is_zero_a_copy) || row.batch.is_some_and(|batch| dim == batch as i64);
    match target[..] {
        [batch, -1] if is_batch(batch) => Some([batch, -1]),
        [batch, size] if batch == -1 || is_batch(batch) => {
            row.size.filter(|&row| row as i64 == size).map(|_| [batch, size])
        }
        _ => None,
    }
}
