//! Cells of a grid: independent runs of minutes to hours, divided into shares that separate processes run.
//!
//! A matrix of trainings and a simulated experiment are grids. Each cell has a stable key and a result file of its own. This
//! crate is not a scheduler, because Slurm, Kubernetes and Ray already number the processes of an array and start a lost one
//! again: a process runs the cells of its [`Share`] that have no result yet, and [`join`] reads the results of all.
//!
//! A process can be killed at any moment, and an engine may start its successor while it still runs. So a result is written to
//! a draft and renamed into place, and drafts have random names, because pods have equal process numbers, and an Indexed Job
//! gives a replaced pod the name of its predecessor. Two processes that run one cell write equal results. A join takes whole
//! results, and reports all others.
//!
//! Rejected: cells that processes take from a common list. That balances them better, but needs leases, and then a lost
//! process must be told from a paused one, which the engine knows already.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

/// A cell of a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The stable key: it changes with every setting that the result depends on.
    pub key: String,
    /// Its name in messages.
    pub name: String,
    /// The digest of each input by its name. Empty: any digest is accepted that all results share.
    pub inputs: BTreeMap<String, String>,
}

/// Returns the SHA-256 of bytes as hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the key of a cell with these settings: 16 hexadecimal digits.
pub fn key(settings: &[u8]) -> String {
    digest(settings)[..16].to_owned()
}

/// Share number `index` of `of` shares, counted from 0: every `of`-th cell, so that the sizes of shares differ by one at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    index: usize,
    of: usize,
}

impl Share {
    /// Returns the cells of this share.
    pub fn of<T: Clone>(self, cells: &[T]) -> Vec<T> {
        cells.iter().skip(self.index).step_by(self.of).cloned().collect()
    }
}

impl FromStr for Share {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parts =
            text.split_once('/').and_then(|(index, of)| Some((index.parse().ok()?, of.parse().ok()?)));
        match parts {
            Some((index, of)) if index < of => Ok(Self { index, of }),
            _ => Err(Error::BadShare { given: text.into() }),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

/// An error of a grid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Error {
    #[error("cannot {what} '{}': {reason}", path.display())]
    File { what: &'static str, path: PathBuf, reason: String },
    #[error("invalid share '{given}': give I/N with I from 0 to N - 1, such as 0/4")]
    BadShare { given: String },
    #[error(
        "cell {name} has a result from other inputs ({input}) in '{}': use another folder for results",
        path.display()
    )]
    OtherInputs { name: String, input: String, path: PathBuf },
    #[error(
        "cell {name} has a result of parm {version} in '{}', this is {own}: use another folder for results",
        path.display(), own = env!("CARGO_PKG_VERSION")
    )]
    OtherVersion { name: String, version: String, path: PathBuf },
}

impl Error {
    /// Builds the error of a file operation.
    fn file(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Self::File { what, path: path.into(), reason: error.to_string() }
    }
}

/// Largest result file that is read.
const LARGEST: u64 = 256 << 20;

/// The result of a run. Only its timings differ between runs of the cell.
#[derive(Clone, Debug)]
pub struct Product {
    /// The result as JSON. Equal cells of equal inputs have equal results.
    pub result: String,
    /// Measured times as JSON, which differ from run to run.
    pub timings: String,
}

/// A result file: the result of a cell with everything that a join checks.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The key of the cell.
    pub key: String,
    /// The kind of grid.
    pub grid: String,
    /// The name of the cell.
    pub name: String,
    /// The program that ran it.
    pub version: String,
    /// The digest of each input by its name.
    pub inputs: BTreeMap<String, String>,
    /// Measured times.
    pub timings: Box<RawValue>,
    /// The result.
    pub result: Box<RawValue>,
    /// The digest of all other fields.
    digest: String,
}

impl Record {
    fn new(grid: &str, cell: &Cell, product: Product) -> Result<Self, serde_json::Error> {
        let mut record = Self {
            key: cell.key.clone(),
            grid: grid.into(),
            name: cell.name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            inputs: cell.inputs.clone(),
            timings: RawValue::from_string(product.timings)?,
            result: RawValue::from_string(product.result)?,
            digest: String::new(),
        };
        record.digest = record.content()?;
        Ok(record)
    }

    /// Reads a file. The error says why it is not a whole result.
    fn read(path: &Path) -> Result<Self, String> {
        let bytes = bytes(path).map_err(|error| error.to_string())?;
        if bytes.len() as u64 > LARGEST {
            return Err(format!("it has more than {LARGEST} bytes"));
        }
        let record: Self = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
        let content = record.content().map_err(|error| error.to_string())?;
        if content != record.digest { Err("its digest differs".into()) } else { Ok(record) }
    }

