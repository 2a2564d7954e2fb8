//! LSTM and GRU layers, one or two directions, unrolled over time.
//!
//! The products with the inputs are done for all steps at once; only the recurrent products wait for each other.
//! Burn differentiates through the loop. Sequences of one batch have one length: ragged batches, peepholes and
//! clipping are refused.

use burn::tensor::{Tensor, activation};

use crate::graph::kernel::{Inputs, Kernel};
use crate::graph::{Problem, Real, Value, spec::Spec};

/// The recurrence inside a layer.
#[derive(Clone, Copy, PartialEq)]
enum Cell {
    Lstm,
    /// The reset gate is applied to the recurrent product (as PyTorch does) or to the state before it.
    Gru { reset_after: bool },
}

impl Cell {
    const fn gates(self) -> usize {
        match self {
            Cell::Lstm => 4,
            Cell::Gru { .. } => 3,
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    Forward,
    Reverse,
    Both,
}

struct Layer {
    cell: Cell,
    direction: Direction,
    hidden: Option<usize>,
}

pub(super) fn lstm(spec: &Spec) -> Result<Kernel, Problem> {
    spec.only("input_forget", 0, "0")?;
    spec.without_input(7)?; // peepholes
    layer(spec, Cell::Lstm, &["Sigmoid", "Tanh", "Tanh"])
}

pub(super) fn gru(spec: &Spec) -> Result<Kernel, Problem> {
    let reset_after = spec.flag("linear_before_reset")?;
    layer(spec, Cell::Gru { reset_after }, &["Sigmoid", "Tanh"])
}

fn layer(spec: &Spec, cell: Cell, usual: &[&str]) -> Result<Kernel, Problem> {
    let direction = match spec.string("direction", "forward")? {
        "forward" => Direction::Forward,
        "reverse" => Direction::Reverse,
        "bidirectional" => Direction::Both,
        other => return Err(spec.value("direction", other.into(), "forward, reverse or bidirectional")),
    };
    spec.only("layout", 0, "0 (time first)")?;
    spec.without_input(4)?; // lengths of ragged sequences
    spec.ignore("activations");
    if let Some(parm_parity_models::onnx::Attribute::Strings(names)) = spec.node.attributes.get("activations")
        && names.iter().zip(usual.iter().cycle()).any(|(name, usual)| !name.eq_ignore_ascii_case(usual))
    {
        return Err(spec.value("activations", names.join(", "), "the standard's choice"));
    }
    let hidden = spec.ints("hidden_size")?;
    let _ = hidden;
    let layer = Layer { cell, direction, hidden: None };
    Ok(Box::new(move |inputs, _| layer.run(inputs)))
}
