//! An ONNX file in memory: its bytes, their decoded form, and its external files.

use std::path::Path;

use bytes::Bytes;
use prost::Message;

use super::external::{self, External};
use super::proto::ModelProto;
use super::{Defect, Graph, Limits, Tensor, census, splice};

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
        let bytes = external::read(path, limits.model_bytes)?;
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
    /// tensors of `Constant` nodes, named by their output. All other bytes stay, but external weights are moved into
    /// the file.
    pub fn with_weights(&self, weights: &[Tensor]) -> Result<Bytes, Defect> {
        splice::replace(&self.bytes, weights, &self.external)
    }

    pub(super) fn external(&self) -> &External {
        &self.external
    }

    fn decode(bytes: Bytes, external: External) -> Result<Self, Defect> {
        census::check(&bytes)?;
        let malformed = |error: prost::DecodeError| Defect::Malformed { message: error.to_string() };
        let proto = ModelProto::decode(bytes.clone()).map_err(malformed)?;
        if proto.graph.is_none() {
            return Err(Defect::NoGraph);
        }
        Ok(Self { bytes, proto, external })
    }
}
