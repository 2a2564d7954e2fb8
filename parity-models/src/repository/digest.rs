//! The digest of a model: of its file, and of the external files that the graph names.

use std::fs;
use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::Error;
use crate::onnx::{is_inside, locations};

/// SHA-256 of a model in lower-case hexadecimal, as in a bundle's manifest: that of its file, followed by its external
/// files if it has any.
pub(crate) fn digest(model: &Path) -> Result<String, Error> {
    let mut hash = Sha256::new();
    hash_file(model, &mut hash)?;
    for location in locations(model).map_err(|error| unreadable(model, &error))? {
        let path = model.with_file_name(&location);
        let refused = |message: &str| Error::Read { path: path.clone(), message: message.into() };
        if !is_inside(&location) {
            return Err(refused("external data outside the model's folder: move it there"));
        }
        let metadata = fs::metadata(&path).map_err(|error| unreadable(&path, &error))?;
        if !metadata.is_file() {
            return Err(refused("external data that is not a plain file: name one"));
        }
        hash.update((location.len() as u64).to_le_bytes());
        hash.update(location.as_bytes());
        hash.update(metadata.len().to_le_bytes());
        hash_file(&path, &mut hash)?;
    }
    Ok(hex(&hash.finalize()))
}

pub(super) fn hash_file(path: &Path, hash: &mut Sha256) -> Result<(), Error> {
    let mut file = fs::File::open(path).map_err(|error| unreadable(path, &error))?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer).map_err(|error| unreadable(path, &error))? {
            0 => return Ok(()),
            count => hash.update(&buffer[..count]),
        }
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    Error::Read { path: path.into(), message: error.to_string() }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::super::Repository;
    use super::*;
    use crate::onnx::proto::{
        AttributeProto, GraphProto, ModelProto, NodeProto, StringStringEntryProto, TensorProto,
    };

    fn tensor(location: &str) -> TensorProto {
        let entry = |key: &str, value: &str| StringStringEntryProto { key: key.into(), value: value.into() };
        let external_data = vec![entry("location", location), entry("offset", "0")];
        TensorProto { external_data, data_location: 1, ..TensorProto::default() }
    }

    /// A graph with a tensor in `one`, and one in `two` in the body of a node.
    fn model(one: &str, two: &str) -> Vec<u8> {
        let body = GraphProto { initializer: vec![tensor(two)], ..GraphProto::default() };
        let attribute = vec![AttributeProto { g: Some(body), ..AttributeProto::default() }];
        let node = vec![NodeProto { attribute, ..NodeProto::default() }];
        let graph = GraphProto { node, initializer: vec![tensor(one)], ..GraphProto::default() };
        ModelProto { graph: Some(graph), ..ModelProto::default() }.encode_to_vec()
    }

    #[test]
    fn digest_covers_the_external_files_that_a_graph_names() {
        let folder = tempfile::tempdir().unwrap();
        let put = |file: &str, content: &[u8]| fs::write(folder.path().join(file), content).unwrap();
        let own = || digest(&folder.path().join("model.onnx"));
        fs::create_dir(folder.path().join("sub")).unwrap();
        put("model.onnx", &model("a.data", "sub/b.data"));
        put("a.data", b"1");
        assert!(own().unwrap_err().to_string().contains("sub/b.data"));
        put("sub/b.data", b"2");
        let first = own().unwrap();
        put("other.data", b"not named");
        assert_eq!(own().unwrap(), first);
        put("a.data", b"3");
        let second = own().unwrap();
        put("sub/b.data", b"4");
        let third = own().unwrap();
        assert!(first != second && first != third && second != third);
        put("model.onnx", &model("a.data", "../b.data"));
        assert!(own().unwrap_err().to_string().contains("outside"));
        let plain =
            ModelProto { graph: Some(GraphProto::default()), ..ModelProto::default() }.encode_to_vec();
        put("model.onnx", &plain);
        assert_eq!(own().unwrap(), hex(&Sha256::digest(&plain)));
    }

    #[test]
    fn scan_sees_external_files_in_inner_folders() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("m/1");
        fs::create_dir_all(folder.join("sub")).unwrap();
        fs::write(folder.join("a.data"), "1").unwrap();
        fs::write(folder.join("sub/b.data"), "2").unwrap();
        fs::write(folder.join("model.onnx"), model("a.data", "sub/b.data")).unwrap();
        let repository = Repository::open(root.path()).unwrap();
        let version = || repository.model("m").unwrap().versions[&1].clone();
        let before = version();
        assert_eq!(before, version());
        fs::write(folder.join("sub/b.data"), "longer").unwrap();
        assert_eq!(version().bytes(), before.bytes() + 5);
        assert_ne!(version(), before);
    }
}
