//! Finds blocks: all values with the same channels, their makers and their readers.
//!
//! A region starts at the output of a linear operator and grows in both directions. Forwards, it follows operators
//! that keep channels apart until linear operators read them. Backwards, it follows products of two values: the gate
//! of a squeeze-and-excitation or of a gated unit has channels of its own, which are removed with the others. In a
//! residual stream, where outputs of several layers are added, all of these layers make the channels. If an operator
//! mixes channels in an unknown way, the region is not a block.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use parm_parity_models::onnx::ops::axes;
use parm_parity_models::onnx::proto::NodeProto;
use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{Kind, Layer};

use super::{Gram, MOST_BYTES, bytes};
use crate::graph::{Links, Look, Survey, name};

/// Narrower layers cost little, and engines compute several channels at a time.
const NARROWEST: usize = 16;
/// A choice among more channels takes minutes and gigabytes.
const WIDEST: usize = 2048;
const MOST: usize = 512;
/// Operators that combine outputs of several layers in one value, which all of them make.
const SUMS: [&str; 5] = ["Add", "Sub", "Sum", "Max", "Min"];

const UNKNOWN: &str = "sizes that are not known";

/// A constant that is cut to the remaining channels: an input of a node, along an axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) at: usize,
    pub(super) place: usize,
    pub(super) axis: usize,
}

/// A `Reshape` or `Expand` whose target may contain the number of channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) at: usize,
    pub(super) made: Channels,
}

/// A node that reads the channels and makes other values of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reader {
    pub(super) at: usize,
    pub(super) value: String,
    pub(super) channels: Channels,
    pub(super) rank: usize,
    pub(super) reading: Reading,
}

/// The use of the channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    Weighted(Layer),
    Sum,
    Mean,
}

/// Channels that can be removed.
#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    pub(super) width: usize,
    /// Whether several layers add to the channels; otherwise a single one makes them.
    pub(super) is_stream: bool,
    pub(super) cuts: Vec<Cut>,
    /// Depthwise convolutions.
    pub(super) grouped: Vec<usize>,
    pub(super) targets: Vec<Target>,
    pub(super) readers: Vec<Reader>,
    /// For each reader, the sums over its input.
    pub(super) grams: Vec<Gram>,
    /// All channels, those that stay longest first.
    pub(super) kept: Vec<usize>,
}

/// Blocks, and the reasons of the other layers.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) blocks: Vec<Block>,
    pub(super) whole: BTreeMap<String, usize>,
}

/// A layer that reads and makes channels: its weight mixes all of them.
fn layer(draft: &Draft, node: &NodeProto) -> Option<Layer> {
    Layer::plain(draft, node).filter(|layer| layer.groups == 1)
}

pub(super) fn find(draft: &Draft, links: &Links, survey: &Survey) -> Found {
    let (mut found, mut seen) = (Found::default(), BTreeSet::new());
    for node in &draft.nodes {
        let (Some(layer), Some(made)) = (layer(draft, node), node.only_output()) else { continue };
        let width = draft.constants[&node.input[1]].dims()[layer.makes];
        if width < NARROWEST || seen.contains(made) {
            continue;
        }
        let region = Region {
            draft,
            links,
            looks: survey.looks(),
            carriers: BTreeMap::new(),
            open: Vec::new(),
            done: BTreeSet::new(),
            makers: BTreeSet::new(),
            block: Block { width, ..Block::default() },
        };
        match region.grow(made, layer) {
            Ok(region) => {
                seen.extend(region.carriers.into_keys());
                found.blocks.push(region.block);
            }
            Err(reason) => *found.whole.entry(reason).or_default() += 1,
        }
    }
    found
}

struct Region<'a> {
    draft: &'a Draft,
    links: &'a Links,
    looks: &'a [Look],
    carriers: BTreeMap<String, Channels>,
    /// Carriers whose maker and readers have not been visited.
    open: Vec<String>,
    /// Nodes that keep channels apart.
    done: BTreeSet<usize>,
    /// Linear operators that make channels.
    makers: BTreeSet<usize>,
    block: Block,
}

