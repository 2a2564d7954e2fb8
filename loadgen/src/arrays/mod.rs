//! Arrays from the files that people have: npy (numpy) and idx (MNIST and its family), plain or gzipped.
//!
//! What a file says about itself is checked against its length before it is believed, and errors name the file. The
//! elements stay what they are, little-endian and row-major, as they travel; [`Tensor`] is all that is made of them.

mod idx;
mod npy;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use bytes::Bytes;
use flate2::read::GzDecoder;
use parm_protocol::{DataType, Tensor};

use crate::Error;

/// Most bytes of a file, unpacked: what is sent stays in memory for the whole run.
pub const LARGEST: u64 = 1 << 30;

/// What a file held.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// The elements as they were stored.
    pub tensor: Tensor,
    /// How they were stored.
    pub format: Format,
}

/// A file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// numpy's.
    Npy,
    /// MNIST's; its bytes are pixels.
    Idx,
}

/// Reads an array; npy and idx are told apart by how the file begins.
pub fn read(path: &Path) -> Result<Array, Error> {
    let content = content(path).map_err(|error| bad(path, error.to_string()))?;
    if content.len() as u64 > LARGEST {
        return Err(bad(path, format!("it has more than {LARGEST} bytes: send a part of it")));
    }
    let format = if content.starts_with(npy::MAGIC) { Format::Npy } else { Format::Idx };
    let tensor = match format {
        Format::Npy => npy::parse(content),
        Format::Idx => idx::parse(content),
    };
    Ok(Array { tensor: tensor.map_err(|detail| bad(path, detail))?, format })
}

/// The bytes of a file, unpacked if it is gzipped, and one more than the bound where it has more.
fn content(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut raw = Vec::new();
    File::open(path)?.take(LARGEST + 1).read_to_end(&mut raw)?;
    if !raw.starts_with(&[0x1F, 0x8B]) {
        return Ok(raw);
    }
    let mut plain = Vec::new();
    GzDecoder::new(raw.as_slice()).take(LARGEST + 1).read_to_end(&mut plain)?;
    Ok(plain)
}

/// A tensor of a file's elements, if there are as many as its shape says.
fn elements(datatype: DataType, shape: Vec<usize>, data: Bytes) -> Result<Tensor, String> {
    let actual = data.len();
    Tensor::new(datatype, shape.clone(), data).map_err(|_| {
        format!("it claims to hold {datatype} of shape {shape:?} but has {actual} bytes of elements")
    })
}

fn bad(path: &Path, detail: String) -> Error {
    Error::BadArray { path: path.display().to_string(), detail }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn written(content: &[u8]) -> Result<Tensor, Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("array");
        std::fs::write(&path, content).unwrap();
        Ok(read(&path)?.tensor)
    }

    fn npy(header: &str, data: &[u8]) -> Vec<u8> {
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend((header.len() as u16).to_le_bytes());
        file.extend(header.as_bytes());
        file.extend(data);
        file
    }

    const IDX: &[u8] = &[0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6];

    #[test]
    fn both_formats_are_read_and_told_apart() {
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }\n";
        let tensor = written(&npy(header, &[0, 0, 128, 63, 0, 0, 0, 192])).unwrap();
        assert_eq!((tensor.datatype(), tensor.shape()), (DataType::Fp32, &[2, 1][..]));
        assert_eq!(tensor.as_f32().unwrap().as_ref(), [1.0, -2.0]);
        let tensor = written(IDX).unwrap();
        assert_eq!((tensor.datatype(), tensor.shape()), (DataType::Uint8, &[2, 3][..]));
        assert_eq!(tensor.data().as_ref(), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn a_gzipped_file_is_the_same_as_a_plain_one() {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(IDX).unwrap();
        assert_eq!(written(&packed.finish().unwrap()).unwrap(), written(IDX).unwrap());
    }

    #[test]
    fn big_endian_elements_of_idx_files_are_turned_round() {
        let tensor = written(&[0, 0, 0x0D, 1, 0, 0, 0, 1, 63, 128, 0, 0]).unwrap();
        assert_eq!(tensor.as_f32().unwrap().as_ref(), [1.0]);
    }

    #[test]
    fn a_file_that_lies_or_cannot_be_read_is_refused_with_a_reason() {
        let check = |content: &[u8], reason: &str| {
            let error = written(content).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        };
        check(b"", "neither an npy nor an idx file");
        check(&IDX[..17], "5 bytes of elements");
        check(&IDX[..9], "ends within the sizes");
        check(&[0, 0, 8, 1, 255, 255, 255, 255], "0 bytes of elements");
        check(&[0, 0, 7, 1, 0, 0, 0, 0], "0x07");
        let shape = "'fortran_order': False, 'shape': (2,)}";
        check(&npy(&format!("{{'descr': '<f4', {shape}"), &[0; 7]), "7 bytes of elements");
        check(&npy(&format!("{{'descr': '<c8', {shape}"), &[0; 16]), "'<c8'");
        check(&npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2,)}", &[0; 8]), "ascontiguousarray");
        check(&npy("{'descr': '<f4', 'fortran_order': False}", &[0; 8]), "shape");
        check(&npy("", &[])[..9], "cut short");
        let missing = read(Path::new("no/such/file.npy")).unwrap_err().to_string();
        assert!(missing.starts_with("no/such/file.npy: "), "{missing}");
    }
}
