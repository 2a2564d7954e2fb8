//! Any bytes as a Kubernetes API server's list of EndpointSlices.

use parm_frontend::discovery::kubernetes;

/// Runs the target.
pub fn run(data: &[u8]) {
    kubernetes::survives(data);
}
