//! An ONNX file in memory: its bytes, their decoded form, and its external files.
//!
//! The location of an external file is a path relative to the model's folder. A model must not name a file elsewhere on the
//! machine, so absolute paths and `..` are errors. Each file is read once, whole, up to a size limit.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use prost::Message;
use serde::{Deserialize, Serialize};

use super::proto::{DataLocation, ModelProto, TensorProto};
use super::{DataType, Defect, Graph, Tensor, is_inside, walk};

/// An ONNX file.
#[derive(Debug)]
pub struct Model {
    bytes: Bytes,
    proto: ModelProto,
    external: External,
}

impl Model {
    /// Reads `path`. External data files are read from its folder on demand.
    pub fn open(path: &Path, limits: &Limits) -> Result<Self, Defect> {
        let bytes = read(path, limits.model_bytes)?;
        Self::decode(bytes, External::new(path.parent(), limits))
    }

    /// Decodes a file without a folder, which cannot have external data.
    pub fn from_bytes(bytes: impl Into<Bytes>, limits: &Limits) -> Result<Self, Defect> {
        let bytes = bytes.into();
        let (actual, limit) = (bytes.len() as u64, limits.model_bytes);
        if actual > limit {
            return Err(Defect::TooLarge { what: "model".into(), actual, limit });
        }
        Self::decode(bytes, External::new(None, limits))
    }

    /// The bytes of the file.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The decoded file.
    pub fn proto(&self) -> &ModelProto {
        &self.proto
    }

    /// The graph, with all constants read.
    pub fn graph(&self) -> Result<Graph, Defect> {
        Graph::from_proto(&self.proto, &self.external)
    }

    /// The file with `weights` in place of its constants of the same names, types and dimensions: initialisers, or
    /// tensors of `Constant` nodes, named by their output, in which some exporters store all weights. External weights are
    /// moved into the file.
    pub fn with_weights(&self, weights: &[Tensor]) -> Result<Bytes, Defect> {
        let mut left: BTreeMap<&str, &Tensor> =
            weights.iter().map(|tensor| (tensor.name(), tensor)).collect();
        let mut proto = self.proto.clone();
        let graph = proto.graph.as_mut().ok_or(Defect::NoGraph)?;
        let stored = graph.initializer.iter_mut().map(|tensor| (tensor.name.clone(), tensor));
        let nodes = graph.node.iter_mut().filter(|node| node.op_type == "Constant" && node.output.len() == 1);
        let made = nodes.flat_map(|node| {
            let name = node.output[0].clone();
            let tensors = node.attribute.iter_mut().filter_map(|attribute| attribute.t.as_mut());
            tensors.map(move |tensor| (name.clone(), tensor))
        });
        for (name, tensor) in stored.chain(made) {
            if let Some(weight) = left.remove(name.as_str()) {
                fits(tensor, weight)?;
                let kept = std::mem::take(&mut tensor.name);
                *tensor = TensorProto { name: kept, ..weight.to_proto() };
            } else if tensor.data_location() == DataLocation::External {
                *tensor = Tensor::from_proto(tensor, &self.external)?.to_proto();
            }
        }
        if let Some(missing) = left.into_keys().next() {
            return Err(Defect::Unusable(format!(
                "unknown weight '{missing}': no initialiser or constant has that name: see `parm models inspect`"
            )));
        }
        encode(&proto, "model with new weights")
    }

    pub(super) fn external(&self) -> &External {
        &self.external
    }

    fn decode(bytes: Bytes, external: External) -> Result<Self, Defect> {
        walk::check(&bytes)?;
        let malformed = |error: prost::DecodeError| Defect::Malformed { message: error.to_string() };
        let proto = ModelProto::decode(bytes.clone()).map_err(malformed)?;
        if proto.graph.is_none() {
            return Err(Defect::NoGraph);
        }
        Ok(Self { bytes, proto, external })
    }
}

/// The maximum size of protobuf messages: readers use 32-bit lengths.
const LARGEST: u64 = i32::MAX as u64;

/// The bytes of a file; an error that calls it `what` if it is too large.
pub(super) fn encode(proto: &ModelProto, what: &str) -> Result<Bytes, Defect> {
    let actual = proto.encoded_len() as u64;
    if actual > LARGEST {
        return Err(Defect::TooLarge { what: what.into(), actual, limit: LARGEST });
    }
    Ok(proto.encode_to_vec().into())
}

fn fits(old: &TensorProto, new: &Tensor) -> Result<(), Defect> {
    let same_dims = old.dims.iter().copied().eq(new.dims().iter().map(|&dim| dim as i64));
    if same_dims && old.data_type == new.datatype() as i32 {
        return Ok(());
    }
    let wanted = DataType::try_from(old.data_type).unwrap_or_default();
    Err(Defect::Unusable(format!(
        "weight '{}' is {wanted} {:?} in the file, but {} {:?} is given: give weights of the same type and dimensions",
        new.name(),
        old.dims,
        new.datatype(),
        new.dims()
    )))
}

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
            return Err(Defect::Unusable(format!(
                "tensor '{}' needs bytes {offset}..{end} of external file '{location}', which has {size}",
                tensor.name
            )));
        }
        Ok(file.slice(offset as usize..end as usize))
    }

    fn file(&self, tensor: &str, location: &str) -> Result<Bytes, Defect> {
        if let Some(bytes) = self.files.borrow().get(location) {
            return Ok(bytes.clone());
        }
        let refused =
            |why: &str| Defect::of_tensor(tensor, &format!("is in external file '{location}', {why}"));
        let Some(folder) = &self.folder else {
            return Err(refused("but the model was not read from a folder"));
        };
        if !is_inside(location) {
            return Err(refused("outside the model's folder: move it there"));
        }
        let held: u64 = self.files.borrow().values().map(|file| file.len() as u64).sum();
        let bytes = read(&folder.join(location), self.limit.saturating_sub(held))?;
        self.files.borrow_mut().insert(location.to_owned(), bytes.clone());
        Ok(bytes)
    }
}

/// Reads a whole file, or fails if it is larger than `limit`.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Bytes, Defect> {
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
    let problem = || format!("has an invalid external data entry '{key}' = '{value}': expected a number");
    value.parse().map(Some).map_err(|_| Defect::of_tensor(&tensor.name, &problem()))
}

/// Limits on an ONNX model's files. A wrong path or a wrong length must not exhaust the machine's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Largest `model.onnx`, in bytes. Default 2 GiB, the maximum of the format.
    pub model_bytes: u64,
    /// Largest sum of the external data files of a model, in bytes. Default 16 GiB.
    pub external_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { model_bytes: 2 << 30, external_bytes: 16 << 30 }
    }
}
