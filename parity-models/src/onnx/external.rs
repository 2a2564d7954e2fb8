//! Reads weights from files next to the model.
//!
//! A location is a path relative to the model's folder. A model must not name a file elsewhere on the machine, so
//! absolute paths and `..` are errors. Each file is read once, whole, up to a size limit.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::proto::TensorProto;
use super::{Defect, Limits, is_inside};

/// Reads and caches the external files of one model.
#[derive(Debug, Default)]
pub(super) struct External {
    folder: Option<PathBuf>,
    limit: u64,
    files: RefCell<BTreeMap<String, Bytes>>,
}

impl External {
    /// The external files in `folder`; `None` for a model that was given as bytes.
    pub(super) fn new(folder: Option<&Path>, limits: &Limits) -> Self {
        let folder = folder.map(Path::to_path_buf);
        Self { folder, limit: limits.external_bytes, files: RefCell::default() }
    }

    /// The raw bytes of a tensor whose `data_location` is external.
    pub(super) fn data(&self, tensor: &TensorProto) -> Result<Bytes, Defect> {
        let location = entry(tensor, "location").unwrap_or_default();
        let file = self.file(&tensor.name, location)?;
        let offset = number(tensor, "offset")?.unwrap_or(0);
        let size = file.len() as u64;
        let length = number(tensor, "length")?.unwrap_or(size.saturating_sub(offset));
        let end = offset.saturating_add(length);
        if offset > size || end > size {
            let (tensor, location) = (tensor.name.clone(), location.to_owned());
            return Err(Defect::ExternalRange { tensor, location, offset, end, size });
        }
        Ok(file.slice(offset as usize..end as usize))
    }

    fn file(&self, tensor: &str, location: &str) -> Result<Bytes, Defect> {
        if let Some(bytes) = self.files.borrow().get(location) {
            return Ok(bytes.clone());
        }
        let (tensor, named) = (tensor.to_owned(), location.to_owned());
        let Some(folder) = &self.folder else {
            return Err(Defect::ExternalWithoutFolder { tensor, location: named });
        };
        if !is_inside(location) {
            return Err(Defect::ExternalOutside { tensor, location: named });
        }
        let held: u64 = self.files.borrow().values().map(|file| file.len() as u64).sum();
        let bytes = read(&folder.join(location), self.limit.saturating_sub(held))?;
        self.files.borrow_mut().insert(named, bytes.clone());
        Ok(bytes)
    }
}

/// Reads a whole file, or fails if it is larger than `limit`.
pub(super) fn read(path: &Path, limit: u64) -> Result<Bytes, Defect> {
    let failed = |error: std::io::Error| Defect::Read { path: path.to_owned(), message: error.to_string() };
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        // Others may have no end, or wait for a writer.
        let message = "it is not a plain file: name one".into();
        return Err(Defect::Read { path: path.to_owned(), message });
    }
    let too_large = |actual| Defect::TooLarge { what: path.display().to_string(), actual, limit };
    if metadata.len() > limit {
        return Err(too_large(metadata.len()));
    }
    let mut bytes = Vec::with_capacity(metadata.len() as usize);
    let file = std::fs::File::open(path).map_err(failed)?;
    // Files of the kernel say that they are empty, and a file may grow meanwhile.
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > limit {
        return Err(too_large(bytes.len() as u64));
    }
    Ok(bytes.into())
}

fn entry<'a>(tensor: &'a TensorProto, key: &str) -> Option<&'a str> {
    tensor.external_data.iter().find(|entry| entry.key == key).map(|entry| entry.value.as_str())
}

fn number(tensor: &TensorProto, key: &str) -> Result<Option<u64>, Defect> {
    let Some(value) = entry(tensor, key) else { return Ok(None) };
    value.parse().map(Some).map_err(|_| Defect::ExternalEntry {
        tensor: tensor.name.clone(),
        key: key.into(),
        value: value.into(),
    })
}
