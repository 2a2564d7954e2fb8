//! The folder that a frontend writes to.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Error, Record};

pub(crate) const FORMAT: u32 = 1;
pub(crate) const ENDING: &str = "rows";
/// Longest name of a folder; file systems take 255 bytes.
const LONGEST: usize = 200;
const SEGMENTS: u64 = 16;

/// Limits of the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all models together.
    pub bytes: u64,
    /// Longest age of a query.
    pub age: Duration,
}

/// The model of the queries, in the first line of a segment as JSON.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Source {
    /// The model's name.
    pub model: String,
    /// Its version; empty if it has none.
    pub version: String,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Title {
    pub(crate) format: u32,
    #[serde(flatten)]
    pub(crate) source: Source,
}

/// A store of records.
pub trait Keep: Send {
    /// Stores a record. Returns whether it did: too large a record is dropped.
    fn keep(&mut self, source: &Source, record: &Record) -> io::Result<bool>;

    /// Removes records beyond the age limit.
    fn forget(&mut self, unix_ms: u64) -> io::Result<()>;
}

/// A folder of records, within limits.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    limits: Limits,
    /// Segments by start, with their sizes.
    segments: BTreeMap<(u64, PathBuf), u64>,
    open: BTreeMap<Source, Segment>,
}

#[derive(Debug)]
struct Segment {
    file: File,
    began: u64,
    path: PathBuf,
}

impl Folder {
    /// Opens a folder, creating it if necessary. Existing segments count against the limits.
    pub fn open(path: &Path, limits: Limits) -> Result<Self, Error> {
        make(path).map_err(|error| Error::file(path, &error))?;
        let mut segments = BTreeMap::new();
        for segment in segments_below(path)? {
            let size = fs::metadata(&segment.path).map_err(|error| Error::file(&segment.path, &error))?.len();
            segments.insert((segment.began, segment.path), size);
        }
        Ok(Self { path: path.to_owned(), limits, segments, open: BTreeMap::new() })
    }

    fn segment(&mut self, source: &Source, now: u64) -> io::Result<&mut Segment> {
        let step = self.limits.age.as_millis() as u64 / SEGMENTS;
        let is_full = |segment: &Segment| {
            let size = self.segments.get(&(segment.began, segment.path.clone())).copied().unwrap_or(u64::MAX);
            size >= self.limits.bytes / SEGMENTS || now.saturating_sub(segment.began) > step
        };
        // An operator may have removed the file: what is written to it then is lost.
        let is_gone = |segment: &Segment| !segment.path.exists();
        if self.open.get(source).is_some_and(|segment| is_full(segment) || is_gone(segment)) {
            self.open.remove(source);
        }
        if !self.open.contains_key(source) {
            let begun = self.begin(source, now)?;
            self.open.insert(source.clone(), begun);
        }
        self.open.get_mut(source).ok_or_else(|| io::Error::other("a segment went away"))
    }

    fn begin(&mut self, source: &Source, now: u64) -> io::Result<Segment> {
        let folder = self.path.join(name_of(&source.model));
        make(&folder)?;
        let mut title = serde_json::to_vec(&Title { format: FORMAT, source: source.clone() })?;
        title.push(b'\n');
        // Another segment may have started in the same millisecond.
        let mut began = now;
        let (mut file, path) = loop {
            let path = folder.join(format!("{began:015}.{ENDING}"));
            match private().create_new(true).append(true).open(&path) {
                Ok(file) => break (file, path),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => began += 1,
                Err(error) => return Err(error),
            }
        };
        file.write_all(&title)?;
        self.segments.insert((began, path.clone()), title.len() as u64);
        Ok(Segment { file, began, path })
    }

