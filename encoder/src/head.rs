//! How the outputs of a placed code (`tiles`, `slots`) are decoded: by subtraction or by reading a slot.
//!
//! With the head `slots` a parity model puts out k predictions one after the other; any number of losses follow from
//! one parity output, and the mean of several is taken, for their errors differ. With the head `sum` it puts out a
//! weighted sum, as in ParM's image code.

use crate::code::OutputSizes;
use crate::linear::{Linear, coefficients};
use crate::{CodeSpec, Error, Head, Needs, Received, Recovery};

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

    pub(crate) fn recovery(&self, spec: &CodeSpec) -> Recovery {
        let needs = match self {
            Decoder::Slots(_) => Needs::OneParity,
            Decoder::Sum(_) => Needs::AsManyAsMissing,
        };
        Recovery { k: spec.k, parities: spec.r, needs }
    }

    /// Length of a parity output over a prediction's.
    pub(crate) fn scale(&self) -> usize {
        match self {
            Decoder::Slots(places) => places.len(),
            Decoder::Sum(_) => 1,
        }
    }

    pub(crate) fn decode(
        &self,
        spec: &CodeSpec,
        received: Received<'_>,
        slot: usize,
        out: &mut [f32],
    ) -> Result<(), Error> {
        let sizes = OutputSizes { prediction: out.len(), parity: out.len() * self.scale() };
        received.check(self.recovery(spec), slot, sizes)?;
        match self {
            Decoder::Sum(linear) => linear.decode(received, slot, out),
            Decoder::Slots(places) => mean(received.parities, places[slot], out),
        }
        Ok(())
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
