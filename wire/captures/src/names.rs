//! Folder names of models: a name from a client or server must not escape the folder.

use std::fmt::Write;

/// Longest name of a folder; file systems take 255 bytes.
const LONGEST: usize = 200;

/// The folder's name for a model: other characters than letters, digits, dash, dot and underscore are written as bytes.
pub(crate) fn folder(model: &str) -> String {
    let mut name = String::new();
    for (at, byte) in model.bytes().enumerate() {
        let is_plain = byte.is_ascii_alphanumeric() || b"-_".contains(&byte) || (byte == b'.' && at > 0);
        match is_plain {
            true => name.push(byte.into()),
            false => _ = write!(name, "%{byte:02x}"),
        }
    }
    // Long names with the same start share a folder; each segment names its model.
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
