//! Files that tests write: models and arrays.

use std::fs;
use std::path::Path;

/// Writes the first version of a model into a repository.
pub fn model(root: &Path, name: &str, file: &[u8]) {
    let folder = root.join(name).join("1");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("model.onnx"), file).unwrap();
}

/// Writes an array as numpy does.
pub fn npy(path: &Path, kind: &str, shape: &[usize], data: &[u8]) {
    let shape: Vec<String> = shape.iter().map(|size| format!("{size}, ")).collect();
    let header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({}), }}\n", shape.concat());
    let size = (header.len() as u16).to_le_bytes();
    fs::write(path, [b"\x93NUMPY\x01\x00", &size[..], header.as_bytes(), data].concat()).unwrap();
}
