//! Generated pages of the documentation: commands, settings and routes, as the binary has them.
//!
//! They are tests of the binary, which has the tree of commands and the types of the settings, so that no page can lack one.
//! `UPDATE_DOCS=1` writes the pages; otherwise a page that differs fails.

mod access;
mod commands;
mod configuration;
mod fields;

use std::fs;
use std::path::Path;

/// Compares a page with the file, or writes it.
fn check(file: &str, want: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    #[allow(clippy::disallowed_methods)] // a switch of the tests, not configuration
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, want).unwrap();
    }
    let have = fs::read_to_string(&path).unwrap_or_default();
    assert!(have == want, "{file} is stale: run `just docs-refresh`");
}
