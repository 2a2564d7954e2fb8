//! Names that are safe as one component of a path: clients load models by name, and must not reach out of the root.

use crate::Error;

/// Longest accepted name: what common file systems allow for one component.
const MAX_NAME: usize = 255;

/// Refuses names that could mean another place than a folder of the repository.
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
    fn only_plain_names_pass() {
        for name in ["magika", "resnet-18_v2.1", "A"] {
            assert_eq!(check_name(name), Ok(()));
        }
        for name in ["", ".", "..", "../etc", "a/b", "a\\b", ".hidden", "a\0", "ü", &"x".repeat(256)] {
            assert_eq!(check_name(name), Err(Error::ModelName { name: name.into() }));
        }
    }
}
