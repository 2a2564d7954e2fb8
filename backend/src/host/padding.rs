//! Shows that a model takes padded rows: rows of unequal lengths, padded with zeros, give what each gives alone.
//!
//! *Problem.* Requests of variable length could share batches if the shorter ones were padded. A model that does not mask
//! the padding everywhere, for example in a mean over all tokens, would then give wrong answers, and nothing in the file
//! says so.
//!
//! *Choice.* A model is tried if its inputs have the names of an encoder's, with `attention_mask`, or if its `config.pbtxt`
//! names the mask. Two rows of unequal lengths are run padded together and alone. The mask of a row is ones, then zeros. The
//! trial also shows which axes of the outputs have the length, so that answers can be cut back. A model of which that is
//! not shown is served without padding; with a declared mask it is refused, because its operator relies on it. Frontends
//! receive the result with the configuration ([`Padding`]).
//!
//! *Rejected.* Trust in names or declarations (a mean over all tokens is a common mistake in exported encoders). Padding in
//! the worker: the dispatcher forms the batches, and the wire has no form for rows of unequal lengths. Texts are padded by
//! their engine, which tokenises them.

use std::time::{Duration, Instant};

use parm_protocol::{Padding, Shape, Tensor};
use parm_workload::Random;

use crate::Error;
use crate::engine::trial::{NEAR_ZERO, push, same};
use crate::engine::{Declared, Model, Signature, guarded};

/// The inputs of an encoder.
const KNOWN: [&str; 3] = ["input_ids", MASK, "token_type_ids"];
const MASK: &str = "attention_mask";

/// The lengths of the two rows of each trial.
const LENGTHS: [[usize; 2]; 3] = [[3, 8], [7, 5], [6, 24]];

/// Largest difference of floats by rounding, as a share of the largest value of the output.
const ROUNDING: f64 = 1e-5;

/// How the rows of a model are padded, if it takes that. `declared` is the mask of its configuration; an error is why a
/// declared mask is wrong.
pub(super) fn shown(
    name: &str,
    model: &mut dyn Model,
    declared: Option<&str>,
    time: Duration,
) -> Result<Option<Padding>, Error> {
    if declared == Some("") {
        return Ok(None);
    }
    let mask = match mask(model.signature(), declared) {
        Ok(Some(mask)) => mask,
        Ok(None) => return Ok(None),
        Err(message) => return Err(Error::Mask { message }),
    };
    match (try_all(model, mask, declared.is_some(), time), declared) {
        (Ok(padding), _) => {
            tracing::info!(
                name,
                "rows of unequal lengths may share a batch: padded rows give what they give alone"
            );
            Ok(Some(padding))
        }
        (Err(message), Some(_)) => Err(Error::Mask { message }),
        (Err(reason), None) => {
            tracing::info!(name, reason, "rows of unequal lengths are not batched: padding changes answers");
            Ok(None)
        }
    }
}

/// The index of the mask, if the inputs can be padded; an error is why a declared one cannot mask.
fn mask(signature: &Signature, declared: Option<&str>) -> Result<Option<usize>, String> {
    let name = declared.unwrap_or(MASK);
    let known = |input: &Declared| declared.is_some() || KNOWN.contains(&&*input.name);
    let pads = |input: &Declared| Padding::pads(&input.metadata());
    let fixed = |input: &Declared| input.shape.iter().skip(1).all(|dim| *dim >= 0);
    let Some(at) = signature.inputs.iter().position(|input| input.name == name) else {
        let inputs: Vec<&str> = signature.inputs.iter().map(|input| &*input.name).collect();
        return declared
            .map_or(Ok(None), |name| Err(format!("the model has no input '{name}': it has {inputs:?}")));
    };
    let odd = signature.inputs.iter().find(|input| !known(input) || !(pads(input) || fixed(input)));
    match odd.or(Some(&signature.inputs[at]).filter(|mask| !pads(mask))) {
        None => Ok(Some(at)),
        Some(_) if declared.is_none() => Ok(None),
        Some(odd) => {
            Err(format!("input '{}' of shape {:?} cannot be padded, [-1, -1] can", odd.name, odd.shape))
        }
    }
}

