//! Finds ONNX Runtime's shared library.
//!
//! Most users have it as a Python package, whose folder no loader searches. The order is: the configured path, ONNX
//! Runtime's own variable, the folder of this program and its Python environment, the active Python environment, that of
//! the first `python3` in `PATH` (containers set nothing else), and last the system's loader, which may find a library of
//! another program.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::{open, opened};
use crate::engine::variable;
use crate::{EngineConfig, Error};

/// The library for `auto`, or the reason why there is none. It is an error if a named library does not open.
pub(crate) fn found(config: &EngineConfig) -> Result<Result<PathBuf, String>, Error> {
    if let Some(path) = named(config).or_else(opened) {
        return open(path.clone()).map(|_| Ok(path));
    }
    // Search once: models that are loaded later use the engine of the first.
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    Ok(FOUND.get_or_init(|| first_that_opens(candidates().chain([by_the_loader()]))).clone())
}

/// The library for a configuration that requires ONNX Runtime.
pub(crate) fn library(config: &EngineConfig) -> PathBuf {
    named(config).or_else(opened).unwrap_or_else(|| candidates().next().unwrap_or_else(by_the_loader))
}

/// Files that may be a library for cards, in order of preference: the configured one alone, or all that are found.
pub(super) fn runtimes(config: &EngineConfig) -> Vec<PathBuf> {
    if let Some(named) = named(config) {
        return vec![named];
    }
    let listed = variable("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = std::env::split_paths(&listed).filter(|path| path.is_absolute());
    let folders = folders.chain(SYSTEM.map(PathBuf::from));
    candidates().chain(folders.flat_map(|folder| libraries_in(&folder))).collect()
}

/// Folders of the system's libraries.
const SYSTEM: [&str; 5] =
    ["/usr/local/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];

/// Most entries of a folder that are looked at.
const MOST_ENTRIES: usize = 4096;

/// The entries of a folder, sorted; none if it cannot be read.
pub(super) fn entries(folder: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut entries: Vec<PathBuf> = read.take(MOST_ENTRIES).map(|entry| entry.path()).collect();
    entries.sort();
    entries
}

/// The configured library, or that of the variable.
fn named(config: &EngineConfig) -> Option<PathBuf> {
    config.onnxruntime.clone().or_else(|| variable("ORT_DYLIB_PATH").map(PathBuf::from))
}

fn first_that_opens(candidates: impl Iterator<Item = PathBuf>) -> Result<PathBuf, String> {
    let mut refused = None;
    for path in candidates {
        match open(path.clone()) {
            Ok(_) => return Ok(path),
            // The loader finds nothing on most machines, which is not worth a report.
            Err(_) if path == by_the_loader() => {}
            Err(error) => refused = refused.or(Some(error.to_string())),
        }
    }
    Err(refused.unwrap_or_else(|| "no ONNX Runtime was found".into()))
}

/// Existing files, in order of preference.
fn candidates() -> impl Iterator<Item = PathBuf> {
    let program = std::env::current_exe().ok();
    let beside = program.as_deref().and_then(Path::parent);
    let prefixes = beside.and_then(Path::parent).map(Path::to_owned).into_iter();
    let prefixes =
        prefixes.chain(["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable).map(PathBuf::from));
    let searched = variable("PATH").and_then(|path| prefix_in_path(&path));
    let packages: Vec<PathBuf> = prefixes.chain(searched).flat_map(|prefix| in_python(&prefix)).collect();
    beside.map(libraries_in).unwrap_or_default().into_iter().chain(packages)
}

/// The environment of the first `python3` in a list of folders. Its link is not followed: that would leave the environment.
fn prefix_in_path(path: &OsStr) -> Option<PathBuf> {
    let folders = std::env::split_paths(path).filter(|folder| folder.is_absolute());
    let python = folders.map(|folder| folder.join("python3")).find(|python| python.is_file())?;
    python.parent()?.parent().map(Path::to_owned)
}

/// The library of the package `onnxruntime` of a Python environment. Debian and Ubuntu have their own name for its folder, and
/// root's packages in `/usr/local`.
fn in_python(prefix: &Path) -> Vec<PathBuf> {
    let prefixes = [prefix.to_owned(), prefix.join("local")];
    let versions = prefixes.iter().flat_map(|prefix| entries(&prefix.join("lib")));
    let versions: Vec<PathBuf> = versions.filter(|path| name(path).starts_with("python3")).collect();
    let packages = ["site-packages", "dist-packages"].map(Path::new);
    let folders = versions.iter().flat_map(|path| packages.map(|packages| path.join(packages)));
    folders.flat_map(|folder| libraries_in(&folder.join("onnxruntime/capi"))).collect()
}

/// Files of a folder with the library's name, with or without a version suffix.
fn libraries_in(folder: &Path) -> Vec<PathBuf> {
    let library = by_the_loader();
    entries(folder).into_iter().filter(|path| name(path).starts_with(name(&library))).collect()
}

/// The name that the system's loader resolves.
fn by_the_loader() -> PathBuf {
    format!("{}onnxruntime{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX).into()
}

pub(super) fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_of_a_python_environment_is_found() {
        let prefix = tempfile::tempdir().unwrap();
        assert!(in_python(prefix.path()).is_empty());
        let package = prefix.path().join("lib/python3.11/site-packages/onnxruntime/capi");
        fs::create_dir_all(&package).unwrap();
        let file = package.join(format!("{}.1.32.0", by_the_loader().display()));
        for path in [&file, &package.join("onnxruntime_pybind11_state.so"), &package.join("_ld_preload.py")] {
            fs::write(path, "").unwrap();
        }
        assert_eq!(in_python(prefix.path()), [file]);
    }

    #[test]
    fn environment_of_the_first_python_in_path_is_searched() {
        let root = tempfile::tempdir().unwrap();
        let [empty, first, second] =
            ["empty/bin", "first/bin", "second/bin"].map(|name| root.path().join(name));
        for (folder, has_python) in [(&empty, false), (&first, true), (&second, true)] {
            fs::create_dir_all(folder).unwrap();
            if has_python {
                std::os::unix::fs::symlink("/bin/sh", folder.join("python3")).unwrap();
            }
        }
        let path = std::env::join_paths([Path::new("bin"), &empty, &first, &second]).unwrap();
        assert_eq!(prefix_in_path(&path), Some(root.path().join("first")));
        assert_eq!(prefix_in_path(empty.as_os_str()), None);
        // As root on Ubuntu.
        let package = root.path().join("first/local/lib/python3.12/dist-packages/onnxruntime/capi");
        fs::create_dir_all(&package).unwrap();
        let file = package.join(by_the_loader());
        fs::write(&file, "").unwrap();
        assert_eq!(in_python(&root.path().join("first")), [file]);
    }

    #[test]
    fn found_library_that_does_not_open_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let broken = folder.path().join("libonnxruntime.so");
        fs::write(&broken, "no library").unwrap();
        let reason = first_that_opens([broken.clone()].into_iter()).unwrap_err();
        assert!(reason.contains(&broken.display().to_string()), "{reason}");
        assert_eq!(first_that_opens(std::iter::empty()).unwrap_err(), "no ONNX Runtime was found");
    }
}
