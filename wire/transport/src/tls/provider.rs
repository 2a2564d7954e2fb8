//! The one place that names the library that does the arithmetic. Why this one: ARCHITECTURE.md.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};

pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
