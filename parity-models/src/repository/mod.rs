//! Models on disk, in Triton's layout.
//!
//! ```text
//! ROOT/NAME/VERSION/model.onnx     versions are whole numbers from 1
//! ROOT/NAME/parm.toml              optional: the coding bundle of a deployed model
//! ```
//!
//! An invalid model never hides the others: a scan returns the valid models and the errors.

mod pbtxt;
mod watch;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

pub use pbtxt::TritonConfig;
pub use watch::{Change, Poll, Watch};

use crate::Error;
use crate::onnx::{is_inside, locations};

/// Longest accepted name: the limit of common file systems.
const MAX_NAME: usize = 255;

/// Rejects names that could mean a place other than a folder of the repository: clients load models by name, and must stay
/// inside the root.
pub fn check_name(name: &str) -> Result<(), Error> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let whole = !name.is_empty() && name.len() <= MAX_NAME && !name.starts_with('.');
    if whole && name.chars().all(allowed) {
        return Ok(());
    }
    Err(Error::ModelName { name: name.into() })
}

/// The most files of a version folder: a model, its external data, a label list. More is a misplaced folder.
const MAX_FILES: usize = 4096;

/// A folder of models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    root: PathBuf,
}

/// A model with at least one valid version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFolder {
    /// Its name, which is that of its folder.
    pub name: String,
    /// Its versions by number.
    pub versions: BTreeMap<u64, Version>,
    /// `NAME/parm.toml`, if there is one.
    pub bundle: Option<PathBuf>,
    /// Versions that exist but cannot be read, and why. They are not removed: a loaded one stays.
    pub unreadable: BTreeMap<u64, Error>,
}

/// One version of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The model file.
    pub path: PathBuf,
    /// The version's files, including external data.
    stamp: Vec<Stamp>,
}

/// The properties of a file that are cheap to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    name: String,
    bytes: u64,
    modified: Option<SystemTime>,
    /// Device and inode: builds that can be repeated give every file the same time, and a link may move between them.
    place: (u64, u64),
}

/// The outcome of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Models by name.
    pub models: BTreeMap<String, ModelFolder>,
    /// Errors, by the name of their model.
    pub problems: Vec<(String, Error)>,
    /// Models whose folders exist but cannot be read, and such versions, by model and number. Their errors are among the
    /// problems.
    pub unreadable: BTreeMap<(String, Option<u64>), Error>,
    /// ONNX files next to the models' folders, which are not served.
    pub loose: Vec<PathBuf>,
}

impl Repository {
    /// The repository at `root`, which must be a folder.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, Error> {
        let root = root.into();
        if root.is_file() {
            let cure = match is_onnx(&root) {
                true => shelve(&root, Path::new("models")) + ", and name the folder models",
                false => "name a folder with NAME/VERSION/model.onnx".into(),
            };
            return Err(Error::Read { path: root, message: format!("it is a file: {cure}") });
        }
        fs::read_dir(&root).map_err(|error| unreadable(&root, &error))?;
        Ok(Self { root })
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Scans all models of the repository. Ignores hidden entries and files that are not in a model's folder.
    pub fn scan(&self) -> Result<Scan, Error> {
        let mut scan = Scan::default();
        let (folders, files): (Vec<_>, Vec<_>) =
            entries(&self.root)?.into_iter().partition(|(_, path)| path.is_dir());
        for (name, path) in files {
            if is_onnx(&path) {
                scan.loose.push(path);
            } else if let Some(error) = hidden(&path).filter(|_| check_name(&name).is_ok()) {
                scan.hide(name, error);
            }
        }
        for (name, path) in folders {
            match check_name(&name).and_then(|()| read_model(&name, &path)) {
                Ok((model, problems)) => {
                    for (&number, error) in &model.unreadable {
                        scan.unreadable.insert((name.clone(), Some(number)), error.clone());
                    }
                    scan.problems.extend(problems.into_iter().map(|problem| (name.clone(), problem)));
                    if !model.versions.is_empty() {
                        scan.models.insert(name, model);
                    }
                }
                Err(error @ Error::Read { .. }) => scan.hide(name, error),
                Err(error) => scan.problems.push((name, error)),
            }
        }
        Ok(scan)
    }

