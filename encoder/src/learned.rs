//! A code whose encoder and decoder are models (*Learning a Code*), with the interface that an engine implements.
//!
//! The deployed model serves the parities. The encoder net computes r parity queries from k queries. The decoder net
//! reads all k + r outputs, with zeros for lost ones, and returns k predictions. Nets have fixed shapes, so blank
//! slots are zeros too: the decoder cannot tell them from lost ones.

use std::fmt::Debug;

use crate::code::take;
use crate::slots::stack;
use crate::{Code, CodeSpec, Error, Members, Received, Workspace};

/// The two nets, run by an engine.
pub trait Nets: Debug + Send + Sync {
    /// Computes r concatenated parity queries from k concatenated queries.
    fn encode(&self, queries: &[f32], parities: &mut [f32]) -> Result<(), String>;

    /// Computes k concatenated predictions from k + r concatenated outputs, with zeros for lost ones.
    fn decode(&self, outputs: &[f32], predictions: &mut [f32]) -> Result<(), String>;
}

/// A learned code.
#[derive(Debug)]
pub struct Learned {
    spec: CodeSpec,
    nets: Box<dyn Nets>,
}

impl Learned {
    /// The code of these nets, which must have been trained for `spec.k` and `spec.r`.
    pub fn new(spec: &CodeSpec, nets: Box<dyn Nets>) -> Result<Self, Error> {
        spec.check(2..=32, 1..=32)?;
        Ok(Self { spec: spec.clone(), nets })
    }
}

impl Code for Learned {
    fn spec(&self) -> &CodeSpec {
        &self.spec
    }

    fn encode_checked(
        &self,
        members: Members<'_, f32>,
        parities: &mut [&mut [f32]],
        workspace: &mut Workspace,
    ) -> Result<(), Error> {
        let (len, k) = (members.input.len(), self.spec.k);
        let queries = take(&mut workspace.floats, len * k);
        stack(members.queries, queries, len);
        let coded = take(&mut workspace.outputs, len * self.spec.r);
        self.nets.encode(queries, coded).map_err(|reason| Error::Nets { reason })?;
        for (parity, coded) in parities.iter_mut().zip(coded.chunks_exact(len.max(1))) {
            parity.copy_from_slice(coded);
        }
        Ok(())
    }

    fn decode_checked(
        &self,
        received: Received<'_>,
        slot: usize,
        prediction: &mut [f32],
        workspace: &mut Workspace,
    ) -> Result<(), Error> {
        let (len, k) = (prediction.len(), self.spec.k);
        let outputs = take(&mut workspace.floats, len * (k + self.spec.r));
        let (exact, coded) = outputs.split_at_mut(len * k);
        stack(received.predictions, exact, len);
        exact[slot * len..][..len].fill(0.0);
        stack(received.parities, coded, len);
        let predictions = take(&mut workspace.outputs, len * k);
        self.nets.decode(outputs, predictions).map_err(|reason| Error::Nets { reason })?;
        prediction.copy_from_slice(&predictions[slot * len..][..len]);
        Ok(())
    }
}
