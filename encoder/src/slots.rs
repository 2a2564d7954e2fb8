//! Queries concatenated along the channel axis, for a parity model whose first layer is k times as wide, and the decoder
//! that this code shares with `tiles`.
//!
//! Queries are not mixed, so this is the easiest code to learn; its price is a parity query k times the size of a
//! query. A query's slot is the index of its prediction among the parity model's k. Blank slots are zeros. The code
//! only copies bytes, so it accepts elements of any type.

use crate::linear::{self, Linear};
use crate::{Code, CodeSpec, Error, Head, Input, Members, Received, Workspace};

/// The most queries that fit a set together with parities.
const MAX_K: usize = 32;
/// The most parities: more copies of one network are useless.
const MAX_R: usize = 4;

/// Decodes the outputs of a code that does not mix queries, by subtraction or by reading a slot.
///
/// With the head `slots` a parity model returns k predictions, so one parity output recovers any number of losses.
/// Several parity outputs are averaged, since their errors differ. With the head `sum` it returns a weighted sum, as in
/// ParM's image code.
#[derive(Debug)]
pub(crate) enum Decoder {
    Slots,
    Sum(Linear),
}

impl Decoder {
    /// Checks the sizes of the code as well.
    pub(crate) fn new(spec: &CodeSpec) -> Result<Self, Error> {
        match spec.head.unwrap_or(Head::Slots) {
            Head::Slots => spec.check(1..=MAX_K, 1..=MAX_R).map(|()| Decoder::Slots),
            Head::Sum => {
                spec.check(1..=linear::MAX_K, 1..=MAX_R)?;
                Ok(Decoder::Sum(Linear::new(spec.k, spec.r)?))
            }
        }
    }

    /// Writes the prediction of `slot`, which the caller has checked to be recoverable.
    pub(crate) fn decode(&self, received: Received<'_>, slot: usize, out: &mut [f32]) {
        match self {
            Decoder::Sum(linear) => linear.decode(received, slot, |slot| slot, out),
            Decoder::Slots => mean(received.parities, slot, out),
        }
    }
}

fn mean(parities: &[Option<&[f32]>], slot: usize, out: &mut [f32]) {
    let count = parities.iter().flatten().count();
    let share = 1.0 / count as f32;
    out.fill(0.0);
    for output in parities.iter().flatten() {
        let prediction = &output[slot * out.len()..][..out.len()];
        for (sum, value) in out.iter_mut().zip(prediction) {
            *sum += if count == 1 { *value } else { value * share };
        }
    }
}

/// The slots code.
#[derive(Debug)]
pub(crate) struct Slots {
    spec: CodeSpec,
    decoder: Decoder,
}

impl Slots {
    /// `spec.k` concatenated queries.
    pub(crate) fn new(spec: &CodeSpec) -> Result<Self, Error> {
        Ok(Self { spec: spec.clone(), decoder: Decoder::new(spec)? })
    }
}

/// Copies every item of `len` units to its place, with zeros for those that are missing.
pub(crate) fn stack<T: Copy + Default>(items: &[Option<&[T]>], out: &mut [T], len: usize) {
    for (item, out) in items.iter().zip(out.chunks_exact_mut(len.max(1))) {
        match item {
            Some(item) => out.copy_from_slice(item),
            None => out.fill(T::default()),
        }
    }
}

impl Code for Slots {
    fn spec(&self) -> &CodeSpec {
        &self.spec
    }

    fn parity_dims(&self, input: Input<'_>) -> Result<Vec<usize>, Error> {
        let mut dims = input.dims.to_vec();
        *dims.first_mut().ok_or(Error::NoChannels)? *= self.spec.k;
        Ok(dims)
    }

    fn encode_checked(
        &self,
        members: Members<'_, f32>,
        parities: &mut [&mut [f32]],
        _: &mut Workspace,
    ) -> Result<(), Error> {
        parities.iter_mut().for_each(|parity| stack(members.queries, parity, members.input.len()));
        Ok(())
    }

    fn encode_bytes_checked(
        &self,
        members: Members<'_, u8>,
        parities: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        let len = members.input.len() * members.input.element.bytes();
        parities.iter_mut().for_each(|parity| stack(members.queries, parity, len));
        Ok(())
    }

    fn decode_checked(
        &self,
        received: Received<'_>,
        slot: usize,
        prediction: &mut [f32],
        _: &mut Workspace,
    ) -> Result<(), Error> {
        self.decoder.decode(received, slot, prediction);
        Ok(())
    }
}
