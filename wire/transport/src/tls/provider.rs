//! The cryptography library of rustls, named here only. ARCHITECTURE.md has the reason for its choice.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};

pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
