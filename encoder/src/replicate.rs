//! The code that everybody knows: send every query again, r times. Exact for every model, at r times its cost.
//!
//! The copy c of slot s is coded query c k + s. It is here so that replication goes through the same paths, tests and
//! tables as the codes that mean to beat it, and because k = 1 of any of them is this.

use crate::code::{OutputSizes, check_parities};
use crate::{Code, CodeSpec, Element, Error, Input, Members, Needs, Received, Recovery, Workspace};

/// Coded queries that fit a set.
const MAX_COPIES: usize = 64;

/// Copies of queries.
#[derive(Debug)]
pub struct Replicate {
    spec: CodeSpec,
}

impl Replicate {
    /// `spec.r` copies of each of `spec.k` queries.
    pub fn new(spec: &CodeSpec) -> Result<Self, Error> {
        spec.check_sizes((1, 32), (1, MAX_COPIES / spec.k.max(1)))?;
        Ok(Self { spec: spec.clone() })
    }

    fn copy<T: Copy + Default>(&self, queries: &[Option<&[T]>], parities: &mut [&mut [T]]) {
        for (parity, query) in parities.iter_mut().zip(queries.iter().cycle()) {
            match query {
                Some(query) => parity.copy_from_slice(query),
                None => parity.fill(T::default()),
            }
        }
    }
}

impl Code for Replicate {
    fn spec(&self) -> &CodeSpec {
        &self.spec
    }

    fn recovery(&self) -> Recovery {
        Recovery { k: self.spec.k, parities: self.spec.k * self.spec.r, needs: Needs::OwnCopy }
    }

    fn parity_dims(&self, input: Input<'_>) -> Result<Vec<usize>, Error> {
        Ok(input.dims.to_vec())
    }

    fn encode(
        &self,
        members: Members<'_, f32>,
        parities: &mut [&mut [f32]],
        _: &mut Workspace,
    ) -> Result<(), Error> {
        members.check(self.spec.k, members.input.len())?;
        check_parities(parities, self.recovery().parities, members.input.len())?;
        self.copy(members.queries, parities);
        Ok(())
    }

    fn encode_bytes(&self, members: Members<'_, u8>, parities: &mut [&mut [u8]]) -> Result<(), Error> {
        let size = match members.input.element {
            Element::Float32 => 4,
            Element::Bytes(bytes) => bytes,
        };
        members.check(self.spec.k, members.input.len() * size)?;
        check_parities(parities, self.recovery().parities, members.input.len() * size)?;
        self.copy(members.queries, parities);
        Ok(())
    }

    fn decode(
        &self,
        received: Received<'_>,
        slot: usize,
        prediction: &mut [f32],
        _: &mut Workspace,
    ) -> Result<(), Error> {
        received.check(self.recovery(), slot, OutputSizes::same(prediction.len()))?;
        let mut copies = received.parities.iter().skip(slot).step_by(self.spec.k).flatten();
        if let Some(copy) = copies.next() {
            prediction.copy_from_slice(copy);
        }
        Ok(())
    }
}
