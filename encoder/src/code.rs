//! The trait that every code implements, and the views of a group that it works on.

use std::fmt::Debug;

use crate::{Arrived, CodeSpec, Error, Needs, Part, Recovery, Set, Workspace};

/// What one element of an input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// A 32-bit float: every code can take it.
    Float32,
    /// Anything else of this many bytes: only codes that move queries without arithmetic can take it.
    Bytes(usize),
}

/// One input tensor of a query, without the batch dimension. Several inputs are encoded each on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input<'a> {
    /// Dimensions of one query.
    pub dims: &'a [usize],
    /// Its element type.
    pub element: Element,
}

impl Element {
    /// Bytes of one.
    pub fn bytes(self) -> usize {
        match self {
            Element::Float32 => 4,
            Element::Bytes(bytes) => bytes,
        }
    }
}

impl<'a> Input<'a> {
    /// An input of 32-bit floats.
    pub fn floats(dims: &'a [usize]) -> Self {
        Self { dims, element: Element::Float32 }
    }

    /// Elements of one query.
    pub fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// Whether a query has no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The queries of a group in slot order, `None` where a slot is blank. `T` is `f32`, or `u8` for raw bytes.
#[derive(Clone, Copy, Debug)]
pub struct Members<'a, T> {
    /// Which input they are.
    pub input: Input<'a>,
    /// One per slot.
    pub queries: &'a [Option<&'a [T]>],
}

impl<T> Members<'_, T> {
    /// The slots that are not blank.
    pub fn present(&self) -> Set {
        Set::present(self.queries)
    }

    /// Checks the number of slots, their lengths (`len` units of `T` each) and that there is a member.
    pub(crate) fn check(&self, k: usize, len: usize) -> Result<(), Error> {
        count(Part::Query, k, self.queries.len())?;
        for (index, query) in self.queries.iter().enumerate() {
            if let Some(query) = query {
                length(Part::Query, index, len, query.len())?;
            }
        }
        if self.queries.iter().all(Option::is_none) { Err(Error::EmptyGroup) } else { Ok(()) }
    }
}

/// What has come back of a group, for one output tensor.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// Slots that hold a query.
    pub members: Set,
    /// The deployed model's outputs by slot; all `None` for a code that is not systematic.
    pub predictions: &'a [Option<&'a [f32]>],
    /// The outputs for the coded queries, in the order in which `encode` wrote them.
    pub parities: &'a [Option<&'a [f32]>],
}

impl Received<'_> {
    /// The pattern, without the values.
    pub fn arrived(&self) -> Arrived {
        Arrived {
            members: self.members,
            predictions: Set::present(self.predictions),
            parities: Set::present(self.parities),
        }
    }

    /// Checks counts, lengths and that `slot` can be had; `scale` = length of a parity output over a prediction's.
    pub(crate) fn check(&self, recovery: Recovery, slot: usize, sizes: OutputSizes) -> Result<(), Error> {
        count(Part::Prediction, recovery.k, self.predictions.len())?;
        count(Part::ParityOutput, recovery.parities, self.parities.len())?;
        for (what, outputs, len) in [
            (Part::Prediction, self.predictions, sizes.prediction),
            (Part::ParityOutput, self.parities, sizes.parity),
        ] {
            for (index, output) in outputs.iter().enumerate() {
                if let Some(output) = output {
                    length(what, index, len, output.len())?;
                }
            }
        }
        if slot >= recovery.k || !self.members.contains(slot) {
            return Err(Error::BlankSlot { slot, k: recovery.k });
        }
        let arrived = self.arrived();
        if recovery.can_recover(arrived, Set::EMPTY.with(slot)) {
            return Ok(());
        }
        let missing = match recovery.needs {
            Needs::AsManyAsMissing => arrived.members.without(arrived.predictions).with(slot).len(),
            _ => arrived.members.without(arrived.predictions).len(),
        };
        Err(Error::Unrecoverable { slot, missing, parities: arrived.parities.len() })
    }
}

/// Lengths that outputs must have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputSizes {
    pub(crate) prediction: usize,
    pub(crate) parity: usize,
}

/// A code: how a group becomes parity queries, and how a lost prediction is made from what came back.
///
/// A code of one's own implements [`spec`](Code::spec) and the two `_checked` methods; callers use `encode` and `decode`,
/// which refuse what does not fit before these see it.
pub trait Code: Debug + Send + Sync {
    /// What it was built from.
    fn spec(&self) -> &CodeSpec;

