//! Tensor values as JSON: read flat or nested into little-endian bytes, written flat.
//!
//! JSON has no NaN: a `null` among floating-point values stands for it in both directions. Infinities, which JSON
//! cannot express either, are written as `null` too. Clients that need every bit send binary data.

mod number;
mod read;
mod write;

pub(super) use read::{beside, read, room};
pub(super) use write::Values;
