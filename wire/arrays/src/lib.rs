//! Rows from common files: npy (numpy) and idx (MNIST), plain or gzipped, and arbitrary files.
//!
//! A file's header is checked against its length, and errors name the file. The elements stay as stored, little-endian
//! and row-major, in a [`Tensor`]. [`numbers()`] converts them if only their values count. [`tokens()`] converts an
//! arbitrary file into the input of file-type models.

mod content;
mod ends;
mod error;
mod idx;
mod npy;
mod numbers;

use std::path::Path;

use bytes::Bytes;
use parm_protocol::{DataType, Tensor};

pub use content::content;
pub use ends::{TOKENS, tokens, walk};
pub use error::{Error, Problem};
pub use numbers::numbers;

/// The content of a file.
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

impl Format {
    /// The array in a file's content; `path` is for messages.
    pub fn parse(self, path: &Path, content: Vec<u8>) -> Result<Tensor, Error> {
        let parse = match self {
            Format::Npy => npy::parse,
            Format::Idx => idx::parse,
        };
        parse(content).map_err(|problem| Error::new(path, problem))
    }
}

/// Reads an array of at most `limit` bytes, unpacked; the first bytes distinguish npy from idx.
pub fn read(path: &Path, limit: u64) -> Result<Array, Error> {
    let content = content(path, limit)?;
    let format = if content.starts_with(npy::MAGIC) { Format::Npy } else { Format::Idx };
    Ok(Array { tensor: format.parse(path, content)?, format })
}

/// The npy file of a tensor; `None` for elements that the format lacks.
pub fn npy(tensor: &Tensor) -> Option<Vec<u8>> {
    npy::write(tensor)
}

/// A tensor of a file's elements, if their number matches its shape.
fn tensor(datatype: DataType, shape: Vec<usize>, data: Bytes) -> Result<Tensor, Problem> {
    let count = shape.iter().try_fold(1u64, |product, &size| product.checked_mul(size as u64));
    let expected = count.and_then(|count| count.checked_mul(datatype.size().unwrap_or(1) as u64));
    let expected = expected.ok_or_else(|| error::malformed(format!("its sizes {shape:?} overflow")))?;
    let actual = data.len() as u64;
    Tensor::new(datatype, shape, data).map_err(|_| Problem::Length { expected, actual })
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
        Ok(read(&path, 1 << 20)?.tensor)
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
    fn both_formats_are_detected_and_read() {
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }\n";
        let tensor = written(&npy(header, &[0, 0, 128, 63, 0, 0, 0, 192])).unwrap();
        assert_eq!((tensor.datatype(), tensor.shape()), (DataType::Fp32, &[2, 1][..]));
        assert_eq!(tensor.as_f32().unwrap().as_ref(), [1.0, -2.0]);
        let tensor = written(IDX).unwrap();
        assert_eq!((tensor.datatype(), tensor.shape()), (DataType::Uint8, &[2, 3][..]));
        assert_eq!(tensor.data().as_ref(), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn saved_array_is_read_again_and_aligned() {
        for (datatype, shape, bytes) in
            [(DataType::Fp32, &[2usize, 1, 2][..], 16), (DataType::Int64, &[3], 24), (DataType::Bool, &[], 1)]
        {
            let data: Vec<u8> = (0..bytes).collect();
            let tensor = Tensor::new(datatype, shape, data.into()).unwrap();
            let file = super::npy(&tensor).unwrap();
            assert_eq!((file.len() - usize::from(bytes)) % 64, 0);
            assert_eq!(written(&file).unwrap(), tensor);
        }
        let texts = Tensor::new(DataType::Bytes, [1].as_slice(), b"\x01\0\0\0t".to_vec().into()).unwrap();
        assert_eq!(super::npy(&texts), None);
    }

    #[test]
    fn a_gzipped_file_is_the_same_as_a_plain_one() {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(IDX).unwrap();
        assert_eq!(written(&packed.finish().unwrap()).unwrap(), written(IDX).unwrap());
    }

    #[test]
    fn gzipped_file_may_have_several_parts() {
        let part = |bytes: &[u8]| {
            let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
            packed.write_all(bytes).unwrap();
            packed.finish().unwrap()
        };
        let parts = [part(&IDX[..15]), part(&IDX[15..])].concat();
        assert_eq!(written(&parts).unwrap(), written(IDX).unwrap());
    }

    #[test]
    fn file_beyond_the_limit_is_not_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bomb.gz");
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(&[0; 1 << 16]).unwrap();
        std::fs::write(&path, packed.finish().unwrap()).unwrap();
        let problem = Problem::TooLarge { limit: 1000 };
        assert_eq!(read(&path, 1000), Err(Error { path, problem }));
    }

    #[test]
    fn big_endian_elements_of_idx_files_are_swapped() {
        let tensor = written(&[0, 0, 0x0D, 1, 0, 0, 0, 1, 63, 128, 0, 0]).unwrap();
        assert_eq!(tensor.as_f32().unwrap().as_ref(), [1.0]);
    }

    #[test]
    fn invalid_file_is_rejected_with_a_reason() {
        let check = |content: &[u8], reason: &str| {
            let error = written(content).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        };
        check(b"", "does not begin with two zero bytes");
        check(&IDX[..17], "5 bytes of elements");
        check(&IDX[..9], "ends within the sizes");
        check(&[0, 0, 8, 1, 255, 255, 255, 255], "0 bytes of elements");
        check(&[0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255], "overflow");
        check(&[0, 0, 7, 1, 0, 0, 0, 0], "0x07");
        let shape = "'fortran_order': False, 'shape': (2,)}";
        check(&npy(&format!("{{'descr': '<f4', {shape}"), &[0; 7]), "7 bytes of elements");
        check(&npy(&format!("{{'descr': '<c8', {shape}"), &[0; 16]), "'<c8'");
        check(&npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2,)}", &[0; 8]), "ascontiguousarray");
        check(&npy("{'descr': '<f4', 'fortran_order': False}", &[0; 8]), "shape");
        check(&npy("", &[])[..9], "cut short");
        let missing = read(Path::new("no/such/file.npy"), 1).unwrap_err().to_string();
        assert!(missing.starts_with("no/such/file.npy: "), "{missing}");
    }
}
