//! LSTM and GRU layers, one or two directions, unrolled over time.
//!
//! The products with the inputs are computed for all steps at once; only the recurrent products are sequential. Burn
//! differentiates through the loop. Sequences of one batch have one length: ragged batches, peepholes and clipping
//! are rejected.

use burn::tensor::{Tensor, activation};

use crate::graph::kernel::{Inputs, Kernel};
use crate::graph::{Problem, Real, Value, spec::Spec};

/// The recurrence inside a layer.
#[derive(Clone, Copy, PartialEq)]
enum Recurrence {
    Lstm,
    /// The reset gate is applied to the recurrent product (as PyTorch does) or to the state before it.
    Gru {
        reset_after: bool,
    },
}

impl Recurrence {
    const fn gates(self) -> usize {
        match self {
            Recurrence::Lstm => 4,
            Recurrence::Gru { .. } => 3,
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    Forward,
    Reverse,
    Both,
}

struct RecurrentLayer {
    cell: Recurrence,
    direction: Direction,
}

pub(super) fn lstm(spec: &Spec) -> Result<Kernel, Problem> {
    spec.only("input_forget", 0, "0")?;
    spec.without_input(7)?; // peepholes
    layer(spec, Recurrence::Lstm, &["Sigmoid", "Tanh", "Tanh"])
}

pub(super) fn gru(spec: &Spec) -> Result<Kernel, Problem> {
    let reset_after = spec.flag("linear_before_reset")?;
    layer(spec, Recurrence::Gru { reset_after }, &["Sigmoid", "Tanh"])
}

fn layer(spec: &Spec, cell: Recurrence, usual: &[&str]) -> Result<Kernel, Problem> {
    let direction = match spec.string("direction", "forward")? {
        "forward" => Direction::Forward,
        "reverse" => Direction::Reverse,
        "bidirectional" => Direction::Both,
        other => return Err(spec.value("direction", other.into(), "forward, reverse or bidirectional")),
    };
    spec.only("layout", 0, "0 (time first)")?;
    spec.without_input(4)?; // lengths of ragged sequences
    spec.ignore(&["activations"]);
    if let Some(parm_parity_models::onnx::Attribute::Strings(names)) = spec.node.attributes.get("activations")
        && names.iter().zip(usual.iter().cycle()).any(|(name, usual)| !name.eq_ignore_ascii_case(usual))
    {
        return Err(spec.value("activations", names.join(", "), "the standard's choice"));
    }
    spec.ignore(&["hidden_size"]); // the weights tell
    let layer = RecurrentLayer { cell, direction };
    Ok(Box::new(move |inputs, _| layer.run(inputs)))
}

/// One direction's weights and state, ready for the loop: `W` transposed, `R` transposed, both biases, state.
struct Strand {
    input: Tensor<2>,
    recurrent: Tensor<2>,
    input_bias: Tensor<1>,
    recurrent_bias: Tensor<1>,
    hidden: Tensor<2>,
    memory: Tensor<2>,
}

/// The result of a strand: the states of all steps in order of time, and the last ones.
struct Run {
    states: Vec<Tensor<2>>,
    hidden: Tensor<2>,
    memory: Tensor<2>,
}

impl RecurrentLayer {
    fn run(&self, mut inputs: Inputs) -> Result<Vec<Value>, Problem> {
        let x = inputs.real(0)?.rank3()?;
        let (w, r) = (inputs.real(1)?.rank3()?, inputs.real(2)?.rank3()?);
        let bias = inputs.optional_real(3)?.map(Real::rank2).transpose()?;
        let hidden = inputs.optional_real(5)?.map(Real::rank3).transpose()?;
        let memory = inputs.optional_real(6)?.map(Real::rank3).transpose()?;
        let directions: &[bool] = match self.direction {
            Direction::Forward => &[false],
            Direction::Reverse => &[true],
            Direction::Both => &[false, true],
        };
        let [steps, batch, features] = x.dims();
        let size = r.dims()[2];
        let rows = self.cell.gates() * size;
        if w.dims() != [directions.len(), rows, features] || r.dims() != [directions.len(), rows, size] {
            return Err(Problem::Broadcast { left: w.dims().to_vec(), right: r.dims().to_vec() });
        }
        if bias.as_ref().is_some_and(|bias| bias.dims() != [directions.len(), 2 * rows]) || steps == 0 {
            return Err(Problem::Broadcast { left: r.dims().to_vec(), right: x.dims().to_vec() });
        }
        for given in [&hidden, &memory].into_iter().flatten() {
            if given.dims() != [directions.len(), batch, size] {
                return Err(Problem::Broadcast { left: given.dims().to_vec(), right: x.dims().to_vec() });
            }
        }
        let state = |given: &Option<Tensor<3>>, at: usize| match given {
            Some(state) => state.clone().narrow(0, at, 1).reshape([batch, size]),
            None => Tensor::zeros([batch, size], &x.device()),
        };
        let zeros = || Tensor::<2>::zeros([directions.len(), 2 * rows], &x.device());
        let bias = bias.unwrap_or_else(zeros);
        let runs = directions.iter().enumerate().map(|(at, &backwards)| {
            let bias = |from: usize| bias.clone().narrow(0, at, 1).narrow(1, from, rows).reshape([rows]);
            let strand = Strand {
                input: w.clone().narrow(0, at, 1).reshape([rows, features]).transpose(),
                recurrent: r.clone().narrow(0, at, 1).reshape([rows, size]).transpose(),
                input_bias: bias(0),
                recurrent_bias: bias(rows),
                hidden: state(&hidden, at),
                memory: state(&memory, at),
            };
            self.cell.unroll(&x, strand, backwards)
        });
        let runs: Vec<Run> = runs.collect();
        // [steps, directions, batch, hidden]; then the last states, [directions, batch, hidden].
        let per_direction = runs.iter().map(|run| Tensor::stack::<3>(run.states.clone(), 0)).collect();
        let mut outputs = vec![Value::Real(Real::R4(Tensor::stack::<4>(per_direction, 1)))];
        let last = |pick: fn(&Run) -> Tensor<2>| {
            Value::Real(Real::R3(Tensor::stack::<3>(runs.iter().map(pick).collect(), 0)))
        };
        outputs.push(last(|run| run.hidden.clone()));
        if self.cell == Recurrence::Lstm {
            outputs.push(last(|run| run.memory.clone()));
        }
        Ok(outputs)
    }
}

impl Recurrence {
    fn unroll(self, x: &Tensor<3>, strand: Strand, backwards: bool) -> Run {
        let [steps, batch, features] = x.dims();
        let rows = strand.input_bias.dims()[0];
        let Strand { input, recurrent, input_bias, recurrent_bias, mut hidden, mut memory } = strand;
        let all = x.clone().reshape([steps * batch, features]).matmul(input) + input_bias.unsqueeze::<2>();
        let all = all.reshape([steps, batch, rows]);
        let recurrent_bias = recurrent_bias.unsqueeze::<2>();
        let mut states = Vec::with_capacity(steps);
        for at in 0..steps {
            let at = if backwards { steps - 1 - at } else { at };
            let given = all.clone().narrow(0, at, 1).reshape([batch, rows]);
            (hidden, memory) = match self {
                Recurrence::Lstm => {
                    let gates = given + hidden.matmul(recurrent.clone()) + recurrent_bias.clone();
                    lstm_step(gates, memory)
                }
                Recurrence::Gru { reset_after } => {
                    let (weights, bias) = (recurrent.clone(), recurrent_bias.clone());
                    (gru_step(given, weights, bias, hidden, reset_after), memory)
                }
            };
            states.push(hidden.clone());
        }
        if backwards {
            states.reverse();
        }
        Run { states, hidden, memory }
    }
}

/// Gates in ONNX's order: input, output, forget, candidate.
fn lstm_step(gates: Tensor<2>, memory: Tensor<2>) -> (Tensor<2>, Tensor<2>) {
    let size = memory.dims()[1];
    let gate = |at: usize| gates.clone().narrow(1, at * size, size);
    let (input, output, forget) =
        (activation::sigmoid(gate(0)), activation::sigmoid(gate(1)), activation::sigmoid(gate(2)));
    let memory = forget * memory + input * gate(3).tanh();
    (output * memory.clone().tanh(), memory)
}

/// Gates in ONNX's order: update, reset, candidate.
fn gru_step(
    given: Tensor<2>,
    recurrent: Tensor<2>,
    bias: Tensor<2>,
    hidden: Tensor<2>,
    reset_after: bool,
) -> Tensor<2> {
    let size = hidden.dims()[1];
    let part = |tensor: &Tensor<2>, at: usize| tensor.clone().narrow(1, at * size, size);
    let product = |state: Tensor<2>, at: usize| state.matmul(part(&recurrent, at)) + part(&bias, at);
    let update = activation::sigmoid(part(&given, 0) + product(hidden.clone(), 0));
    let reset = activation::sigmoid(part(&given, 1) + product(hidden.clone(), 1));
    let proposal =
        if reset_after { reset * product(hidden.clone(), 2) } else { product(reset * hidden.clone(), 2) };
    let candidate = (part(&given, 2) + proposal).tanh();
    candidate.clone() - update.clone() * candidate + update * hidden
}
