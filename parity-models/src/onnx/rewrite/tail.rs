//! Tails that work on all slots at once.
//!
//! After most last layers there is nothing, a bias, or a softmax. Copies of these for each slot would take much of a
//! small model's time. So flat rows of k predictions pass through elementwise operators unchanged, and through a
//! softmax after a reshape to `[N, k, C]`.

use super::super::{Defect, LayerOp, Tensor, Value};
use super::draft::Draft;
use super::head::Head;
use super::plain::{Plain, Row, plain};
use super::repeat::repeat;

/// The change that one node of a simple tail needs.
enum Step {
    AsItIs,
    /// Repeats a constant of one slot's size at this input.
    Repeat(usize),
    /// A softmax over the predictions: the rows must be split into slots first.
    Softmax,
}

/// Widens the tail without copies, if it is simple enough. `false` leaves the draft unchanged.
pub(super) fn reshape(draft: &mut Draft, head: &Head, slots: usize) -> Result<bool, Defect> {
    let Some(steps) = steps(draft, head) else { return Ok(false) };
    let [layer] = head.layers.as_slice() else { return Ok(false) };
    let target = [-1, slots as i64, layer.features as i64];
    let mut value = layer.value.clone();
    let mut maker = layer.at;
    let mut nodes = Vec::new();
    let mut is_cut = false;
    for (&at, step) in head.tail.iter().zip(&steps) {
        match step {
            Step::AsItIs => {}
            Step::Repeat(place) => {
                let constant = &draft.constants[&draft.nodes[at].input[*place]];
                let wide = repeat(constant, constant.dims().len() - 1, slots)?;
                draft.nodes[at].input[*place] = draft.add_constant(wide);
            }
            Step::Softmax => {
                let shape =
                    draft.add_constant(Tensor::from_i64(&format!("{value}.slots.shape"), &[3], &target)?);
                let cut = draft.fresh(&format!("{value}.slots"));
                nodes.push((at, draft.make("Reshape", &[&value, &shape], &cut, [])));
                let node = &mut draft.nodes[at];
                node.input[0] = cut;
                node.set("axis", 2i64);
                is_cut = true;
            }
        }
        (value, maker) = (draft.nodes[at].output[0].clone(), at);
    }
    if !is_cut {
        let wide = draft.fresh(&format!("{value}.wide"));
        draft.nodes[maker].output[0] = wide.clone();
        let shape = draft.add_constant(Tensor::from_i64(&format!("{value}.shape"), &[3], &target)?);
        nodes.push((maker + 1, draft.make("Reshape", &[&wide, &shape], &value, [])));
    }
    nodes.into_iter().rev().for_each(|(at, node)| draft.nodes.insert(at, node));
    Ok(true)
}

/// The steps of the tail, if it is one chain from one flat layer to the only output.
fn steps(draft: &Draft, head: &Head) -> Option<Vec<Step>> {
    let ([layer], [output]) = (head.layers.as_slice(), draft.graph().output.as_slice()) else { return None };
    let declared = Value::from_proto(output);
    let is_flat = layer.layer.op == LayerOp::Gemm || declared.shape.is_some_and(|shape| shape.len() == 2);
    let mut value = layer.value.as_str();
    let mut steps = Vec::new();
    for &at in &head.tail {
        let node = &draft.nodes[at];
        let is_chained = node.input.iter().filter(|input| *input == value).count() == 1;
        if !is_chained || node.output.len() != 1 {
            return None;
        }
        let after_softmax = steps.iter().any(|step| matches!(step, Step::Softmax));
        steps.push(step(draft, at, layer.features, after_softmax)?);
        value = &node.output[0];
    }
    (is_flat && value == output.name).then_some(steps)
}

fn step(draft: &Draft, at: usize, features: usize, after_softmax: bool) -> Option<Step> {
    let node = &draft.nodes[at];
    if plain(draft, node, Row::default()) == Some(Plain::Elementwise) {
        return Some(Step::AsItIs);
    }
    if after_softmax {
        return None;
    }
    if node.is(&["Softmax", "LogSoftmax"]) {
        // Both for flat rows: 1 is the default of the old operator, -1 of the new one.
        return matches!(node.int("axis"), None | Some(1 | -1)).then_some(Step::Softmax);
    }
    if node.is(&["Add", "Sub", "Mul", "Div"]) {
        let is_row = |name: &String| {
            let constant = draft.constants.get(name);
            constant.is_some_and(|c| {
                c.len() == features && c.dims().last() == Some(&features) && c.dims().len() <= 2
            })
        };
        return node.input.iter().position(is_row).map(Step::Repeat);
    }
    None
}
