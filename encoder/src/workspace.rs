//! Scratch memory that a caller keeps from group to group, so that the hot path does not allocate.

use crate::{Set, matrix::Matrix};

/// Grows to what the codes need at first use, then stays. One per thread; any code may use any workspace.
#[derive(Debug, Default)]
pub struct Workspace {
    /// Rows of pixels, stacked queries.
    pub(crate) floats: Vec<f32>,
    /// Which pixels a shrunk line's pixels average.
    pub(crate) averages: Vec<Average>,
    /// Stacked outputs of a learned decoder.
    pub(crate) outputs: Vec<f32>,
    /// The last decoding matrix of a smoother, with the pattern and the nodes that it is for.
    pub(crate) smoother: Option<(SmootherKey, Matrix)>,
}

/// Pixels `from..=to` and their shares: of the first, of the last, and of each between.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Average {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) first: f32,
    pub(crate) inner: f32,
    pub(crate) last: f32,
}

/// What a decoding matrix depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SmootherKey {
    pub(crate) returned: Set,
    pub(crate) k: usize,
    pub(crate) coded: usize,
    pub(crate) smoothing: f64,
}

impl Workspace {
    /// An empty workspace.
    pub fn new() -> Self {
        Self::default()
    }
}

/// The first `len` elements of `buffer`, grown if need be.
pub(crate) fn take(buffer: &mut Vec<f32>, len: usize) -> &mut [f32] {
    if buffer.len() < len {
        buffer.resize(len, 0.0);
    }
    &mut buffer[..len]
}
