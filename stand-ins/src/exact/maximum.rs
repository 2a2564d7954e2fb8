//! Moves functions from before a global maximum to behind it.
//!
//! A function before a maximum is computed for every value, behind it for one. The maximum of `f(x)` is `f(max x)` if f
//! increases. Common activations (GELU, SiLU, Mish) decrease a little and then increase: there it is so if the largest
//! value lies on the increasing side. Adding a constant per channel commutes with the maximum. No rule finds the direction
//! of f, which exporters write as a dozen nodes, each in its own way: if the answers to calibration rows differ, the search
//! leaves this rewrite out.

use std::collections::BTreeSet;

use parm_parity_models::onnx::ops::axes;
use parm_parity_models::onnx::proto::NodeProto;
use parm_parity_models::onnx::rewrite::{Draft, Names};
use parm_parity_models::onnx::{Defect, Kind};

use crate::graph::{Links, Survey};

/// The first version of the operators whose reductions read axes as an input.
const AXES_AS_INPUT: i64 = 18;
/// Maximum nodes of a function: exporters write an activation as a dozen.
const MOST: usize = 64;

pub(super) fn postpone(draft: &mut Draft, survey: &Survey) -> Result<(), Defect> {
    let pools = draft.nodes.iter().filter(|node| node.is(&["GlobalMaxPool", "ReduceMax"]));
    let pools: Vec<String> = pools.filter_map(|node| node.only_output().map(str::to_owned)).collect();
    for pool in pools {
        // Each rewrite moves nodes, so the index is built anew.
        let links = Links::of(draft);
        if let Some(plan) = links.maker(&pool).and_then(|at| Plan::of(draft, &links, survey, at)) {
            plan.carry_out(draft)?;
        }
    }
    Ok(())
}

/// A maximum and the nodes that can move behind it.
struct Plan {
    pool: usize,
    axes: Vec<i64>,
    keeps_axes: bool,
    /// Additions of constants per channel, the one nearest to the maximum first, and the input of the last of them.
    shifts: Vec<usize>,
    root: String,
    function: Function,
}

impl Plan {
    fn of(draft: &Draft, links: &Links, survey: &Survey, at: usize) -> Option<Self> {
        let node = &draft.nodes[at];
        let top = node.at(0).filter(|top| links.only_reader(top) == Some(at))?;
        let rank = survey.sizes(top)?.len() as i64;
        let (axes, keeps_axes) = match node.is(&["GlobalMaxPool"]) {
            true => ((2..rank).collect(), true),
            false => (axes(draft, node, rank)?, node.int("keepdims").unwrap_or(1) != 0),
        };
        let function = Function::above(draft, links, top);
        let (mut shifts, mut root) = (Vec::new(), function.root.clone());
        while let Some((shift, read)) = shift(draft, links, &root, (&axes, rank)) {
            shifts.push(shift);
            root = read;
        }
        let moves = !function.nodes.is_empty() || !shifts.is_empty();
        moves.then_some(Self { pool: at, axes, keeps_axes, shifts, root, function })
    }

    fn carry_out(&self, draft: &mut Draft) -> Result<(), Defect> {
        let pool = draft.nodes[self.pool].clone();
        let made = pool.only_output().unwrap_or_default().to_owned();
        let largest = draft.fresh(&format!("{made}/largest"));
        // Engines have fast kernels for global pools, so a global pool stays one.
        let mut node = draft.make(&pool.op_type, &[&self.root], &largest, []);
        if pool.is(&["ReduceMax"]) {
            node.set("keepdims", 1i64);
            draft.give(&mut node, "axes", &self.axes, AXES_AS_INPUT)?;
        }
        draft.nodes.push(node);
        let places: Vec<usize> = self.shifts.iter().rev().chain(&self.function.nodes).copied().collect();
        let mut names = Names::from([(self.root.clone(), largest)]);
        let copies = draft.copy(&places, ("largest", false), &mut names)?;
        draft.nodes.extend(copies);
        let answer = &names[&self.function.top];
        let last = if self.keeps_axes { "Identity" } else { "Squeeze" };
        let mut last = draft.make(last, &[answer], &made, []);
        if !self.keeps_axes {
            draft.give(&mut last, "axes", &self.axes, 13)?;
        }
        draft.nodes[self.pool] = last;
        Ok(())
    }
}

/// The addition that makes `value` from another value and a constant that is the same along the axes, and that other
/// value.
fn shift(draft: &Draft, links: &Links, value: &str, (axes, rank): (&[i64], i64)) -> Option<(usize, String)> {
    let at = links.maker(value).filter(|_| !links.is_kept(value))?;
    let node = draft.nodes.get(at).filter(|node| node.is(&["Add"]))?;
    let (a, b) = (node.at(0)?, node.at(1)?);
    let (read, constant) = match (draft.constants.get(a), draft.constants.get(b)) {
        (None, Some(constant)) => (a, constant),
        (Some(constant), None) => (b, constant),
        _ => return None,
    };
    let missing = rank - constant.dims().len() as i64;
    let is_same = |axis: &i64| {
        usize::try_from(axis - missing)
            .map_or(*axis < missing, |place| constant.dims().get(place) == Some(&1))
    };
    (missing >= 0 && axes.iter().all(is_same)).then(|| (at, read.to_owned()))
}

/// A function that works value by value, with only numbers as constants.
#[derive(Clone, Debug)]
struct Function {
    root: String,
    top: String,
    /// Positions of its nodes, each behind its inputs. Empty if root and top are the same.
    nodes: Vec<usize>,
}

impl Function {
    /// The largest function of one value that makes `top`: walks back as long as all inputs lead to one value again.
    fn above(draft: &Draft, links: &Links, top: &str) -> Self {
        let mut nodes: BTreeSet<usize> = BTreeSet::new();
        // Values that are not computed yet, with the position of their maker; none for inputs of the graph.
        let mut open: BTreeSet<(Option<usize>, String)> =
            BTreeSet::from([(links.maker(top), top.to_owned())]);
        let mut best = Self { root: top.into(), top: top.into(), nodes: Vec::new() };
        // The last node is taken first, so that all readers of a value are known before the value.
        while let Some((Some(at), _)) = open.pop_last() {
            let node: &NodeProto = &draft.nodes[at];
            if !Kind::of(node).is_by_value() || node.only_output().is_none() || nodes.len() == MOST {
                break;
            }
            nodes.insert(at);
            for name in node.input.iter().filter(|name| !name.is_empty()) {
                match draft.constants.get(name) {
                    Some(number) if number.len() == 1 => {}
                    Some(_) => return best,
                    None => _ = open.insert((links.maker(name), name.clone())),
                }
            }
            let mut roots = open.iter().map(|(_, name)| name);
            if let (Some(root), None) = (roots.next(), roots.next()) {
                best = Self { root: root.clone(), nodes: nodes.iter().copied().collect(), ..best };
            }
        }
        best
    }
}