    /// Whether this version of the program wrote it.
    fn is_of_this_version(&self) -> bool {
        self.version == env!("CARGO_PKG_VERSION")
    }

    /// Returns the input whose digest is not that of the cell, if there is one.
    fn other_input(&self, cell: &Cell) -> Option<String> {
        let differs = |(name, digest): (&String, &String)| self.inputs.get(name) != Some(digest);
        cell.inputs.iter().find(|input| differs(*input)).map(|(name, _)| name.clone())
    }

    fn content(&self) -> Result<String, serde_json::Error> {
        let Self { key, grid, name, version, inputs, timings, result, .. } = self;
        let content = (key, grid, name, version, inputs, timings, result);
        Ok(digest(&serde_json::to_vec(&content)?))
    }
}

/// Reads a regular file up to one byte more than the limit. A pipe would block, and a device may be endless.
fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes `bytes` to a draft, syncs it and renames it: readers never see a partial file, and a full disk leaves the old
/// file.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = draft(path);
    let written = File::create_new(&draft).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    let moved = written.and_then(|()| fs::rename(&draft, path));
    moved.inspect_err(|_| _ = fs::remove_file(&draft))
}

/// Returns a path next to `path` that no other process uses.
fn draft(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{:016x}.part", RandomState::new().build_hasher().finish()));
    path.with_file_name(name)
}

/// The results of a grid in the folder `cells` of a folder of results.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
    grid: &'static str,
}

impl Folder {
    /// Opens a folder of results, and creates it if it does not exist; `grid` is the kind of the grid.
    pub fn create(results: &Path, grid: &'static str) -> Result<Self, Error> {
        let path = results.join("cells");
        fs::create_dir_all(&path).map_err(Error::file("create", &path))?;
        Ok(Self { path, grid })
    }

    /// Whether a cell has a result, so that it needs no run. A damaged one counts as none: the new one replaces it.
    pub fn has_result(&self, cell: &Cell) -> Result<bool, Error> {
        let Found::Whole(record) = found(&self.path, self.grid, &cell.key) else { return Ok(false) };
        let path = file(&self.path, &cell.key);
        if !record.is_of_this_version() {
            let (name, version) = (cell.name.clone(), record.version.clone());
            return Err(Error::OtherVersion { name, version, path });
        }
        match record.other_input(cell) {
            Some(input) => Err(Error::OtherInputs { name: cell.name.clone(), input, path }),
            None => Ok(true),
        }
    }

    /// Writes the result of a cell.
    pub fn keep(&self, cell: &Cell, product: Product) -> Result<(), Error> {
        let path = file(&self.path, &cell.key);
        let record = Record::new(self.grid, cell, product).and_then(|record| serde_json::to_vec(&record));
        record
            .map_err(io::Error::from)
            .and_then(|text| write(&path, &text))
            .map_err(Error::file("write", &path))
    }
}

fn file(cells: &Path, key: &str) -> PathBuf {
    cells.join(format!("{key}.json"))
}

/// The result file of a cell.
enum Found {
    /// It is whole and of this cell.
    Whole(Box<Record>),
    /// It is torn, or of another cell or grid.
    Damaged { reason: String },
    /// It does not exist.
    Nothing,
}

/// Reads the result of a key from a folder of cells.
fn found(cells: &Path, grid: &str, key: &str) -> Found {
    let path = file(cells, key);
    if matches!(path.try_exists(), Ok(false)) {
        return Found::Nothing;
    }
    match Record::read(&path) {
        Err(reason) => Found::Damaged { reason },
        Ok(record) if record.key != key => Found::Damaged { reason: format!("it is of cell {}", record.key) },
        Ok(record) if record.grid != grid => Found::Damaged { reason: format!("it is of a {}", record.grid) },
        Ok(record) => Found::Whole(Box::new(record)),
    }
}

/// Returns the keys of all result files in a folder of cells, in order. A folder that does not exist has none.
fn keys(cells: &Path) -> Result<BTreeSet<String>, Error> {
    let key = |entry: io::Result<fs::DirEntry>| -> io::Result<Option<String>> {
        let name = entry?.file_name();
        Ok(name.to_str().and_then(|name| name.strip_suffix(".json")).map(str::to_owned))
    };
    match fs::read_dir(cells) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(BTreeSet::new()),
        entries => entries.and_then(|entries| entries.map(key).filter_map(Result::transpose).collect()),
    }
    .map_err(Error::file("read", cells))
}

