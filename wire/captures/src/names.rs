//! Folders for models: a name that clients or servers made up must not lead out of the folder.

use std::fmt::Write;

/// Longest name of a folder; file systems take 255 bytes.
const LONGEST: usize = 200;

/// The folder's name for a model: what is no letter, digit, dash, dot or underscore is written as its bytes.
pub(crate) fn folder(model: &str) -> String {
    let mut name = String::new();
    for (at, byte) in model.bytes().enumerate() {
        let is_plain = byte.is_ascii_alphanumeric() || b"-_".contains(&byte) || (byte == b'.' && at > 0);
        match is_plain {
            true => name.push(byte.into()),
            false => _ = write!(name, "%{byte:02x}"),
        }
    }
    // Of two long names that begin alike the queries lie together; each segment says whose they are.
    name.truncate(LONGEST);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_out_of_the_folder() {
        assert_eq!(folder("magika"), "magika");
        assert_eq!(folder("../etc"), "%2e.%2fetc");
        assert_eq!(folder("."), "%2e");
        assert_eq!(folder("v1.5"), "v1.5");
        assert!(folder(&"/".repeat(400)).len() <= LONGEST);
    }
}