fn try_all(model: &mut dyn Model, mask: usize, declared: bool, time: Duration) -> Result<Padding, String> {
    let started = Instant::now();
    let mut shown: Option<Padding> = None;
    for (round, lengths) in LENGTHS.into_iter().enumerate() {
        if shown.is_some() && !declared && started.elapsed() > time / 2 {
            break;
        }
        let padding = compared(model, mask, lengths, round as u64)?;
        match &shown {
            Some(before) if *before != padding => {
                return Err("the axes of outputs change with the length".into());
            }
            _ => shown = Some(padding),
        }
    }
    shown.ok_or_else(|| "it was not tried".into())
}

/// Compares two padded rows with the same rows alone.
fn compared(model: &mut dyn Model, mask: usize, lengths: [usize; 2], seed: u64) -> Result<Padding, String> {
    let mut random = Random::of(0x7069, [seed]);
    let rows = lengths.map(|length| drawn(model.signature(), mask, length, &mut random));
    let longest = lengths.into_iter().max().unwrap_or_default();
    let stacked = |at: usize| {
        let input = &model.signature().inputs[at];
        let pads = Padding::pads(&input.metadata());
        let parts =
            rows.iter().map(|row| if pads { row[at].resized(1, longest) } else { Ok(row[at].clone()) });
        Tensor::concat_rows(&parts.collect::<Result<Vec<_>, _>>()?)
    };
    let together: Result<Vec<Tensor>, _> = (0..rows[0].len()).map(stacked).collect();
    let together = together.map_err(|error| error.to_string())?;
    let mut run = |inputs: &[Tensor]| guarded(|| model.run(inputs)).map_err(|error| error.to_string());
    let alone = [run(&rows[0])?, run(&rows[1])?];
    let together = run(&together)?;
    let mask = model.signature().inputs[mask].name.clone();
    let mut padding = Padding { mask, ..Padding::default() };
    for (at, declared) in model.signature().outputs.iter().enumerate() {
        let outputs = [&alone[0], &alone[1], &together].map(|outputs| outputs.get(at));
        let [Some(one), Some(other), Some(both)] = outputs else { return Err("an output is missing".into()) };
        let axes = axes(&declared.name, [one, other], lengths)?;
        if !axes.is_empty() {
            padding.axes.insert(declared.name.clone(), axes);
        }
        for (row, (own, length)) in [one, other].into_iter().zip(lengths).enumerate() {
            let cut = both.slice_rows(row, 1).and_then(|cut| padding.cut(&declared.name, cut, length));
            let cut = cut.map_err(|error| error.to_string())?;
            if same(&cut, own, (ROUNDING, NEAR_ZERO)).is_err() {
                return Err(format!(
                    "output '{}' of a padded row is not that of the row alone",
                    declared.name
                ));
            }
        }
    }
    Ok(padding)
}

/// The axes of an output that are as long as the inputs.
fn axes(name: &str, outputs: [&Tensor; 2], lengths: [usize; 2]) -> Result<Vec<usize>, String> {
    let [one, other] = outputs.map(Tensor::shape);
    if one.len() != other.len() {
        return Err(format!("output '{name}' has another rank at another length"));
    }
    let changed = (0..one.len()).filter(|axis| one[*axis] != other[*axis]);
    let axes: Vec<usize> = changed.collect();
    match axes.iter().find(|axis| **axis == 0 || [one[**axis], other[**axis]] != lengths) {
        Some(axis) => Err(format!("axis {axis} of output '{name}' depends on the length and is not as long")),
        None => Ok(axes),
    }
}

/// Inputs of one row of a length: the mask is ones, all other numbers are small and not zero.
fn drawn(signature: &Signature, mask: usize, length: usize, random: &mut Random) -> Vec<Tensor> {
    let input = |(at, input): (usize, &Declared)| {
        let size =
            |(axis, dim): (usize, &i64)| if axis == 0 { 1 } else { usize::try_from(*dim).unwrap_or(length) };
        let shape: Shape = input.shape.iter().enumerate().map(size).collect();
        let count: usize = shape.iter().product();
        let kinds = input.name == "token_type_ids";
        let mut data = Vec::new();
        for _ in 0..count {
            let whole = if at == mask { 1 } else { 1 + random.below(2) as u8 - u8::from(kinds) };
            push(&mut data, input.datatype, whole.into(), whole);
        }
        Tensor::new(input.datatype, shape, data.into()).ok()
    };
    signature.inputs.iter().enumerate().filter_map(input).collect()
}
