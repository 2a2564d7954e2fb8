//! Reads captured queries.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use bytes::Bytes;

use crate::folder::{FORMAT, Title, segments_below};
use crate::{Error, Record};

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
    let (mut captured, mut others) = (Captured::default(), BTreeSet::new());
    for segment in segments_below(path)? {
        let content = fs::read(&segment.path).map_err(|error| Error::file(&segment.path, &error))?;
        let mut rest = Bytes::from(content);
        let Some(title) = title(&mut rest) else {
            captured.lost += rest.len() as u64;
            continue;
        };
        if title.format != FORMAT {
            return Err(Error::Format { path: segment.path, format: title.format, known: FORMAT });
        }
        if title.model != model {
            others.insert(title.model);
            continue;
        }
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

/// The first line of a segment.
fn title(rest: &mut Bytes) -> Option<Title> {
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let title = serde_json::from_slice(&rest[..end]).ok()?;
    let _ = rest.split_to(end + 1);
    Some(title)
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn later_format_is_named_in_the_error() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("1.rows"), "{\"format\":2,\"model\":\"m\",\"version\":\"1\"}\n")
            .unwrap();
        let error = read(folder.path(), "m").unwrap_err();
        assert!(matches!(error, Error::Format { format: 2, known: 1, .. }), "{error}");
    }
}
