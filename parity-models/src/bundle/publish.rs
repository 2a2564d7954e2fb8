//! Writes models into the repository atomically, so that a bundle never names a missing file.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::ModelFile;
use crate::Error;
use crate::repository::{check_name, digest};

/// The most versions that are searched for a free number.
const MAX_VERSIONS: u64 = 10_000;

/// A file next to a model: its path in the folder of the version, and its content.
pub type Beside = (PathBuf, Vec<u8>);

/// Writes a model into the repository, as a new version unless one has the same contents. The files next to it come first:
/// a server that reads the model finds them.
pub fn put_model(root: &Path, name: &str, model: &[u8], beside: &[Beside]) -> Result<ModelFile, Error> {
    check_name(name)?;
    for version in 1..MAX_VERSIONS {
        let folder = root.join(name).join(version.to_string());
        let path = folder.join("model.onnx");
        let found = fs::read(&path).ok();
        if found.is_none() && !folder.exists() {
            beside.iter().try_for_each(|(file, content)| write(&folder.join(file), content))?;
            write(&path, model)?;
        } else if found.as_deref() != Some(model) {
            continue;
        }
        return Ok(ModelFile { name: name.into(), version, sha256: digest(&path)? });
    }
    Err(Error::Write { path: root.join(name), message: "it has too many versions".into() })
}

/// Writes a temporary file next to `path` and renames it when it is complete: a full disk leaves the old file.
fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::Write { path: path.into(), message: error.to_string() };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let draft = path.with_extension(format!("{}.part", std::process::id()));
    let written = fs::File::create(&draft).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    let moved = written.and_then(|()| fs::rename(&draft, path));
    moved.inspect_err(|_| _ = fs::remove_file(&draft)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_is_stored_once_and_another_gets_a_new_version() {
        let folder = tempfile::tempdir().unwrap();
        let put = |bytes: &[u8]| put_model(folder.path(), "m", bytes, &[]).unwrap();
        let first = put(b"one");
        assert_eq!((first.version, put(b"two").version, put(b"one")), (1, 2, first));
        assert!(put_model(folder.path(), "../m", b"one", &[]).is_err());
        let beside = [("1_Pooling/config.json".into(), b"{}".to_vec())];
        put_model(folder.path(), "t", b"one", &beside).unwrap();
        assert_eq!(fs::read(folder.path().join("t/1/1_Pooling/config.json")).unwrap(), b"{}");
    }
}
