//! The trait that every code implements, and the views of a group that it works on.

use std::fmt::Debug;

use crate::tiles::Average;
use crate::{Arrived, CodeSpec, Error, Recovery, Set};

/// The type of an input's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// A 32-bit float, which every code accepts.
    Float32,
    /// Any other type of this many bytes, which only codes without arithmetic accept.
    Bytes(usize),
}

/// One input tensor of a query, without the batch dimension. Each input of a model is encoded separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input<'a> {
    /// Dimensions of one query.
    pub dims: &'a [usize],
    /// Its element type.
    pub element: Element,
}

impl Element {
    /// Bytes of one element.
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

    /// Whether a query has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The queries of a group in slot order, `None` where a slot is blank. `T` is `f32`, or `u8` for raw bytes.
#[derive(Clone, Copy, Debug)]
pub struct Members<'a, T> {
    /// The input to which they belong.
    pub input: Input<'a>,
    /// One per slot.
    pub queries: &'a [Option<&'a [T]>],
}

impl<T> Members<'_, T> {
    /// The slots that are not blank.
    pub fn present(&self) -> Set {
        Set::present(self.queries)
    }

    /// Checks the number of slots, the length of each query (`len` units of `T`) and that the group has a member.
    pub(crate) fn check(&self, k: usize, len: usize) -> Result<(), Error> {
        count("query", k, self.queries.len())?;
        for (index, query) in self.queries.iter().enumerate() {
            if let Some(query) = query {
                length("query", index, len, query.len())?;
            }
        }
        if self.queries.iter().all(Option::is_none) { Err(Error::EmptyGroup) } else { Ok(()) }
    }
}

/// The outputs of a group that have arrived, for one output tensor.
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

    /// Checks counts, the lengths of predictions and parity outputs, and that `slot` can be recovered.
    fn check(&self, recovery: Recovery, slot: usize, (len, parity_len): (usize, usize)) -> Result<(), Error> {
        for (what, wanted, outputs, len) in [
            ("prediction", recovery.k, self.predictions, len),
            ("parity output", recovery.parities, self.parities, parity_len),
        ] {
            count(what, wanted, outputs.len())?;
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
        let missing = arrived.members.without(arrived.predictions).with(slot).len();
        Err(Error::Unrecoverable { slot, missing, parities: arrived.parities.len() })
    }
}

/// Scratch memory that a caller keeps from group to group, so that the hot path does not allocate. One per thread; any code
/// may use any workspace.
#[derive(Debug, Default)]
pub struct Workspace {
    /// Rows of pixels, stacked queries.
    pub(crate) floats: Vec<f32>,
    /// The input pixels that each pixel of a shrunk line averages.
    pub(crate) averages: Vec<Average>,
    /// Stacked outputs of a learned decoder.
    pub(crate) outputs: Vec<f32>,
}

impl Workspace {
    /// An empty workspace.
    pub fn new() -> Self {
        Self::default()
    }
}

/// The first `len` elements of `buffer`, which grows if it is shorter.
pub(crate) fn take(buffer: &mut Vec<f32>, len: usize) -> &mut [f32] {
    if buffer.len() < len {
        buffer.resize(len, 0.0);
    }
    &mut buffer[..len]
}

/// A code: encodes a group into parity queries, and reconstructs a lost prediction from the outputs that arrived.
///
/// A new code implements [`spec`](Code::spec) and the two `_checked` methods. Callers use `encode` and `decode`, which
/// check their arguments first.
pub trait Code: Debug + Send + Sync {
    /// The spec from which it was built.
    fn spec(&self) -> &CodeSpec;

    /// The losses that it recovers.
    fn recovery(&self) -> Recovery {
        self.spec().recovery()
    }

    /// Dimensions of one parity query for this input, or an error if the code cannot encode such inputs. Allocates:
    /// call it once, when a model is loaded.
    fn parity_dims(&self, input: Input<'_>) -> Result<Vec<usize>, Error> {
        self.floats_only(input)?;
        Ok(input.dims.to_vec())
    }

    /// Length of a parity model's output divided by a prediction's: k for the head `slots`, otherwise 1.
    fn output_scale(&self) -> usize {
        self.spec().output_scale()
    }

    /// Elements of a parity query divided by a query's: k if queries are concatenated, otherwise 1.
    fn query_scale(&self) -> usize {
        self.spec().query_scale()
    }

    /// Rejects elements other than floats if the code does arithmetic.
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

    /// As [`encode`](Self::encode), for elements that are not floats, as raw bytes. Codes that do arithmetic fail.
    fn encode_bytes(&self, members: Members<'_, u8>, parities: &mut [&mut [u8]]) -> Result<(), Error> {
        self.floats_only(members.input)?;
        check_group(self.spec(), members, parities, members.input.len() * members.input.element.bytes())?;
        self.encode_bytes_checked(members, parities)
    }

    /// Writes the prediction of `slot` and ignores that slot's own prediction. Does not allocate once `workspace` has
    /// grown.
    fn decode(
        &self,
        received: Received<'_>,
        slot: usize,
        prediction: &mut [f32],
        workspace: &mut Workspace,
    ) -> Result<(), Error> {
        let len = prediction.len();
        received.check(self.recovery(), slot, (len, len * self.output_scale()))?;
        self.decode_checked(received, slot, prediction, workspace)
    }

    /// [`encode`](Self::encode) of a group that has a member, once all lengths are checked.
    fn encode_checked(
        &self,
        members: Members<'_, f32>,
        parities: &mut [&mut [f32]],
        workspace: &mut Workspace,
    ) -> Result<(), Error>;

    /// [`encode_bytes`](Self::encode_bytes), after the same checks.
    fn encode_bytes_checked(
        &self,
        members: Members<'_, u8>,
        _parities: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        Err(Error::NotArithmetic { kind: self.spec().kind, bytes: members.input.element.bytes() })
    }

    /// [`decode`](Self::decode) of a slot that can be recovered.
    fn decode_checked(
        &self,
        received: Received<'_>,
        slot: usize,
        prediction: &mut [f32],
        workspace: &mut Workspace,
    ) -> Result<(), Error>;
}

/// Checks a group and the slices for its parity queries; a query has `len` units of `T`.
fn check_group<T>(
    spec: &CodeSpec,
    members: Members<'_, T>,
    parities: &[&mut [T]],
    len: usize,
) -> Result<(), Error> {
    members.check(spec.k, len)?;
    count("parity query", spec.recovery().parities, parities.len())?;
    let len = len * spec.query_scale();
    let mut parities = parities.iter().enumerate();
    parities.try_for_each(|(index, parity)| length("parity query", index, len, parity.len()))
}

fn count(what: &'static str, expected: usize, actual: usize) -> Result<(), Error> {
    if expected == actual { Ok(()) } else { Err(Error::Count { what, expected, actual }) }
}

fn length(what: &'static str, index: usize, expected: usize, actual: usize) -> Result<(), Error> {
    if expected == actual { Ok(()) } else { Err(Error::Length { what, index, expected, actual }) }
}
