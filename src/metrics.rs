//! A registry's metrics as Prometheus reads them.

use prometheus::{Registry, TextEncoder};

/// The page of a registry.
pub fn page(registry: &Registry) -> String {
    let mut text = String::new();
    if let Err(error) = TextEncoder::new().encode_utf8(&registry.gather(), &mut text) {
        tracing::error!(%error, "metrics cannot be written");
    }
    text
}
