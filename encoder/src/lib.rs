//! The codes: slices in, slices out; no tensor type, no runtime