impl<'a> Region<'a> {
    fn grow(mut self, made: &str, layer: Layer) -> Result<Self, String> {
        let width = self.block.width;
        if width > WIDEST {
            return Err(format!("more than {WIDEST} channels"));
        }
        let rank = self.rank(made).ok_or(UNKNOWN)?;
        self.carry(made, Channels { axis: layer.axis_of(rank), run: 1 })?;
        while let Some(value) = self.open.pop() {
            if self.carriers.len() > MOST {
                return Err(format!("more than {MOST} values with the same channels"));
            }
            let maker = self.links.maker(&value).ok_or("an input of the graph")?;
            self.made(maker, &value)?;
            for &reader in self.links.readers(&value) {
                self.read(reader, &value)?;
            }
        }
        self.block.is_stream = self.adds_up_layers();
        match self.block.readers.len() {
            0 => Err("no reader".into()),
            readers if bytes(&self.block) > MOST_BYTES => {
                Err(format!("{readers} readers, too many for {width} channels"))
            }
            _ => Ok(self),
        }
    }

    /// Records that `value` holds the channels.
    fn carry(&mut self, value: &str, channels: Channels) -> Result<(), String> {
        if let Some(known) = self.carriers.get(value) {
            return if *known == channels { Ok(()) } else { Err("channels in two places".into()) };
        }
        if self.links.is_kept(value) {
            return Err("an output of the graph".into());
        }
        let size = self.block.width * channels.run;
        let fits = |look: &Look| look.get(value).is_some_and(|dims| dims.get(channels.axis) == Some(&size));
        if self.looks.is_empty() || !self.looks.iter().all(fits) {
            return Err(UNKNOWN.into());
        }
        self.carriers.insert(value.to_owned(), channels);
        self.open.push(value.to_owned());
        Ok(())
    }

    /// Visits the node that makes a carrier: a layer of this block, or a node on the way.
    fn made(&mut self, at: usize, value: &str) -> Result<(), String> {
        let node = &self.draft.nodes[at];
        let Some(layer) = layer(self.draft, node) else { return self.through(at) };
        let (channels, rank) = (self.carriers[value], self.rank(value).ok_or(UNKNOWN)?);
        if channels != (Channels { axis: layer.axis_of(rank), run: 1 }) {
            return Err(name(self.draft, node));
        }
        self.makers.insert(at);
        self.cut(at, 1, layer.makes);
        if let Some(bias) = node.at(2) {
            self.cut(at, 2, self.draft.constants[bias].dims().len() - 1);
        }
        Ok(())
    }

    /// Visits a node that reads a carrier.
    fn read(&mut self, at: usize, value: &str) -> Result<(), String> {
        let node = &self.draft.nodes[at];
        let (channels, rank) = (self.carriers[value], self.rank(value).ok_or(UNKNOWN)?);
        let reader = |reading| Reader { at, value: value.to_owned(), channels, rank, reading };
        if let Some(layer) = layer(self.draft, node) {
            let weight = self.draft.constants[&node.input[1]].dims();
            let fits = weight[layer.reads] == self.block.width * channels.run
                && channels.axis == layer.axis_of(rank)
                && (channels.run == 1 || weight.len() == 2);
            if node.at(0) != Some(value) || !fits {
                return Err(name(self.draft, node));
            }
            self.block.readers.push(reader(Reading::Weighted(layer)));
            return Ok(());
        }
        let over = axes(self.draft, node, rank as i64);
        let is_over_channels = channels.run == 1 && over == Some(vec![channels.axis as i64]);
        if node.is(&["ReduceSum", "ReduceMean"]) && is_over_channels {
            let reading = if node.is(&["ReduceSum"]) { Reading::Sum } else { Reading::Mean };
            self.block.readers.push(reader(reading));
            return Ok(());
        }
        self.through(at)
    }

