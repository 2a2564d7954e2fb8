//! Checks that a model name is safe as a path component: clients load models by name, and must stay inside the root.

use crate::Error;

/// Longest accepted name: the limit of common file systems.
const MAX_NAME: usize = 255;

/// Rejects names that could mean a place other than a folder of the repository.
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
