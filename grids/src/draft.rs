//! Writes files atomically in folders that processes of several machines share.
//!
//! Names of drafts are random, because pods have equal process numbers, and an Indexed Job gives a replaced pod the name
//! of its predecessor. A paused process would otherwise write into the draft of its successor.

use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Returns 16 random hexadecimal digits.
pub(crate) fn mark() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

/// Returns a path next to `path` that no other process uses.
pub fn draft(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", mark()));
    path.with_file_name(name)
}

/// Writes `bytes` to a draft, syncs it and renames it: readers never see a partial file, and a full disk leaves the old
/// file.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = draft(path);
    let written = File::create_new(&draft).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    let moved = written.and_then(|()| fs::rename(&draft, path));
    moved.inspect_err(|_| _ = fs::remove_file(&draft))
}
