//! Graphics cards with CUDA, for ONNX Runtime.

mod card;
mod kit;
mod needed;
mod package;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

pub use card::{Card, Cards};
pub use kit::{Cure, Kit, Lacking};
pub(crate) use kit::{Places, find, told};

use super::variables::variable;

/// Folders of the system's and the driver's libraries: Debian's, Fedora's, those of CUDA, containers, WSL and NixOS.
const SYSTEM: [&str; 10] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/local/cuda/lib64",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
];

/// The folders in which this machine's loader would look, and the usual ones of CUDA.
pub(crate) fn system_folders() -> Vec<PathBuf> {
    let listed = variable("LD_LIBRARY_PATH").unwrap_or_default();
    let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(variable);
    let mut folders: Vec<PathBuf> =
        std::env::split_paths(&listed).filter(|path| path.is_absolute()).collect();
    folders.extend(toolkits.map(|toolkit| Path::new(&toolkit).join("lib64")));
    folders.extend(configured(Path::new("/etc/ld.so.conf.d")));
    folders.extend(SYSTEM.map(PathBuf::from));
    folders
}

/// The folders that the files of a folder add to the loader's.
fn configured(folder: &Path) -> Vec<PathBuf> {
    let files = entries(folder).into_iter().filter(|path| path.extension().is_some_and(|end| end == "conf"));
    let texts: Vec<String> = files.filter_map(|path| fs::read_to_string(path).ok()).collect();
    let lines = texts.iter().flat_map(|text| text.lines()).map(str::trim);
    lines.filter(|line| line.starts_with('/')).map(PathBuf::from).collect()
}

/// Most entries of a folder that are looked at.
const MOST_ENTRIES: usize = 4096;

/// The entries of a folder, sorted; none if it cannot be read.
pub(super) fn entries(folder: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut entries: Vec<PathBuf> = read.take(MOST_ENTRIES).map(|entry| entry.path()).collect();
    entries.sort();
    entries
}
