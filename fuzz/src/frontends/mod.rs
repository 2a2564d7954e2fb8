//! The fuzz targets with a whole frontend: untrusted bytes reach it through its sockets, on a paused clock.

pub mod opaque_answers;
pub mod opaque_requests;
mod passage;

/// A target, which panics on a finding.
pub type Target = fn(&[u8]);

/// Every target by its name, which is also the name of its folder of seeds.
pub const ALL: [(&str, Target); 2] =
    [("opaque_answers", opaque_answers::run), ("opaque_requests", opaque_requests::run)];
