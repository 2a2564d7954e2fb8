//! Decodes the outputs of a placed code (`tiles`, `slots`), by subtraction or by reading a slot.
//!
//! With the head `slots` a parity model returns k predictions, so one parity output recovers any number of losses.
//! Several parity outputs are averaged, since their errors differ. With the head `sum` it returns a weighted sum, as in
//! ParM's image code.

use crate::linear::{Linear, coefficients};
use crate::{CodeSpec, Error, Head, Received};

#[derive(Debug)]
pub(crate) enum Decoder {
    /// Place of each member.
    Slots(Vec<usize>),
    Sum(Linear),
}

impl Decoder {
    pub(crate) fn new(spec: &CodeSpec) -> Result<Self, Error> {
        Ok(match spec.head.unwrap_or(Head::Slots) {
            Head::Slots => Decoder::Slots(spec.places()?),
            Head::Sum => Decoder::Sum(Linear::new(&coefficients(spec)?)),
        })
    }

    /// Writes the prediction of `slot`, which the caller has checked to be recoverable.
    pub(crate) fn decode(&self, received: Received<'_>, slot: usize, out: &mut [f32]) {
        match self {
            Decoder::Sum(linear) => linear.decode(received, slot, |slot| slot, out),
            Decoder::Slots(places) => mean(received.parities, places[slot], out),
        }
    }
}

fn mean(parities: &[Option<&[f32]>], place: usize, out: &mut [f32]) {
    let count = parities.iter().flatten().count();
    let share = 1.0 / count as f32;
    out.fill(0.0);
    for output in parities.iter().flatten() {
        let prediction = &output[place * out.len()..][..out.len()];
        for (sum, value) in out.iter_mut().zip(prediction) {
            *sum += if count == 1 { *value } else { value * share };
        }
    }
}
