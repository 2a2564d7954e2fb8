//! Any bytes as a peer of the framed transport sends them: a header, and the body of a request, an answer or a failure.

use bytes::Bytes;
use parm_transport::frames;

/// Runs the target.
pub fn run(data: &[u8]) {
    frames::survives(&Bytes::copy_from_slice(data));
}
