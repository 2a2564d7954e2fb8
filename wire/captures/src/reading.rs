//! Reads captured queries.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use bytes::Bytes;

use crate::folder::{FORMAT, Title, segments_below};
use crate::{Error, Record};

/// Most bytes of one model's segments: their records are held in memory.
const MOST_BYTES: u64 = 16 << 30;

/// Most bytes of the line that a segment begins with. Others than a frontend may have written it.
const MOST_TITLE: u64 = 1 << 20;

/// Captured queries of one model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Captured {
    /// The records, the oldest first.
    pub records: Vec<Record>,
    /// Bytes of incomplete records at the ends of segments: a process was killed there, or the disk was full.
    pub lost: u64,
}

/// Reads the queries of `model` from a frontend's folder, or from the folder of one model in it.
pub fn read(path: &Path, model: &str) -> Result<Captured, Error> {
    read_most(path, model, MOST_BYTES)
}

/// The same of at most so many bytes.
fn read_most(path: &Path, model: &str, most: u64) -> Result<Captured, Error> {
    let (mut captured, mut others, mut held) = (Captured::default(), BTreeSet::new(), 0);
    for segment in segments_below(path)? {
        let failed = |error: io::Error| Error::file(&segment.path, &error);
        let mut file = BufReader::new(File::open(&segment.path).map_err(failed)?);
        let size = file.get_ref().metadata().map_err(failed)?.len();
        let Some(title) = title(&mut file).map_err(failed)? else {
            captured.lost += size;
            continue;
        };
        if title.format != FORMAT {
            return Err(Error::Format { path: segment.path, format: title.format, known: FORMAT });
        }
        if title.source.model != model {
            others.insert(title.source.model);
            continue;
        }
        held += size;
        if held > most {
            return Err(Error::TooLarge { path: path.to_owned(), limit: most });
        }
        let mut content = Vec::new();
        // It may be appended to meanwhile.
        file.take(size).read_to_end(&mut content).map_err(failed)?;
        let mut rest = Bytes::from(content);
        while let Some(record) = Record::take(&mut rest) {
            captured.records.push(record);
        }
        captured.lost += rest.len() as u64;
    }
    if !captured.records.is_empty() {
        captured.records.sort_by_key(|record| record.unix_ms);
        return Ok(captured);
    }
    let path = path.to_owned();
    match others.is_empty() {
        true => Err(Error::Empty { path }),
        false => {
            let models = others.into_iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
            Err(Error::OtherModel { path, models, wanted: model.into() })
        }
    }
}

