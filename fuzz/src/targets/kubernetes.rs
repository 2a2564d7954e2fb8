//! Any bytes as a response of a Kubernetes API server: a list, or a line of a watch.

use parm_frontend::discovery::kubernetes;

/// Runs the target.
pub fn run(data: &[u8]) {
    kubernetes::survives(data);
}