    /// Visits a node that keeps channels apart: its inputs and outputs hold them.
    fn through(&mut self, at: usize) -> Result<(), String> {
        if !self.done.insert(at) {
            return Ok(());
        }
        let (draft, node) = (self.draft, &self.draft.nodes[at]);
        let refused = || name(draft, node);
        let (Some(read), Some(made)) = (node.at(0), node.only_output()) else { return Err(refused()) };
        let kind = Kind::of(node);
        if kind.is_by_value() || node.is(&["Expand"]) {
            return self.value_by_value(at, node, made);
        }
        let weight = node.at(1).and_then(|name| draft.constants.get(name));
        let is_depthwise = |layer: Layer| weight.is_some_and(|weight| layer.is_depthwise(weight.dims()));
        let constants = if Layer::of(draft, node).is_some_and(is_depthwise) {
            self.block.grouped.push(at);
            1..node.input.len()
        } else if node.is(&["BatchNormalization"]) && node.int("training_mode").unwrap_or(0) == 0 {
            1..5
        } else if kind == Kind::Pool {
            0..0
        } else if matches!(kind, Kind::Moved | Kind::Reduced) {
            return self.moved(at, node, (read, made));
        } else {
            return Err(refused());
        };
        self.carry(read, Channels { axis: 1, run: 1 })?;
        self.carry(made, Channels { axis: 1, run: 1 })?;
        for place in constants.filter(|&place| node.at(place).is_some()) {
            if !node.at(place).is_some_and(|name| draft.constants.contains_key(name)) {
                return Err(refused());
            }
            self.cut(at, place, 0);
        }
        Ok(())
    }

    fn moved(&mut self, at: usize, node: &NodeProto, (read, made): (&str, &str)) -> Result<(), String> {
        let way = if self.carriers.contains_key(read) { Way::Forwards } else { Way::Backwards };
        let known = if way == Way::Forwards { read } else { made };
        let known = *self.carriers.get(known).ok_or(UNKNOWN)?;
        let found = follow(self.draft, node, (self.looks, way), (known, self.block.width));
        let found = found.ok_or_else(|| name(self.draft, node))?;
        let (from, to) = if way == Way::Forwards { (known, found) } else { (found, known) };
        self.carry(read, from)?;
        self.carry(made, to)?;
        if node.is(&["Reshape"]) {
            self.block.targets.push(Target { at, made: to });
        }
        Ok(())
    }

    fn value_by_value(&mut self, at: usize, node: &NodeProto, made: &str) -> Result<(), String> {
        let rank = self.rank(made).ok_or(UNKNOWN)?;
        let is_expansion = node.is(&["Expand"]);
        // The second input of an expansion is its target.
        let operands = if is_expansion { 1 } else { node.input.len() };
        let inputs = node.input.iter().take(operands).enumerate().filter(|(_, name)| !name.is_empty());
        let of_input = |(_, name): (usize, &String)| {
            let (known, own) = (self.carriers.get(name)?, self.rank(name)?);
            Some(Channels { axis: known.axis + rank - own, ..*known })
        };
        let known = self.carriers.get(made).copied().or_else(|| inputs.clone().find_map(of_input));
        let channels = known.ok_or(UNKNOWN)?;
        self.carry(made, channels)?;
        if is_expansion {
            self.block.targets.push(Target { at, made: channels });
        }
        let looks = self.looks;
        for (place, input) in inputs {
            let dims = looks.first().and_then(|look| look.get(input)).ok_or(UNKNOWN)?;
            // A value of lower rank lacks the first axes.
            let axis = (channels.axis + dims.len()).checked_sub(rank).filter(|axis| dims[*axis] > 1);
            let Some(axis) = axis else { continue };
            if !self.draft.constants.contains_key(input) {
                self.carry(input, Channels { axis, ..channels })?;
            } else if channels.run == 1 && dims[axis] == self.block.width {
                self.cut(at, place, axis);
            } else {
                return Err(name(self.draft, node));
            }
        }
        Ok(())
    }

    /// Whether outputs of different layers are added.
    fn adds_up_layers(&self) -> bool {
        let mut sources: HashMap<&str, BTreeSet<usize>> = HashMap::new();
        for &at in self.done.union(&self.makers) {
            let node = &self.draft.nodes[at];
            let read = node.input.iter().filter(|name| self.carriers.contains_key(*name));
            let read: Vec<BTreeSet<usize>> =
                read.filter_map(|name| sources.get(name.as_str()).cloned()).collect();
            let own = match self.makers.contains(&at) {
                true => BTreeSet::from([at]),
                false if node.is(&SUMS) && read.windows(2).any(|pair| pair[0] != pair[1]) => {
                    return true;
                }
                false => read.into_iter().flatten().collect(),
            };
            if let Some(made) = node.only_output() {
                sources.insert(made, own);
            }
        }
        false
    }

