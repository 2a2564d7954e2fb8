//! Queries concatenated along the channel axis, for a parity model whose first layer is k times as wide.
//!
//! Queries are not mixed, so this is the easiest code to learn; its price is a parity query k times the size of a
//! query. A query's place is the index of its prediction among the parity model's k. Blank slots are zeros. The code
//! only copies bytes, so it accepts elements of any type.

use crate::head::Decoder;
use crate::{Code, CodeSpec, Error, Input, Layout, Members, Received, Workspace};

/// The most queries that fit a set together with parities.
const MAX_K: usize = 32;
/// The most parities that a linear head decodes; more copies of one network are useless.
const MAX_R: usize = 4;

/// The slots code.
#[derive(Debug)]
pub(crate) struct Slots {
    spec: CodeSpec,
    places: Vec<usize>,
    decoder: Decoder,
}

impl Slots {
    /// `spec.k` concatenated queries.
    pub(crate) fn new(spec: &CodeSpec) -> Result<Self, Error> {
        let max_k = if spec.head == Some(crate::Head::Sum) { crate::linear::MAX_K } else { MAX_K };
        spec.check_sizes(1..=max_k, 1..=MAX_R)?;
        Ok(Self { spec: spec.clone(), places: spec.places()?, decoder: Decoder::new(spec)? })
    }

    /// Copies every query to its place, in runs of `len` units of `T`: the whole query if channels come first, one
    /// pixel's channels if they come last.
    fn place<T: Copy + Default>(&self, queries: &[Option<&[T]>], len: usize, parities: &mut [&mut [T]]) {
        let k = self.spec.k;
        for parity in parities.iter_mut() {
            for (slot, query) in queries.iter().enumerate() {
                let targets = parity.chunks_exact_mut(len).skip(self.places[slot]).step_by(k);
                match query {
                    Some(query) => {
                        targets.zip(query.chunks_exact(len)).for_each(|(to, from)| to.copy_from_slice(from))
                    }
                    None => targets.for_each(|to| to.fill(T::default())),
                }
            }
        }
    }

    /// Elements of a run that is copied whole.
    fn together(&self, input: Input<'_>) -> usize {
        match self.spec.layout.unwrap_or_default() {
            Layout::ChannelsFirst => input.len(),
            Layout::ChannelsLast => input.dims.last().copied().unwrap_or(1),
        }
    }
}

impl Code for Slots {
    fn spec(&self) -> &CodeSpec {
        &self.spec
    }

    fn parity_dims(&self, input: Input<'_>) -> Result<Vec<usize>, Error> {
        let mut dims = input.dims.to_vec();
        let axis = match self.spec.layout.unwrap_or_default() {
            Layout::ChannelsFirst => dims.first_mut(),
            Layout::ChannelsLast => dims.last_mut(),
        };
        *axis.ok_or_else(|| Error::NoChannels { dims: input.dims.to_vec() })? *= self.spec.k;
        Ok(dims)
    }

    fn encode_checked(
        &self,
        members: Members<'_, f32>,
        parities: &mut [&mut [f32]],
        _: &mut Workspace,
    ) -> Result<(), Error> {
        if !members.input.is_empty() {
            self.place(members.queries, self.together(members.input), parities);
        }
        Ok(())
    }

    fn encode_bytes_checked(
        &self,
        members: Members<'_, u8>,
        parities: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        let size = members.input.element.bytes();
        if members.input.len() * size > 0 {
            self.place(members.queries, self.together(members.input) * size, parities);
        }
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