    /// What to do about a folder in which a scan found neither a model nor a problem.
    pub fn vacancy(&self, scan: &Scan) -> Option<String> {
        if !scan.models.is_empty() || !scan.problems.is_empty() {
            return None;
        }
        let root = self.root.display();
        Some(match scan.loose.first() {
            None => format!("'{root}' has no models: put one at {root}/NAME/1/model.onnx"),
            Some(file) => format!("'{root}' has no models: {}", shelve(file, &self.root)),
        })
    }

    /// What to do about ONNX files next to the models' folders; `None` without any.
    pub fn loose_files(&self, scan: &Scan) -> Option<String> {
        let first = scan.loose.first()?;
        let more = match scan.loose.len() - 1 {
            0 => "is".to_owned(),
            more => format!("and {more} more are"),
        };
        let (file, cure) = (first.display(), shelve(first, &self.root));
        Some(format!("{file} {more} not in a model's folder, so not served: {cure}"))
    }

    /// Scans one model. The name may come from a client.
    pub fn model(&self, name: &str) -> Result<ModelFolder, Error> {
        check_name(name)?;
        let path = self.root.join(name);
        if !path.is_dir() {
            return Err(Error::UnknownModel { name: name.into(), root: self.root.clone() });
        }
        let (model, problems) = read_model(name, &path)?;
        match problems.into_iter().next() {
            Some(problem) if model.versions.is_empty() => Err(problem),
            _ => Ok(model),
        }
    }
}

impl Scan {
    /// Adds a model that cannot be read.
    fn hide(&mut self, name: String, error: Error) {
        self.unreadable.insert((name.clone(), None), error.clone());
        self.problems.push((name, error));
    }
}

/// Why an entry that exists cannot be read: it is a dangling link, or its folder denies access.
fn hidden(path: &Path) -> Option<Error> {
    let error = fs::metadata(path).err()?;
    let exists = path.is_symlink() || error.kind() != std::io::ErrorKind::NotFound;
    exists.then(|| unreadable(path, &error))
}

fn is_onnx(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "onnx")
}

/// The file of a tokenizer, next to that of its model.
pub const TOKENIZER: &str = "tokenizer.json";

/// The pooling of a sentence encoder, relative to its folder.
pub const POOLING: &str = "1_Pooling/config.json";

/// The commands that put a loose file into a repository.
fn shelve(file: &Path, root: &Path) -> String {
    let (name, root) = (file.file_stem().unwrap_or_default().to_string_lossy(), root.display());
    format!(
        "mkdir -p {root}/{name}/1 && cp {} {root}/{name}/1/model.onnx (with its external data, if any)",
        file.display()
    )
}

impl ModelFolder {
    /// The newest version.
    pub fn latest(&self) -> Option<(u64, &Version)> {
        self.versions.last_key_value().map(|(&number, version)| (number, version))
    }
}

impl Version {
    /// Whether it is served with texts as its input, because its tokenizer is next to it.
    pub fn takes_texts(&self) -> bool {
        self.path.with_file_name(TOKENIZER).is_file()
    }

    /// SHA-256 of the model, with its external data, in lower-case hexadecimal, as in a bundle's manifest.
    pub fn digest(&self) -> Result<String, Error> {
        digest(&self.path)
    }

    /// SHA-256 over all files of the version: differs if any file of the model differs.
    fn content(&self) -> Result<String, Error> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let mut hash = Sha256::new();
        for Stamp { name, .. } in &self.stamp {
            hash.update((name.len() as u64).to_le_bytes());
            hash.update(name);
            hash_file(&folder.join(name), &mut hash)?;
        }
        Ok(hex(&hash.finalize()))
    }
}

/// A model and its problems: at least one if it has no version.
fn read_model(name: &str, path: &Path) -> Result<(ModelFolder, Vec<Error>), Error> {
    let bundle = Some(path.join("parm.toml")).filter(|path| path.is_file());
    let (versions, unreadable) = (BTreeMap::new(), BTreeMap::new());
    let mut model = ModelFolder { name: name.into(), versions, bundle, unreadable };
    let mut problems = Vec::new();
    for (folder, path) in entries(path)? {
        let number = version_number(&folder, &path);
        match fs::metadata(&path) {
            Ok(metadata) if !metadata.is_dir() => continue,
            // A dangling link in a version's place is a version that cannot be read.
            Err(_) if number.is_err() || hidden(&path).is_none() => continue,
            _ => {}
        }
        match number.map(|number| (number, read_version(&path))) {
            Ok((number, Ok(version))) => drop(model.versions.insert(number, version)),
            Ok((number, Err(error))) => {
                if hides_a_version(&error) {
                    model.unreadable.insert(number, error.clone());
                }
                problems.push(error);
            }
            Err(error) => problems.push(error),
        }
    }
    if model.versions.is_empty() && problems.is_empty() {
        problems.push(Error::NoVersion { name: name.into() });
    }
    Ok((model, problems))
}

