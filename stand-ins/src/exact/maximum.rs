//! Moves functions from before a global maximum to behind it.
//!
//! A function before a maximum is computed for every value, behind it for one. The maximum of `f(x)` is `f(max x)` if
//! f increases, and `f(min x)` if it decreases. Common activations (GELU, SiLU, Mish) decrease a little and then
//! increase: their maximum is at one of the ends, `max(f(max x), f(min x))`. Adding a constant per channel commutes
//! with both. The direction of f is found by computing it on a dense grid, not from its name: exporters write one
//! activation as a dozen nodes, each in its own way.

use parm_parity_models::onnx::Attribute;
use parm_parity_models::onnx::proto::NodeProto;
use parm_parity_models::onnx::rewrite::Draft;

use super::Maxima;
use crate::graph::{Cone, Links, NodeExt, Survey, axes, with_axes};

/// The first version of the operators whose reductions read axes as an input.
const AXES_AS_INPUT: i64 = 18;

/// The direction of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    Rises,
    Falls,
    FallsThenRises,
}

/// Moves functions behind maxima.
pub(super) fn postpone(draft: &mut Draft, survey: &Survey, maxima: Maxima) {
    let pools: Vec<String> = draft
        .nodes
        .iter()
        .filter(|node| node.is(&["GlobalMaxPool", "ReduceMax"]))
        .filter_map(|node| node.only_output().map(str::to_owned))
        .collect();
    for pool in pools {
        // Each rewrite moves nodes, so the index is built anew.
        let links = Links::of(draft);
        let plan = links.maker(&pool).and_then(|at| Plan::of(draft, &links, survey, at));
        if let Some(plan) = plan {
            plan.carry_out(draft, maxima);
        }
    }
}

/// A maximum and the nodes that can move behind it.
struct Plan {
    pool: usize,
    axes: Vec<i64>,
    keeps_axes: bool,
    /// Additions of constants per channel, the one nearest to the maximum first, and the input of the first of them.
    shifts: Vec<usize>,
    root: String,
    cone: Cone,
    course: Course,
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
        let cone = Cone::above(draft, links, top);
        let course = course(|x| cone.apply(draft, x))?;
        let (mut shifts, mut root) = (Vec::new(), cone.root.clone());
        while let Some((shift, read)) = shift(draft, links, &root, (&axes, rank)) {
            shifts.push(shift);
            root = read;
        }
        let moves = !cone.nodes.is_empty() || !shifts.is_empty();
        moves.then_some(Self { pool: at, axes, keeps_axes, shifts, root, cone, course })
    }

    fn carry_out(&self, draft: &mut Draft, maxima: Maxima) {
        let pool = draft.nodes[self.pool].clone();
        let made = pool.only_output().unwrap_or_default().to_owned();
        let end = |draft: &mut Draft, op: &str| {
            let end = self.end(draft, (op, &pool), &made);
            let end = self.shifts.iter().rev().fold(end, |read, &shift| self.copy(draft, shift, &read));
            self.cone.copy(draft, &end)
        };
        let answer = match (self.course, maxima) {
            (Course::Rises, _) | (Course::FallsThenRises, Maxima::Seen) => end(draft, "ReduceMax"),
            (Course::Falls, _) => end(draft, "ReduceMin"),
            (Course::FallsThenRises, Maxima::Proven) => {
                let (most, least) = (end(draft, "ReduceMax"), end(draft, "ReduceMin"));
                let greater = draft.fresh(&format!("{made}/greater"));
                let node = draft.make("Max", &[&most, &least], &greater, []);
                draft.nodes.push(node);
                greater
            }
        };
        let last = match self.keeps_axes {
            true => draft.make("Identity", &[&answer], &made, []),
            false => {
                let last = draft.make("Squeeze", &[&answer], &made, []);
                with_axes(draft, last, self.axes.clone(), 13)
            }
        };
        draft.nodes[self.pool] = last;
    }

    /// The largest or the smallest of the values that the first shift reads.
    fn end(&self, draft: &mut Draft, (op, pool): (&str, &NodeProto), made: &str) -> String {
        let end = draft.fresh(&format!("{made}/{op}"));
        // Engines have fast kernels for global pools, so a global pool stays one.
        let node = match op == "ReduceMax" && pool.is(&["GlobalMaxPool"]) {
            true => draft.make("GlobalMaxPool", &[&self.root], &end, []),
            false => {
                let node = draft.make(op, &[&self.root], &end, [("keepdims", Attribute::Int(1))]);
                with_axes(draft, node, self.axes.clone(), AXES_AS_INPUT)
            }
        };
        draft.nodes.push(node);
        end
    }

    fn copy(&self, draft: &mut Draft, shift: usize, read: &str) -> String {
        let mut node = draft.nodes[shift].clone();
        let old = self.reads(draft, shift);
        node.input.iter_mut().filter(|name| **name == old).for_each(|name| *name = read.to_owned());
        node.name = draft.fresh(&node.name);
        let made = draft.fresh(&node.output[0]);
        node.output = vec![made.clone()];
        draft.nodes.push(node);
        made
    }

    fn reads(&self, draft: &Draft, shift: usize) -> String {
        let mut inputs = draft.nodes[shift].input.iter();
        inputs.find(|name| !draft.constants.contains_key(*name)).cloned().unwrap_or_default()
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

/// The direction of a function; `None` if it is not one of the three.
fn course(f: impl Fn(f64) -> Option<f64>) -> Option<Course> {
    let near = (-5120..=5120).map(|step| f64::from(step) / 256.0);
    let far = |sign: f64| (0..24).map(move |step| sign * 20.0 * 1.5f64.powi(step + 1));
    let grid = far(-1.0).rev().chain(near).chain(far(1.0));
    let values: Vec<f64> = grid.map(f).collect::<Option<_>>()?;
    let (mut rises, mut falls) = (false, false);
    for pair in values.windows(2) {
        let slack = 1e-9 * (1.0 + pair[0].abs().max(pair[1].abs()));
        match pair[1] - pair[0] {
            change if !change.is_finite() => return None,
            change if change > slack => rises = true,
            change if change < -slack && rises => return None,
            change if change < -slack => falls = true,
            _ => {}
        }
    }
    Some(match (rises, falls) {
        (_, false) => Course::Rises,
        (false, true) => Course::Falls,
        (true, true) => Course::FallsThenRises,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn course_finds_the_direction_of_a_function() {
        let check = |f: fn(f64) -> f64, expected| assert_eq!(course(|x| Some(f(x))), expected);
        check(|x| x.max(0.0), Some(Course::Rises));
        check(|x| x.tanh(), Some(Course::Rises));
        check(|x| -x, Some(Course::Falls));
        check(|x| x / (1.0 + (-x).exp()), Some(Course::FallsThenRises));
        check(|x| x * x, Some(Course::FallsThenRises));
        check(|x| -x * x, None);
        check(|x| x.sin(), None);
        check(|x| x.sqrt(), None);
    }
}
