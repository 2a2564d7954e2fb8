//! Any bytes as what an API server of Kubernetes says: a page of a list, or a line of a watch.

use parm_frontend::discovery::kubernetes;

/// One run.
pub fn run(data: &[u8]) {
    kubernetes::survives(data);
}
