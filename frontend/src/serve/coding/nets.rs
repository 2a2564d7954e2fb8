//! Loader of the nets of learned codes.
//!
//! The embedding program provides it, because the frontend has no engine.

use std::path::Path;

use parm_encoder::Nets;

/// Loads the nets of learned codes.
pub trait LoadNets: Send + Sync + 'static {
    /// Loads the encoder and the decoder from these files.
    fn load(&self, encoder: &Path, decoder: &Path) -> Result<Box<dyn Nets>, String>;
}