    /// Which losses it makes good.
    fn recovery(&self) -> Recovery {
        self.spec().recovery()
    }

    /// Dimensions of one parity query for this input; an error if the code cannot encode such inputs. Ask once,
    /// when a model is loaded.
    fn parity_dims(&self, input: Input<'_>) -> Result<Vec<usize>, Error> {
        self.floats_only(input)?;
        Ok(input.dims.to_vec())
    }

    /// Length of a parity model's output over that of a prediction: k for slot heads, else 1.
    fn output_scale(&self) -> usize {
        self.spec().output_scale()
    }

    /// Elements of a parity query over those of a query: k where they stand side by side, else 1.
    fn query_scale(&self) -> usize {
        self.spec().query_scale()
    }

    /// Refuses everything but floats, if the code does arithmetic.
    fn floats_only(&self, input: Input<'_>) -> Result<(), Error> {
        let kind = self.spec().kind;
        if input.element != Element::Float32 && kind.is_arithmetic() {
            return Err(Error::NotArithmetic { kind, bytes: input.element.bytes() });
        }
        Ok(())
    }

    /// Writes the group's parity queries, [`Recovery::parities`] of them. Does not allocate.
    fn encode(
        &self,
        members: Members<'_, f32>,
        parities: &mut [&mut [f32]],
        workspace: &mut Workspace,
    ) -> Result<(), Error> {
        check_group(self.spec(), members, parities, members.input.len())?;
        self.encode_checked(members, parities, workspace)
    }

    /// The same for elements that are not floats, as raw bytes. Codes that do arithmetic refuse.
    fn encode_bytes(&self, members: Members<'_, u8>, parities: &mut [&mut [u8]]) -> Result<(), Error> {
        self.floats_only(members.input)?;
        check_group(self.spec(), members, parities, members.input.len() * members.input.element.bytes())?;
        self.encode_bytes_checked(members, parities)
    }

    /// Writes the prediction of `slot`, ignoring that slot's own prediction if it is there. Does not allocate once
    /// `workspace` has grown to what the code needs.
    fn decode(
        &self,
        received: Received<'_>,
        slot: usize,
        prediction: &mut [f32],
        workspace: &mut Workspace,
    ) -> Result<(), Error> {
        let len = prediction.len();
        let sizes = OutputSizes { prediction: len, parity: len * self.output_scale() };
        received.check(self.recovery(), slot, sizes)?;
        self.decode_checked(received, slot, prediction, workspace)
    }

    /// [`encode`](Self::encode) of a group with a member, all slices of which have the lengths that they must have.
    fn encode_checked(
        &self,
        members: Members<'_, f32>,
        parities: &mut [&mut [f32]],
        workspace: &mut Workspace,
    ) -> Result<(), Error>;

    /// [`encode_bytes`](Self::encode_bytes) of such a group.
    fn encode_bytes_checked(
        &self,
        members: Members<'_, u8>,
        _parities: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        Err(Error::NotArithmetic { kind: self.spec().kind, bytes: members.input.element.bytes() })
    }

    /// [`decode`](Self::decode) of a slot that can be recovered from what is in.
    fn decode_checked(
        &self,
        received: Received<'_>,
        slot: usize,
        prediction: &mut [f32],
        workspace: &mut Workspace,
    ) -> Result<(), Error>;
}

/// Checks a group, and the slices that its parity queries are written to; `len` units of `T` make a query.
fn check_group<T>(
    spec: &CodeSpec,
    members: Members<'_, T>,
    parities: &[&mut [T]],
    len: usize,
) -> Result<(), Error> {
    members.check(spec.k, len)?;
    check_parities(parities, spec.recovery().parities, len * spec.query_scale())
}

/// Checks the slices that parity queries are written to.
fn check_parities<T>(parities: &[&mut [T]], expected: usize, len: usize) -> Result<(), Error> {
    count(Part::ParityQuery, expected, parities.len())?;
    parities
        .iter()
        .enumerate()
        .try_for_each(|(index, parity)| length(Part::ParityQuery, index, len, parity.len()))
}

fn count(what: Part, expected: usize, actual: usize) -> Result<(), Error> {
    if expected == actual { Ok(()) } else { Err(Error::Count { what, expected, actual }) }
}

fn length(what: Part, index: usize, expected: usize, actual: usize) -> Result<(), Error> {
    if expected == actual { Ok(()) } else { Err(Error::Length { what, index, expected, actual }) }
}
