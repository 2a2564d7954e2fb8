//! The code that everybody knows: send every query again, r times. Exact for every model, at r times its cost.
//!
//! The copy c of slot s is coded query c k + s. It is here so that replication goes through the same paths, tests and
//! tables as the codes that mean to beat it, and because k = 1 of any of them is this.

use crate::kind::{Mixing, Nature, Requirement};
use crate::{Code, CodeSpec, Error, Members, Needs, Received, Workspace};

/// Coded queries that fit a set.
const MAX_COPIES: usize = 64;

/// What is known of it by name.
pub(crate) const NATURE: Nature = Nature {
    name: "replicate",
    requires: Requirement::Nothing,
    mixing: Mixing::Copies,
    fields: &[],
    parities: |spec| spec.k * spec.r,
    needs: |_| Needs::OwnCopy,
    build: |spec| Ok(Box::new(Replicate::new(spec)?)),
};

/// Copies of queries.
#[derive(Debug)]
pub struct Replicate {
    spec: CodeSpec,
}

impl Replicate {
    /// `spec.r` copies of each of `spec.k` queries.
    pub fn new(spec: &CodeSpec) -> Result<Self, Error> {
        spec.check_sizes(1..=32, 1..=MAX_COPIES / spec.k.max(1))?;
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

    fn encode_checked(
        &self,
        members: Members<'_, f32>,
        parities: &mut [&mut [f32]],
        _: &mut Workspace,
    ) -> Result<(), Error> {
        self.copy(members.queries, parities);
        Ok(())
    }

    fn encode_bytes_checked(
        &self,
        members: Members<'_, u8>,
        parities: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        self.copy(members.queries, parities);
        Ok(())
    }

    fn decode_checked(
        &self,
        received: Received<'_>,
        slot: usize,
        prediction: &mut [f32],
        _: &mut Workspace,
    ) -> Result<(), Error> {
        let mut copies = received.parities.iter().skip(slot).step_by(self.spec.k).flatten();
        if let Some(copy) = copies.next() {
            prediction.copy_from_slice(copy);
        }
        Ok(())
    }
}