/// Whether the version exists nevertheless: a folder without a model's file is none.
fn hides_a_version(error: &Error) -> bool {
    matches!(error, Error::Read { .. } | Error::TooManyFiles { .. })
}

/// `01` would be a second spelling of `1`, so only `1` is accepted.
fn version_number(folder: &str, path: &Path) -> Result<u64, Error> {
    let number = folder.parse().ok().filter(|&number: &u64| number > 0 && number.to_string() == folder);
    number.ok_or_else(|| Error::VersionNumber { path: path.into() })
}

fn read_version(folder: &Path) -> Result<Version, Error> {
    let stamp = stamp(folder)?;
    let path = folder.join("model.onnx");
    if stamp.iter().any(|found| found.name == "model.onnx") {
        Ok(Version { path, stamp })
    } else if path.is_dir() {
        Err(Error::ModelFolder { path })
    } else {
        Err(Error::NoModelFile { path: folder.into() })
    }
}

fn stamp(folder: &Path) -> Result<Vec<Stamp>, Error> {
    let mut files = Vec::new();
    let pooling = (POOLING.to_owned(), folder.join(POOLING));
    let pooling = Some(pooling).filter(|(_, path)| path.is_file());
    let entries = entries(folder)?;
    let nested = nested(folder, &entries)?;
    for (name, path) in entries.into_iter().chain(pooling).chain(nested) {
        let metadata = fs::metadata(&path).map_err(|error| unreadable(&path, &error))?;
        if !metadata.is_file() {
            continue;
        }
        if files.len() == MAX_FILES {
            return Err(Error::TooManyFiles { path: folder.into(), limit: MAX_FILES });
        }
        let (bytes, modified) = (metadata.len(), metadata.modified().ok());
        files.push(Stamp { name, bytes, modified, place: (metadata.dev(), metadata.ino()) });
    }
    Ok(files)
}

/// External files in folders within that of the version. Reads the graph only if there are such folders.
fn nested(folder: &Path, entries: &[(String, PathBuf)]) -> Result<Vec<(String, PathBuf)>, Error> {
    let model = folder.join("model.onnx");
    let is_folder =
        |(name, path): &(String, PathBuf)| !POOLING.starts_with(&format!("{name}/")) && path.is_dir();
    if !entries.iter().any(is_folder) || !model.is_file() {
        return Ok(Vec::new());
    }
    let found = locations(&model).map_err(|error| unreadable(&model, &error))?.into_iter();
    let found = found.filter(|location| is_inside(location) && location.contains('/'));
    let found = found.map(|location| (folder.join(&location), location)).filter(|(path, _)| path.is_file());
    Ok(found.map(|(path, location)| (location, path)).collect())
}

/// Visible entries sorted by name, so that every scan of the same files returns the same result.
fn entries(path: &Path) -> Result<Vec<(String, PathBuf)>, Error> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(path).map_err(|error| unreadable(path, &error))? {
        let entry = entry.map_err(|error| unreadable(path, &error))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') {
            entries.push((name, entry.path()));
        }
    }
    entries.sort();
    Ok(entries)
}

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

