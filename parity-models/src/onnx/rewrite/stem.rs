//! Widens the first layers for slots.
//!
//! Values are classified by their relation to the input. *Rows* are the input, changed but not yet mixed by a layer.
//! *Sizes* depend only on its shape (`Shape` and values computed from it). The *trunk* follows a first layer. Every
//! layer between rows and trunk is widened: its weight is repeated for each slot and divided by k, so that k equal
//! queries give the output of one. A network has one such layer, or several that read the input in parallel.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

use super::super::proto::{NodeProto, reads, writes};
use super::super::{Defect, Dim, Kind, Layer, LayerOp, Tensor, Value};
use super::draft::Draft;
use super::slot::{self, Names, Plain, Row, flattens, plain};
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
        let (node, parts) = slot::split(draft, (input, 1), (slots, *size))?;
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
        slot::rename(&mut node, &names[0]).ok_or_else(|| Defect::control_flow(&draft.label(at)))?;
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
