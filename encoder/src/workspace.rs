//! Scratch memory that a caller keeps from group to group, so that the hot path does not allocate.

/// Buffers that grow at first use and are then reused. One per thread; any code may use any workspace.
#[derive(Debug, Default)]
pub struct Workspace {
    /// Rows of pixels, stacked queries.
    pub(crate) floats: Vec<f32>,
    /// The input pixels that each pixel of a shrunk line averages.
    pub(crate) averages: Vec<Average>,
    /// Stacked outputs of a learned decoder.
    pub(crate) outputs: Vec<f32>,
}

/// Pixels `from..=to` and their weights: of the first pixel, of the last, and of each one in the middle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Average {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) first: f32,
    pub(crate) inner: f32,
    pub(crate) last: f32,
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
