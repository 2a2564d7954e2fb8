//! Data files: valid ones are read, invalid ones are rejected.

use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::{Compression, write::GzEncoder};
use parm_training::Array;
use parm_training::data::{Limit, Samples, Unusable, md5};
use tempfile::TempDir;

/// Two images of 2x2 pixels.
const IMAGES: &[u8] = &[0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 0, 51, 102, 255, 1, 2, 3, 4];
const LABELS: &[u8] = &[0, 0, 8, 1, 0, 0, 0, 2, 7, 1];

fn file(folder: &TempDir, name: &str, content: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    path
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn idx(images: &Path, labels: &Path) -> Result<Samples, Unusable> {
    Samples::idx(images, Some(labels), Limit::default())
}

#[test]
fn idx_files_are_read_plain_and_gzipped() {
    let folder = folder();
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(IMAGES).unwrap();
    let labels = file(&folder, "labels", LABELS);
    let plain = idx(&file(&folder, "images", IMAGES), &labels).unwrap();
    assert_eq!(plain.inputs.shape(), [2, 1, 2, 2]);
    assert!((plain.inputs.data()[1] - 0.2).abs() < 1e-6);
    assert_eq!(plain.classes(), [0, 1, 0, 0, 0, 0, 0, 1]);
    assert_eq!(idx(&file(&folder, "images.gz", &packed.finish().unwrap()), &labels), Ok(plain));
}

#[test]
fn a_file_beyond_the_limit_is_not_unpacked() {
    let folder = folder();
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&[0; 1 << 16]).unwrap();
    let path = file(&folder, "bomb.gz", &packed.finish().unwrap());
    let error = Samples::idx(&path, None, Limit(1000)).unwrap_err();
    assert_eq!(error, Unusable::TooLarge { path, limit: 1000 });
}

#[test]
fn md5_is_of_the_unpacked_content() {
    let folder = folder();
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(b"abc").unwrap();
    let path = file(&folder, "abc.gz", &packed.finish().unwrap());
    assert_eq!(md5(&path, Limit::default()).unwrap(), "900150983cd24fb0d6963f7d28e17f72");
}

fn npy(header: &str, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(header.len()).unwrap().to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), data].concat()
}

#[test]
fn arrays_that_numpy_saved_are_read_with_their_labels() {
    let folder = folder();
    let data: Vec<u8> = [1.5f32, 2.0, -3.0, 4.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    let rows = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }\n", &data);
    let labels = npy("{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }\n", &[4, 0]);
    let (rows, labels) = (file(&folder, "x.npy", &rows), file(&folder, "y.npy", &labels));
    let samples = Samples::npy(&rows, Some(&labels), Limit::default()).unwrap();
    assert_eq!((samples.inputs.data(), samples.labels), (&[1.5, 2.0, -3.0, 4.0][..], Some(vec![4, 0])));
}

#[test]
fn saved_samples_are_read_again_unchanged() {
    let folder = folder();
    let inputs = Array::new(vec![2, 1, 2], vec![1.5, 2.0, -3.0, 4.0]).unwrap();
    let samples = Samples::new(inputs.clone(), Some(vec![4, 0])).unwrap();
    let path = |name: &str| folder.path().join("saved").join(name);
    assert_eq!(samples.save(&path("")).unwrap(), [path("inputs.npy"), path("labels.npy")]);
    let read =
        |labels: &str| Samples::npy(&path("inputs.npy"), Some(&path(labels)), Limit::default()).unwrap();
    assert_eq!(read("labels.npy"), samples);
    let values = Samples::with_values(inputs, Array::new(vec![2, 1], vec![0.5, 7.0]).unwrap()).unwrap();
    let stale = values.save(&path("")).unwrap_err().to_string();
    assert!(stale.contains("labels.npy") && stale.contains("other rows"), "{stale}");
    std::fs::remove_file(path("labels.npy")).unwrap();
    values.save(&path("")).unwrap();
    assert_eq!(read("values.npy"), values);
}
