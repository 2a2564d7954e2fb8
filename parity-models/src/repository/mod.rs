//! Models on disk, in Triton's layout.
//!
//! ```text
//! ROOT/NAME/VERSION/model.onnx     versions are whole numbers from 1
//! ROOT/NAME/parm.toml              optional: the coding bundle of a deployed model
//! ```
//!
//! An invalid model never hides the others: a scan returns the valid models and the errors.

mod pbtxt;
mod scan;
mod watch;

pub use pbtxt::TritonConfig;
pub(crate) use scan::digest;
pub use scan::{ModelFolder, POOLING, Repository, Scan, TOKENIZER, Version};
pub use watch::{Change, Poll, Watch};

use crate::Error;

/// Longest accepted name: the limit of common file systems.
const MAX_NAME: usize = 255;

/// Rejects names that could mean a place other than a folder of the repository: clients load models by name, and must stay
/// inside the root.
pub fn check_name(name: &str) -> Result<(), Error> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let whole = !name.is_empty() && name.len() <= MAX_NAME && !name.starts_with('.');
    if whole && name.chars().all(allowed) {
        return Ok(());
    }
    Err(Error::ModelName { name: name.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_are_accepted() {
        for name in ["magika", "resnet-18_v2.1", "A"] {
            assert_eq!(check_name(name), Ok(()));
        }
        for name in ["", ".", "..", "../etc", "a/b", "a\\b", ".hidden", "a\0", "ü", &"x".repeat(256)] {
            assert_eq!(check_name(name), Err(Error::ModelName { name: name.into() }));
        }
    }
}
