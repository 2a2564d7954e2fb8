//! Reads the workspace: its crates, manifests and source files.

use std::fs;
use std::path::{Path, PathBuf};

use super::process::root;

/// The folders of all crates but the binary's, as the workspace's `Cargo.toml` lists them.
pub fn members() -> Vec<String> {
    let members = manifest(&root())["workspace"]["members"].clone();
    members.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// A crate's `Cargo.toml`.
pub fn manifest(folder: &Path) -> toml::Table {
    fs::read_to_string(folder.join("Cargo.toml")).unwrap().parse().unwrap()
}

/// Files below a folder with this extension, without build outputs and hidden folders.
pub fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() {
            if !name.to_string_lossy().starts_with('.') && name != "target" {
                found.extend(files(&path, extension));
            }
        } else if path.extension().is_some_and(|ending| ending == extension) {
            found.push(path);
        }
    }
    found
}

/// Code without its line comments.
pub fn without_comments(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Whether code names something: as a whole word, or, for a path such as `axum::`, from the beginning of a word.
pub fn names(code: &str, needle: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(needle).any(|(at, _)| {
        let after = code[at + needle.len()..].starts_with(word);
        !code[..at].ends_with(word) && (!after || !needle.ends_with(word))
    })
}