/// Reads all whole results of a kind and of this version in a results folder, which may still be filled.
pub fn records(results: &Path, grid: &str) -> Result<Vec<Record>, Error> {
    let folder = results.join("cells");
    let whole = |key: String| match found(&folder, grid, &key) {
        Found::Whole(record) if record.is_of_this_version() => Some(*record),
        _ => None,
    };
    Ok(keys(&folder)?.into_iter().filter_map(whole).collect())
}

/// The results of a grid.
#[derive(Clone, Debug, Default)]
pub struct Joined {
    /// The results by key.
    pub records: BTreeMap<String, Record>,
    /// Reasons why results are missing, in order.
    pub problems: Vec<Problem>,
    /// Result files of other grids or settings, which were ignored.
    pub foreign: Vec<PathBuf>,
}

/// The reason why a file was not joined, or a cell has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Problem {
    #[error("not joined: no folder '{}': name folders that --results named", path.display())]
    NoFolder { path: PathBuf },
    #[error("missing: {name}: run its share again")]
    Missing { name: String },
    #[error("not joined: {}: {reason}: run its share again", path.display())]
    Damaged { path: PathBuf, reason: String },
    #[error(
        "not joined: {}: parm {version} wrote it, this is {own}: run its share in another folder",
        path.display(), own = env!("CARGO_PKG_VERSION")
    )]
    OtherVersion { path: PathBuf, version: String },
    #[error("not joined: {}: its input differs ({input}): give every machine the same", path.display())]
    OtherInputs { path: PathBuf, input: String },
    #[error(
        "not joined: {} and {} have different results: remove both and run again",
        path.display(), from.display()
    )]
    Differs { path: PathBuf, from: PathBuf },
}

/// Reads the results of these cells from results folders.
pub fn join(folders: &[PathBuf], grid: &str, cells: &[Cell]) -> Result<Joined, Error> {
    let mut joined = Joined::default();
    let known: BTreeSet<&str> = cells.iter().map(|cell| cell.key.as_str()).collect();
    let folders: Vec<PathBuf> = folders.iter().map(|folder| folder.join("cells")).collect();
    for folder in &folders {
        if matches!(folder.try_exists(), Ok(false)) {
            joined.problems.push(Problem::NoFolder { path: folder.clone() });
        }
        let others = keys(folder)?.into_iter().filter(|key| !known.contains(key.as_str()));
        joined.foreign.extend(others.map(|key| file(folder, &key)));
    }
    let mut inputs = BTreeMap::new();
    for cell in cells {
        match one(&folders, grid, cell, &mut inputs, &mut joined.problems) {
            Some(record) => _ = joined.records.insert(cell.key.clone(), record),
            None => joined.problems.push(Problem::Missing { name: cell.name.clone() }),
        }
    }
    Ok(joined)
}

/// Returns the result of a cell if all folders that have one agree. `inputs` are the digests so far.
fn one(
    folders: &[PathBuf],
    grid: &str,
    cell: &Cell,
    inputs: &mut BTreeMap<String, String>,
    problems: &mut Vec<Problem>,
) -> Option<Record> {
    let mut first: Option<(PathBuf, Record)> = None;
    for folder in folders {
        let path = file(folder, &cell.key);
        let record = match found(folder, grid, &cell.key) {
            Found::Nothing => continue,
            Found::Damaged { reason } => {
                problems.push(Problem::Damaged { path, reason });
                continue;
            }
            Found::Whole(record) => *record,
        };
        if let Some(problem) = unfit(&path, &record, cell, inputs) {
            problems.push(problem);
            continue;
        }
        if cell.inputs.is_empty() {
            inputs.extend(record.inputs.clone());
        }
        match &first {
            None => first = Some((path, record)),
            Some((from, one)) if one.result.get() != record.result.get() => {
                problems.push(Problem::Differs { path, from: from.clone() });
                return None;
            }
            Some(_) => {}
        }
    }
    first.map(|(_, record)| record)
}