    fn cut(&mut self, at: usize, place: usize, axis: usize) {
        self.block.cuts.push(Cut { at, place, axis });
    }

    fn rank(&self, value: &str) -> Option<usize> {
        Some(self.looks.first()?.get(value)?.len())
    }
}

/// The channels of a value: along this axis, each as a run of this many values. Runs are longer than one after a
/// picture was flattened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Channels {
    pub(super) axis: usize,
    pub(super) run: usize,
}

/// The direction: from a node's input to its output, or back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Forwards,
    Backwards,
}

/// The channels at the other end of a node; `None` if they are not contiguous there. The sizes of all runs must allow
/// it.
fn follow(
    draft: &Draft,
    node: &NodeProto,
    (looks, way): (&[Look], Way),
    (known, width): (Channels, usize),
) -> Option<Channels> {
    let (read, made) = (node.at(0)?, node.only_output()?);
    let rank = looks.first()?.get(read)?.len();
    let reduced = Kind::of(node) == Kind::Reduced;
    if reduced || node.is(&["Transpose"]) {
        let order = if reduced { left(draft, node, rank)? } else { turned(node, rank) };
        // Axis j of the output is axis order[j] of the input.
        let axis = match way {
            Way::Forwards => order.iter().position(|axis| *axis == Some(known.axis))?,
            Way::Backwards => (*order.get(known.axis)?)?,
        };
        return Some(Channels { axis, ..known });
    }
    let (from, to) = if way == Way::Forwards { (read, made) } else { (made, read) };
    let mut found = looks.iter().map(|look| reshaped(look.get(from)?, look.get(to)?, known, width));
    let first = found.next()??;
    found.all(|other| other == Some(first)).then_some(first)
}

/// The remaining axes of a reduction, in order; `None` for axes that it keeps with size 1.
fn left(draft: &Draft, node: &NodeProto, rank: usize) -> Option<Vec<Option<usize>>> {
    let gone = axes(draft, node, rank as i64)?;
    let keeps = node.int("keepdims").unwrap_or(1) != 0;
    let all = (0..rank).map(|axis| Some(axis).filter(|axis| !gone.contains(&(*axis as i64))));
    Some(all.filter(|axis| keeps || axis.is_some()).collect())
}

fn turned(node: &NodeProto, rank: usize) -> Vec<Option<usize>> {
    match node.ints("perm").filter(|perm| !perm.is_empty()) {
        Some(perm) => perm.iter().map(|&axis| usize::try_from(axis).ok()).collect(),
        None => (0..rank).rev().map(Some).collect(),
    }
}

/// The axis of another shape that holds the channels: the same number of values lie before and behind it.
fn reshaped(from: &[usize], to: &[usize], known: Channels, width: usize) -> Option<Channels> {
    let product = |dims: &[usize]| dims.iter().product::<usize>();
    let before = product(&from[..known.axis]);
    let behind = product(from.get(known.axis + 1..)?) * known.run;
    (0..to.len()).find_map(|axis| {
        let run = to[axis] / width;
        let fits = product(&to[..axis]) == before
            && run > 0
            && run * width == to[axis]
            && product(&to[axis + 1..]) * run == behind;
        fits.then_some(Channels { axis, run })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reshaped_channels_are_found_by_sizes_before_and_behind() {
        let check =
            |from: &[usize], known: (usize, usize), to: &[usize], expected: Option<(usize, usize)>| {
                let known = Channels { axis: known.0, run: known.1 };
                let found = reshaped(from, to, known, 16).map(|found| (found.axis, found.run));
                assert_eq!(found, expected, "{from:?} to {to:?}");
            };
        check(&[2, 16, 3, 3], (1, 1), &[2, 144], Some((1, 9)));
        check(&[2, 144], (1, 9), &[2, 16, 9], Some((1, 1)));
        check(&[2, 5, 16], (2, 1), &[10, 16], Some((1, 1)));
        check(&[2, 16, 1, 1], (1, 1), &[2, 16], Some((1, 1)));
        check(&[2, 16, 3, 3], (1, 1), &[32, 9], None);
        check(&[2, 16, 4], (1, 1), &[2, 4, 16], None);
    }
}