/// The title on the first line of a segment, if there is one.
fn title(file: &mut impl BufRead) -> io::Result<Option<Title>> {
    let mut line = Vec::new();
    file.take(MOST_TITLE).read_until(b'\n', &mut line)?;
    Ok(line.strip_suffix(b"\n").and_then(|line| serde_json::from_slice(line).ok()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use parm_protocol::{NamedTensor, Tensor};

    use super::*;
    use crate::{Folder, Keep, Limits, Source};

    fn written(folder: &Path) {
        let mut kept =
            Folder::open(folder, Limits { bytes: 1 << 20, age: Duration::from_secs(3600) }).unwrap();
        for unix_ms in [5, 3, 9] {
            let tensor = Tensor::from_f32([1, 1].as_slice(), &[unix_ms as f32]).unwrap();
            let record = Record { unix_ms, inputs: vec![NamedTensor::new("x", tensor)], outputs: Vec::new() };
            kept.keep(&Source { model: "m/1".into(), version: String::new() }, &record).unwrap();
        }
    }

    #[test]
    fn records_are_read_in_order_and_a_cut_end_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        written(folder.path());
        let segment = segments_below(folder.path()).unwrap().remove(0).path;
        let whole = fs::read(&segment).unwrap();
        fs::write(&segment, &whole[..whole.len() - 1]).unwrap();
        let captured = read(folder.path(), "m/1").unwrap();
        assert_eq!(captured.records.iter().map(|record| record.unix_ms).collect::<Vec<_>>(), [3, 5]);
        assert!(captured.lost > 0);
        // The folder of a single model works as well.
        assert_eq!(read(segment.parent().unwrap(), "m/1").unwrap(), captured);
    }

    #[test]
    fn a_folder_of_another_model_is_refused_with_the_names_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let empty = read(folder.path(), "m").unwrap_err();
        assert_eq!(empty, Error::Empty { path: folder.path().to_owned() });
        written(folder.path());
        let other = read(folder.path(), "m").unwrap_err().to_string();
        assert!(other.contains("holds queries to 'm/1', none to 'm'") && other.contains("--name"), "{other}");
        let missing = read(&folder.path().join("nowhere"), "m").unwrap_err();
        assert!(matches!(missing, Error::File { .. }), "{missing}");
    }

    /// A segment whose record says this of its tensors, and nothing more.
    fn claims(inputs: &str) -> Vec<u8> {
        let head = format!("{{\"unix_ms\":1,\"inputs\":{inputs}}}");
        let mut segment = b"{\"format\":1,\"model\":\"m\",\"version\":\"1\"}\n".to_vec();
        segment.extend((head.len() as u64 + 4).to_le_bytes());
        segment.extend((head.len() as u32).to_le_bytes());
        segment.extend(head.as_bytes());
        segment
    }

    #[test]
    fn foreign_segments_are_left_out_when_they_are_no_records() {
        let tensor = |shape: &str, bytes: &str| {
            claims(&format!("[{{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":{shape},\"bytes\":{bytes}}}]"))
        };
        let title = claims("[]")[..41].to_vec();
        let cases: [(&str, Vec<u8>); 13] = [
            ("no line", vec![b'x'; 3 << 20]),
            ("another file", b"\x89PNG\r\n\x1a\n".to_vec()),
            ("a title of numbers", b"[1, 2]\n".to_vec()),
            ("a deep title", [b"[".repeat(100_000), b"\n".to_vec()].concat()),
            ("a record beyond all", [&title[..], &u64::MAX.to_le_bytes()].concat()),
            ("a record cut off", [&title[..], &100_u64.to_le_bytes(), &[0; 50]].concat()),
            ("a head beyond its record", [&title[..], &8_u64.to_le_bytes(), &[0xff; 8]].concat()),
            ("a head of nothing", [&title[..], &4_u64.to_le_bytes(), &[0; 4]].concat()),
            ("bytes that are not there", tensor("[1]", "4")),
            ("bytes beyond all", tensor("[1]", "18446744073709551615")),
            ("sizes that overflow", tensor("[4294967296, 4294967296, 4]", "0")),
            ("a size below zero", tensor("[-1]", "0")),
            ("a deep head", claims(&"[".repeat(100_000))),
        ];
        for (name, content) in cases {
            let folder = tempfile::tempdir().unwrap();
            let size = content.len() as u64;
            fs::write(folder.path().join("1.rows"), content).unwrap();
            assert!(matches!(read(folder.path(), "m"), Err(Error::Empty { .. })), "{name}");
            written(folder.path());
            let captured = read(folder.path(), "m/1").unwrap();
            assert_eq!(captured.records.len(), 3, "{name}");
            assert!(captured.lost <= size, "{name}: {} bytes lost", captured.lost);
        }
    }

    #[cfg(unix)]
    #[test]
    fn links_and_devices_are_no_segments() {
        let folder = tempfile::tempdir().unwrap();
        written(folder.path());
        for (name, target) in [("1.rows", "/dev/zero"), ("2.rows", "/dev/stdin"), ("3.rows", "nowhere")] {
            std::os::unix::fs::symlink(target, folder.path().join(name)).unwrap();
        }
        std::os::unix::fs::symlink(folder.path(), folder.path().join("again")).unwrap();
        assert_eq!(read(folder.path(), "m/1").unwrap().records.len(), 3);
    }

    #[test]
    fn more_than_memory_should_hold_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        written(folder.path());
        let error = read_most(folder.path(), "m/1", 100).unwrap_err();
        assert!(matches!(error, Error::TooLarge { limit: 100, .. }), "{error}");
        // Segments of other models are not read.
        File::create(folder.path().join("1.rows")).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(read_most(folder.path(), "m/1", 1 << 20).unwrap().records.len(), 3);
    }

    #[test]
    fn later_format_is_named_in_the_error() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("1.rows"), "{\"format\":2,\"model\":\"m\",\"version\":\"1\"}\n")
            .unwrap();
        let error = read(folder.path(), "m").unwrap_err();
        assert!(matches!(error, Error::Format { format: 2, known: 1, .. }), "{error}");
    }
}
