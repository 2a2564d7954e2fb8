//! Learned codes encode and decode with models. The frontend runs none, so whoever starts it brings an engine along.

use std::path::Path;

use parm_encoder::Nets;

/// Loads the nets of learned codes.
pub trait LoadNets: Send + Sync + 'static {
    /// The encoder and the decoder in these files, ready to run; or what is wrong with them.
    fn load(&self, encoder: &Path, decoder: &Path) -> Result<Box<dyn Nets>, String>;
}