fn hash_file(path: &Path, hash: &mut Sha256) -> Result<(), Error> {
    let mut file = fs::File::open(path).map_err(|error| unreadable(path, &error))?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer).map_err(|error| unreadable(path, &error))? {
            0 => return Ok(()),
            count => hash.update(&buffer[..count]),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    Error::Read { path: path.into(), message: error.to_string() }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::onnx::proto::{
        AttributeProto, GraphProto, ModelProto, NodeProto, StringStringEntryProto, TensorProto,
    };

    fn write(root: &Path, file: &str, content: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    #[test]
    fn models_versions_and_bundles_are_found() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "a/1/model.onnx", "one");
        write(root.path(), "a/10/model.onnx", "ten");
        write(root.path(), "a/parm.toml", "");
        write(root.path(), "b/2/model.onnx", "");
        write(root.path(), "README.md", "not a model");
        let repository = Repository::open(root.path()).unwrap();
        let scan = repository.scan().unwrap();
        assert_eq!((&scan.problems, repository.loose_files(&scan)), (&vec![], None));
        let a = &scan.models["a"];
        assert_eq!(a.latest().unwrap().0, 10);
        assert_eq!(a.bundle, Some(root.path().join("a/parm.toml")));
        let one = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";
        assert_eq!(a.versions[&1].digest().unwrap(), one);
        assert_eq!(scan.models["b"].bundle, None);
    }

    #[test]
    fn invalid_models_are_reported_and_hide_no_others() {
        let root = tempfile::tempdir().unwrap();
        let path = |file: &str| root.path().join(file);
        write(root.path(), "good/1/model.onnx", "");
        write(root.path(), "good/latest/model.onnx", "");
        write(root.path(), "good/02/model.onnx", "");
        write(root.path(), "empty/1/readme", "");
        write(root.path(), "folder/1/model.onnx/model.onnx", "");
        write(root.path(), "sp ace/1/model.onnx", "");
        let repository = Repository::open(root.path()).unwrap();
        let scan = repository.scan().unwrap();
        assert_eq!(scan.models.keys().collect::<Vec<_>>(), ["good"]);
        for (name, error) in [
            ("good", Error::VersionNumber { path: path("good/latest") }),
            ("good", Error::VersionNumber { path: path("good/02") }),
            ("empty", Error::NoModelFile { path: path("empty/1") }),
            ("folder", Error::ModelFolder { path: path("folder/1/model.onnx") }),
            ("sp ace", Error::ModelName { name: "sp ace".into() }),
        ] {
            assert!(scan.problems.contains(&(name.into(), error.clone())), "{error} in {:?}", scan.problems);
        }
        let empty = scan.problems.iter().filter(|(name, _)| name == "empty").count();
        assert_eq!(empty, 1, "one fault is one problem");
        assert_eq!(repository.model("empty"), Err(Error::NoModelFile { path: path("empty/1") }));
    }

    #[test]
    fn loose_onnx_files_are_named_with_the_cure() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "a/1/model.onnx", "one");
        write(root.path(), "b.onnx", "not served");
        let repository = Repository::open(root.path()).unwrap();
        let said = |scan: &Scan| repository.loose_files(scan).unwrap();
        let at = root.path().display();
        let scan = repository.scan().unwrap();
        let cure = format!("mkdir -p {at}/b/1 && cp {at}/b.onnx {at}/b/1/model.onnx");
        let one = format!("{at}/b.onnx is not in a model's folder, so not served: {cure}");
        assert!(said(&scan).starts_with(&one), "{}", said(&scan));
        assert_eq!(
            (scan.models.len(), &scan.problems),
            (1, &vec![]),
            "it hides no model and is not a problem"
        );
        write(root.path(), "c.onnx", "not served");
        let scan = repository.scan().unwrap();
        assert!(said(&scan).contains("b.onnx and 1 more are not in"), "{}", said(&scan));
    }

    #[test]
    fn names_cannot_leave_the_root() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "inside/m/1/model.onnx", "");
        write(root.path(), "outside/1/model.onnx", "");
        let repository = Repository::open(root.path().join("inside")).unwrap();
        assert!(repository.model("m").is_ok());
        let traversal = "../outside".to_string();
        assert_eq!(repository.model(&traversal), Err(Error::ModelName { name: traversal }));
        let (name, inside) = ("n".to_string(), root.path().join("inside"));
        assert_eq!(repository.model("n"), Err(Error::UnknownModel { name, root: inside }));
    }

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
        assert_ne!(version(), before);
    }

    #[test]
    fn only_plain_names_are_accepted() {
        for name in ["magika", "resnet-18_v2.1", "A"] {
            assert_eq!(check_name(name), Ok(()));
        }
        for name in ["", ".", "..", "../etc", "a/b", "a\\b", ".hidden", "a\0", "ü", &"x".repeat(256)] {
            assert_eq!(check_name(name), Err(Error::ModelName { name: name.into() }));
        }
    }
}