fn unfit(path: &Path, record: &Record, cell: &Cell, inputs: &BTreeMap<String, String>) -> Option<Problem> {
    let path = path.to_owned();
    if !record.is_of_this_version() {
        return Some(Problem::OtherVersion { path, version: record.version.clone() });
    }
    let differs =
        |(name, digest): &(&String, &String)| inputs.get(*name).is_some_and(|known| known != *digest);
    let other = match cell.inputs.is_empty() {
        true => record.inputs.iter().find(differs).map(|(name, _)| name.clone()),
        false => record.other_input(cell),
    };
    other.map(|input| Problem::OtherInputs { path, input })
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// Cell number `number`.
    fn cell(number: u32) -> Cell {
        let inputs = BTreeMap::from([("settings".to_owned(), digest(&number.to_le_bytes()))]);
        Cell { key: key(&number.to_le_bytes()), name: format!("cell {number}"), inputs }
    }

    fn product(result: u32) -> Product {
        Product { result: result.to_string(), timings: "{}".into() }
    }

    /// A results folder with a result of each cell.
    fn ran(root: &TempDir, name: &str, cells: &[(Cell, u32)]) -> PathBuf {
        let path = root.path().join(name);
        let folder = Folder::create(&path, "test").unwrap();
        cells.iter().for_each(|(cell, result)| folder.keep(cell, product(*result)).unwrap());
        path
    }

    fn joined(folders: &[PathBuf], cells: &[Cell]) -> Joined {
        join(folders, "test", cells).unwrap()
    }

    #[test]
    fn cell_with_a_result_needs_no_run() {
        let root = TempDir::new().unwrap();
        let path = ran(&root, "a", &[(cell(1), 1)]);
        let folder = Folder::create(&path, "test").unwrap();
        assert_eq!([cell(1), cell(2)].map(|cell| folder.has_result(&cell)), [Ok(true), Ok(false)]);
        // A torn result is replaced.
        let whole = file(&path.join("cells"), &cell(1).key);
        let text = fs::read(&whole).unwrap();
        fs::write(&whole, &text[..text.len() / 2]).unwrap();
        assert_eq!(folder.has_result(&cell(1)), Ok(false));
        folder.keep(&cell(1), product(1)).unwrap();
        assert_eq!(fs::read(&whole).unwrap(), text);
    }

    #[test]
    fn result_of_another_version_is_reported_not_used() {
        let root = TempDir::new().unwrap();
        let path = ran(&root, "a", &[]);
        let mut record = Record::new("test", &cell(1), product(1)).unwrap();
        record.version = "0.0.1".into();
        record.digest = record.content().unwrap();
        fs::write(file(&path.join("cells"), &cell(1).key), serde_json::to_vec(&record).unwrap()).unwrap();
        let joined = joined(std::slice::from_ref(&path), &[cell(1)]);
        assert!(joined.records.is_empty());
        assert!(matches!(&joined.problems[0], Problem::OtherVersion { version, .. } if version == "0.0.1"));
        let error = Folder::create(&path, "test").unwrap().has_result(&cell(1)).unwrap_err().to_string();
        assert!(error.contains("0.0.1") && error.contains("another folder"), "{error}");
        assert!(records(&path, "test").unwrap().is_empty());
    }

    #[test]
    fn files_that_are_not_regular_are_not_read() {
        let root = TempDir::new().unwrap();
        let results = ran(&root, "a", &[]);
        let folder = Folder::create(&results, "test").unwrap();
        let path = file(&results.join("cells"), &cell(1).key);
        // An endless file, a link in a circle, and one to nothing: a new result replaces the link, not the file behind it.
        for target in [Path::new("/dev/zero"), &path, Path::new("/nothing/here")] {
            std::os::unix::fs::symlink(target, &path).unwrap();
            assert_eq!(folder.has_result(&cell(1)), Ok(false), "{}", target.display());
            folder.keep(&cell(1), product(1)).unwrap();
            assert!(fs::symlink_metadata(&path).unwrap().is_file());
            fs::remove_file(&path).unwrap();
        }
        fs::create_dir(&path).unwrap();
        let problems = joined(&[results], &[cell(1)]).problems;
        assert!(matches!(problems[0], Problem::Damaged { .. }), "{problems:?}");
        let error = folder.keep(&cell(1), product(1)).unwrap_err().to_string();
        assert!(error.contains(&cell(1).key), "{error}");
    }

    #[test]
    fn files_that_many_processes_write_are_whole() {
        let root = TempDir::new().unwrap();
        let path = root.path().join("file");
        assert_ne!(draft(&path), draft(&path));
        std::thread::scope(|scope| {
            for number in 0..4u8 {
                let path = &path;
                scope.spawn(move || (0..50).try_for_each(|_| write(path, &[number; 4096])).unwrap());
            }
        });
        let bytes = fs::read(&path).unwrap();
        assert!(bytes.len() == 4096 && bytes.iter().all(|byte| *byte == bytes[0]));
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "drafts are gone");
    }

    #[test]
    fn folders_are_joined_and_missing_cells_named() {
        let root = TempDir::new().unwrap();
        let a = ran(&root, "a", &[(cell(1), 1), (cell(2), 2)]);
        let b = ran(&root, "b", &[(cell(2), 2), (cell(9), 9)]);
        let mistyped = root.path().join("mistyped");
        let joined = joined(&[a, b.clone(), mistyped.clone()], &[cell(1), cell(2), cell(3)]);
        let results = [cell(1), cell(2)].map(|cell| joined.records[&cell.key].result.get().to_owned());
        assert_eq!(results, ["1", "2"]);
        let absent = Problem::NoFolder { path: mistyped.join("cells") };
        assert_eq!(joined.problems, [absent, Problem::Missing { name: "cell 3".into() }]);
        assert_eq!(joined.foreign, [b.join(format!("cells/{}.json", cell(9).key))]);
    }

    #[test]
    fn torn_and_foreign_files_are_never_joined() {
        let root = TempDir::new().unwrap();
        let a = ran(&root, "a", &[(cell(1), 1), (cell(2), 2), (cell(3), 3), (cell(4), 4)]);
        let path = |number: u32| a.join(format!("cells/{}.json", cell(number).key));
        let whole = fs::read_to_string(path(1)).unwrap();
        let reasons = |text: &str| {
            fs::write(path(1), text).unwrap();
            let joined = joined(std::slice::from_ref(&a), &[cell(1)]);
            assert!(joined.records.is_empty(), "{text}");
            joined.problems[0].to_string()
        };
        for length in [0, 1, whole.len() / 2, whole.len() - 1] {
            assert!(reasons(&whole[..length]).contains("run its share again"));
        }
        assert!(reasons(&whole.replace("\"result\":1", "\"result\":7")).contains("digest differs"));
        assert!(reasons(&fs::read_to_string(path(2)).unwrap()).contains("it is of cell"));
        fs::write(path(1), &whole).unwrap();
        assert_eq!(joined(std::slice::from_ref(&a), &[cell(1)]).problems, []);
        let other = join(&[a], "matrix", &[cell(1)]).unwrap();
        assert!(other.problems[0].to_string().contains("it is of a test"), "{:?}", other.problems);
    }

    #[test]
    fn different_results_and_inputs_are_conflicts() {
        let root = TempDir::new().unwrap();
        let (a, b) = (ran(&root, "a", &[(cell(1), 1)]), ran(&root, "b", &[(cell(1), 2)]));
        let conflict = joined(&[a.clone(), b], &[cell(1)]);
        assert!(conflict.records.is_empty());
        assert!(matches!(conflict.problems[0], Problem::Differs { .. }), "{:?}", conflict.problems);

        let mut changed = cell(1);
        changed.inputs.insert("settings".into(), "changed".into());
        let stopped = Folder::create(&a, "test").unwrap().has_result(&changed).unwrap_err().to_string();
        assert!(stopped.contains("other inputs (settings)"), "{stopped}");
        let foreign = joined(std::slice::from_ref(&a), &[changed]);
        assert!(matches!(&foreign.problems[0], Problem::OtherInputs { input, .. } if input == "settings"));

        // Without expected digests, all results must have the same ones.
        let mut other = cell(2);
        other.inputs.insert("settings".into(), "elsewhere".into());
        let c = ran(&root, "c", &[(other.clone(), 2)]);
        let open = |cell: Cell| Cell { inputs: BTreeMap::new(), ..cell };
        let mixed = joined(&[a, c], &[open(cell(1)), open(other)]);
        assert_eq!(mixed.records.len(), 1);
        assert!(matches!(mixed.problems[0], Problem::OtherInputs { .. }), "{:?}", mixed.problems);
    }

    #[test]
    fn every_cell_is_in_exactly_one_share() {
        let cells: Vec<Cell> = (0..10).map(cell).collect();
        let shares = (0..4).map(|index| format!("{index}/4").parse::<Share>().unwrap().of(&cells));
        let names = |share: Vec<Cell>| share.into_iter().map(|cell| cell.name).collect::<Vec<_>>().join(" ");
        assert_eq!(
            shares.map(names).collect::<Vec<_>>(),
            ["cell 0 cell 4 cell 8", "cell 1 cell 5 cell 9", "cell 2 cell 6", "cell 3 cell 7"]
        );
        assert_eq!("10/11".parse::<Share>().unwrap().of(&cells), []);
    }

    #[test]
    fn invalid_share_error_shows_expected_form() {
        for given in ["4/4", "1", "1/0", "-1/4", "a/b", ""] {
            let error = given.parse::<Share>().unwrap_err().to_string();
            assert!(error.contains("0/4"), "{given}: {error}");
        }
    }
}
