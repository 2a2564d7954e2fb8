//! Writes a registry's metrics in the format of Prometheus.

use prometheus::{Registry, TextEncoder};

/// Returns the metrics page of a registry.
pub fn page(registry: &Registry) -> String {
    let mut text = String::new();
    if let Err(error) = TextEncoder::new().encode_utf8(&registry.gather(), &mut text) {
        tracing::error!(%error, "metrics cannot be written");
    }
    text
}
