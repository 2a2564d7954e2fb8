//! Rows from common files: npy (numpy) and idx (MNIST), plain or gzipped, and arbitrary files.
//!
//! A file's header is checked against its length, and errors name the file. The elements stay as stored, little-endian
//! and row-major, in a [`Tensor`]. [`numbers()`] converts them if only their values count. [`tokens()`] converts an
//! arbitrary file into the input of file-type models.

mod ends;
mod idx;
mod npy;

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;
use parm_protocol::{DataType, Tensor};

pub use ends::{TOKENS, tokens, walk};

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

/// The bytes of a file, unpacked, at most `limit`: a wrong path or a hostile archive must not fill the memory. gzip is
/// recognised by its first two bytes, and may have several parts.
pub fn content(path: &Path, limit: u64) -> Result<Vec<u8>, Error> {
    let bytes = unpacked(path, limit).map_err(|error| Error::new(path, Problem::Read(error.to_string())))?;
    if bytes.len() as u64 > limit {
        return Err(Error::new(path, Problem::TooLarge { limit }));
    }
    Ok(bytes)
}

fn unpacked(path: &Path, limit: u64) -> std::io::Result<Vec<u8>> {
    let mut file = BufReader::new(File::open(path)?);
    let packed = file.fill_buf()?.starts_with(&[0x1F, 0x8B]);
    let mut bytes = Vec::new();
    // One byte more than allowed, to detect larger files.
    let most = limit.saturating_add(1);
    match packed {
        true => MultiGzDecoder::new(file).take(most).read_to_end(&mut bytes)?,
        false => file.take(most).read_to_end(&mut bytes)?,
    };
    Ok(bytes)
}

/// The elements of a tensor as numbers; none for strings.
pub fn numbers(tensor: &Tensor) -> Option<Box<dyn Iterator<Item = f64> + '_>> {
    macro_rules! read {
        ($kind:ty) => {
            Box::new(tensor.data().chunks_exact(size_of::<$kind>()).map(|bytes| {
                <$kind>::from_le_bytes(bytes.try_into().unwrap_or_else(|_| unreachable!("chunks are exact")))
                    as f64
            }))
        };
    }
    let datatype = tensor.datatype();
    Some(match datatype {
        DataType::Bool | DataType::Uint8 => read!(u8),
        DataType::Uint16 => read!(u16),
        DataType::Uint32 => read!(u32),
        DataType::Uint64 => read!(u64),
        DataType::Int8 => read!(i8),
        DataType::Int16 => read!(i16),
        DataType::Int32 => read!(i32),
        DataType::Int64 => read!(i64),
        DataType::Fp32 => read!(f32),
        DataType::Fp64 => read!(f64),
        DataType::Fp16 | DataType::Bf16 => {
            Box::new(tensor.data().chunks_exact(2).map(move |bytes| datatype.read_half([bytes[0], bytes[1]])))
        }
        DataType::Bytes => return None,
    })
}

/// A tensor of a file's elements, if their number matches its shape.
fn tensor(datatype: DataType, shape: Vec<usize>, data: Bytes) -> Result<Tensor, Problem> {
    let count = shape.iter().try_fold(1u64, |product, &size| product.checked_mul(size as u64));
    let expected = count.and_then(|count| count.checked_mul(datatype.size().unwrap_or(1) as u64));
    let expected = expected.ok_or_else(|| malformed(format!("its sizes {shape:?} overflow")))?;
    let actual = data.len() as u64;
    Tensor::new(datatype, shape, data).map_err(|_| Problem::Length { expected, actual })
}

/// A file that cannot be read, and the reason.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct Error {
    /// The file.
    pub path: PathBuf,
    /// The problem.
    pub problem: Problem,
}

/// A problem of a file.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Problem {
    #[error("{0}")]
    Read(String),
    #[error("it has more than {limit} bytes: give a part of it")]
    TooLarge { limit: u64 },
    #[error("there are more than {limit} files: name a folder with fewer")]
    TooManyFiles { limit: usize },
    #[error("{0}")]
    Malformed(String),
    #[error("it says {expected} bytes of elements but has {actual} bytes of elements: fetch it again")]
    Length { expected: u64, actual: u64 },
}

impl Error {
    fn new(path: &Path, problem: Problem) -> Self {
        Self { path: path.into(), problem }
    }
}

fn malformed(detail: impl Into<String>) -> Problem {
    Problem::Malformed(detail.into())
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

    #[test]
    fn half_precision_is_read() {
        for datatype in [DataType::Fp16, DataType::Bf16] {
            let bytes: Vec<u8> = [1.5, -0.25]
                .into_iter()
                .flat_map(|number| datatype.half_precision(number).unwrap())
                .collect();
            let tensor = Tensor::new(datatype, vec![2], bytes.into()).unwrap();
            assert_eq!(numbers(&tensor).unwrap().collect::<Vec<_>>(), [1.5, -0.25], "{datatype}");
        }
    }
}
