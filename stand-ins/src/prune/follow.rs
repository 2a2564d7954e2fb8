//! Follows channels through operators that move values.

use parm_parity_models::onnx::Kind;
use parm_parity_models::onnx::ops::axes;
use parm_parity_models::onnx::proto::NodeProto;
use parm_parity_models::onnx::rewrite::Draft;

use crate::graph::Look;

/// The channels of a value: along this axis, each as a run of this many values. Runs are longer than one after a
/// picture was flattened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Channels {
    pub(super) axis: usize,
    pub(super) run: usize,
}

/// The direction: from a node's input to its output, or back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Forwards,
    Backwards,
}

/// The channels at the other end of a node; `None` if they are not contiguous there. The sizes of all runs must allow
/// it.
pub(super) fn follow(
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
