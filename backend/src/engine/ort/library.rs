//! Where ONNX Runtime's shared library is.
//!
//! People have it as a Python package far more often than as a system's library, and the package's file is where no loader
//! looks. So after what was named (in the configuration, then by ONNX Runtime's own variable) come the folder of this
//! program and the Python environment that it is installed in, then the active Python environment, and the loader last: it
//! may find what another program brought along.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::{Options, open, opened};
use crate::Error;

/// The library that `auto` uses, or why there is none. That a library which was named does not open is an error.
pub(crate) fn found(options: &Options) -> Result<Result<PathBuf, String>, Error> {
    if let Some(path) = named(options).or_else(opened) {
        return open(path.clone()).map(|_| Ok(path));
    }
    // Looked for once: models that are loaded later run on the engine of the first.
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    Ok(FOUND.get_or_init(|| first_that_opens(candidates().chain([by_the_loader()]))).clone())
}

/// The library for who insists on ONNX Runtime.
pub(crate) fn library(options: &Options) -> PathBuf {
    named(options).or_else(opened).unwrap_or_else(|| candidates().next().unwrap_or_else(by_the_loader))
}

/// The one that is configured, or that the variable names.
fn named(options: &Options) -> Option<PathBuf> {
    options.onnxruntime.clone().or_else(|| variable("ORT_DYLIB_PATH"))
}

fn first_that_opens(candidates: impl Iterator<Item = PathBuf>) -> Result<PathBuf, String> {
    let mut refused = None;
    for path in candidates {
        match open(path.clone()) {
            Ok(_) => return Ok(path),
            // The loader's own search finds nothing on most machines, which is no news.
            Err(_) if path == by_the_loader() => {}
            Err(error) => refused = refused.or(Some(error.to_string())),
        }
    }
    Err(refused.unwrap_or_else(|| "no ONNX Runtime was found".into()))
}

/// Files that are there, the likeliest first.
fn candidates() -> impl Iterator<Item = PathBuf> {
    let program = std::env::current_exe().ok();
    let beside = program.as_deref().and_then(Path::parent);
    let prefixes = beside.and_then(Path::parent).map(Path::to_owned).into_iter();
    let prefixes = prefixes.chain(["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable));
    let packages: Vec<PathBuf> = prefixes.flat_map(|prefix| in_python(&prefix)).collect();
    beside.map(libraries_in).unwrap_or_default().into_iter().chain(packages)
}

/// The library of the package `onnxruntime` of a Python environment.
fn in_python(prefix: &Path) -> Vec<PathBuf> {
    let versions = entries(&prefix.join("lib")).into_iter();
    let versions = versions.filter(|path| name(path).starts_with("python3"));
    versions.flat_map(|path| libraries_in(&path.join("site-packages/onnxruntime/capi"))).collect()
}

/// Files of a folder that are called like the library, with or without a version at the end.
fn libraries_in(folder: &Path) -> Vec<PathBuf> {
    let library = by_the_loader();
    entries(folder).into_iter().filter(|path| name(path).starts_with(name(&library))).collect()
}

/// The name that the system's loader knows.
fn by_the_loader() -> PathBuf {
    format!("{}onnxruntime{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX).into()
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    entries
}

/// A variable that other programs set, which their users expect to work here too.
fn variable(name: &str) -> Option<PathBuf> {
    #[allow(clippy::disallowed_methods)]
    std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_of_a_python_environment_is_found() {
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
    fn what_is_found_and_does_not_open_is_passed_over_and_said() {
        let folder = tempfile::tempdir().unwrap();
        let broken = folder.path().join("libonnxruntime.so");
        fs::write(&broken, "no library").unwrap();
        let reason = first_that_opens([broken.clone()].into_iter()).unwrap_err();
        assert!(reason.contains(&broken.display().to_string()), "{reason}");
        assert_eq!(first_that_opens(std::iter::empty()).unwrap_err(), "no ONNX Runtime was found");
    }
}