    /// Makes room: removes the oldest segments of any model.
    fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        while self.segments.values().sum::<u64>() + bytes > self.limits.bytes {
            let Some((began, path)) = self.segments.keys().next().cloned() else { break };
            self.remove(began, &path)?;
        }
        Ok(())
    }

    fn remove(&mut self, began: u64, path: &Path) -> io::Result<()> {
        self.open.retain(|_, segment| segment.path != path);
        self.segments.remove(&(began, path.to_owned()));
        match fs::remove_file(path) {
            // Another process may remove segments as well.
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

impl Keep for Folder {
    fn keep(&mut self, source: &Source, record: &Record) -> io::Result<bool> {
        let bytes = record.to_bytes();
        let size = bytes.len() as u64;
        if size > self.limits.bytes / SEGMENTS {
            return Ok(false);
        }
        self.forget(record.unix_ms)?;
        // A new segment's title takes room too.
        self.make_room(size + title_bytes(source))?;
        let segment = self.segment(source, record.unix_ms)?;
        // One write per record: readers never see half of one, unless the disk is full.
        segment.file.write_all(&bytes)?;
        let place = (segment.began, segment.path.clone());
        *self.segments.entry(place).or_default() += size;
        Ok(true)
    }

    fn forget(&mut self, unix_ms: u64) -> io::Result<()> {
        let oldest = unix_ms.saturating_sub(self.limits.age.as_millis() as u64);
        while let Some((began, path)) = self.segments.keys().next().cloned().filter(|key| key.0 < oldest) {
            self.remove(began, &path)?;
        }
        Ok(())
    }
}

/// Most bytes of a segment's first line.
fn title_bytes(source: &Source) -> u64 {
    // An escaped character takes six bytes in JSON.
    64 + 6 * (source.model.len() + source.version.len()) as u64
}

/// A segment, parsed from its name.
pub(crate) struct Found {
    pub(crate) began: u64,
    pub(crate) path: PathBuf,
}

/// All segments in a folder and in its folders of models, the oldest first.
pub(crate) fn segments_below(path: &Path) -> Result<Vec<Found>, Error> {
    let mut found = Vec::new();
    let mut folders = vec![(path.to_owned(), true)];
    while let Some((folder, has_models)) = folders.pop() {
        let failed = |error: io::Error| Error::file(&folder, &error);
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = entry.path();
            let began = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
            let is_segment = path.extension().is_some_and(|ending| ending == ENDING);
            // Links and devices are none of ours: they may have no end, or wait for a writer.
            let kind = entry.file_type().map_err(failed)?;
            match began {
                _ if kind.is_dir() && has_models => folders.push((path, false)),
                Some(began) if kind.is_file() && is_segment => found.push(Found { began, path }),
                _ => {}
            }
        }
    }
    found.sort_by(|a, b| (a.began, &a.path).cmp(&(b.began, &b.path)));
    Ok(found)
}

/// The name of a model's folder, out of which no name from a client or server leads: other characters than letters, digits, dash, dot and underscore are written as bytes.
fn name_of(model: &str) -> String {
    let mut name = String::new();
    for (at, byte) in model.bytes().enumerate() {
        let is_plain = byte.is_ascii_alphanumeric() || b"-_".contains(&byte) || (byte == b'.' && at > 0);
        match is_plain {
            true => name.push(byte.into()),
            false => name.push_str(&format!("%{byte:02x}")),
        }
    }
    // Long names with the same start share a folder; each segment names its model.
    name.truncate(LONGEST);
    name
}

/// Creates a folder that only its owner can read, as it holds clients' data.
fn make(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

fn private() -> OpenOptions {
    #[allow(unused_mut)] // on systems without modes
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

#[cfg(test)]
mod tests {
    use parm_protocol::{NamedTensor, Tensor};

    use super::*;
    use crate::read;

    const LIMITS: Limits = Limits { bytes: 16_000, age: Duration::from_secs(16) };

    fn record(unix_ms: u64) -> Record {
        let tensor = Tensor::from_f32([1, 50].as_slice(), &[unix_ms as f32; 50]).unwrap();
        Record { unix_ms, inputs: vec![NamedTensor::new("x", tensor)], outputs: Vec::new() }
    }

    fn source(model: &str) -> Source {
        Source { model: model.into(), version: "1".into() }
    }

    fn size(path: &Path) -> u64 {
        segments_below(path).unwrap().iter().map(|one| fs::metadata(&one.path).unwrap().len()).sum()
    }

    #[test]
    fn the_folder_keeps_the_newest_within_its_size() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = Folder::open(folder.path(), LIMITS).unwrap();
        for at in 0..200 {
            assert!(kept.keep(&source("m"), &record(at)).unwrap());
            assert!(size(folder.path()) <= LIMITS.bytes);
        }
        let captured = read(folder.path(), "m").unwrap();
        assert_eq!(captured.records.last().unwrap().unix_ms, 199);
        // A segment is a sixteenth of the limit: at most that much is missing.
        assert!(size(folder.path()) > LIMITS.bytes * 14 / 16, "{}", size(folder.path()));
    }

    #[test]
    fn old_records_of_every_model_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = Folder::open(folder.path(), LIMITS).unwrap();
        kept.keep(&source("a"), &record(1_000)).unwrap();
        kept.keep(&source("b"), &record(9_000)).unwrap();
        kept.keep(&source("b"), &record(18_000)).unwrap();
        assert!(matches!(read(folder.path(), "a"), Err(Error::OtherModel { .. })));
        assert_eq!(read(folder.path(), "b").unwrap().records.len(), 2);
        kept.forget(60_000).unwrap();
        assert_eq!(size(folder.path()), 0);
    }

    #[test]
    fn records_are_kept_after_the_files_were_removed() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = Folder::open(folder.path(), LIMITS).unwrap();
        kept.keep(&source("m"), &record(1)).unwrap();
        fs::remove_dir_all(folder.path()).unwrap();
        kept.keep(&source("m"), &record(2)).unwrap();
        let captured = read(folder.path(), "m").unwrap();
        assert_eq!(captured.records.iter().map(|record| record.unix_ms).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn reopened_folder_counts_existing_segments() {
        let folder = tempfile::tempdir().unwrap();
        for at in 0..100 {
            let mut kept = Folder::open(folder.path(), LIMITS).unwrap();
            kept.keep(&source("m"), &record(at)).unwrap();
        }
        assert!(size(folder.path()) <= LIMITS.bytes);
    }

    #[test]
    fn a_record_larger_than_a_segment_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = Folder::open(folder.path(), Limits { bytes: 1_600, ..LIMITS }).unwrap();
        assert!(!kept.keep(&source("m"), &record(1)).unwrap());
        assert_eq!(size(folder.path()), 0);
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_can_read_captured_data() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("capture");
        let mut kept = Folder::open(&path, LIMITS).unwrap();
        kept.keep(&source("m"), &record(1)).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&path.join("m"))), (0o700, 0o700));
        assert_eq!(mode(&segments_below(&path).unwrap()[0].path), 0o600);
    }

    #[test]
    fn no_name_leads_out_of_the_name_of() {
        assert_eq!(name_of("magika"), "magika");
        assert_eq!(name_of("../etc"), "%2e.%2fetc");
        assert_eq!(name_of("."), "%2e");
        assert_eq!(name_of("v1.5"), "v1.5");
        assert!(name_of(&"/".repeat(400)).len() <= LONGEST);
    }
}
