//! Library of bundles by deployed model, reread when their files change.
//!
//! Bundles are polled as models are, because network mounts report no changes. They are reread once two looks in a row
//! saw the same new state, so that a partial copy is not read. An unreadable manifest changes nothing; codes whose
//! models have other digests than the manifest states are disabled.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::RwLock;
use parm_encoder::{Code, Kind, Learned};
use parm_parity_models::bundle::{Manifest, ModelFile, Parity, StandIn};
use parm_parity_models::repository::Repository;

use super::LoadNets;

/// Name of a bundle's manifest.
const MANIFEST: &str = "parm.toml";
/// Maximum bundles: a folder with more is probably another kind of folder.
const MOST: usize = 4096;

/// A bundle's contents.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bundle {
    pub(crate) manifest: Manifest,
    /// Codes whose files match.
    pub(crate) entries: Vec<TrainedCode>,
    /// Stand-ins whose files match, the cheapest first.
    pub(crate) stand_ins: Vec<StandIn>,
}

/// One code of a bundle.
#[derive(Clone, Debug)]
pub(crate) struct TrainedCode {
    pub(crate) parity: Parity,
    pub(crate) code: Arc<dyn Code>,
}

impl PartialEq for TrainedCode {
    fn eq(&self, other: &Self) -> bool {
        self.parity == other.parity
    }
}

/// All bundles.
#[derive(Default)]
pub(crate) struct Library {
    path: Option<PathBuf>,
    nets: Option<Arc<dyn LoadNets>>,
    bundles: RwLock<BTreeMap<String, Arc<Bundle>>>,
}

/// Names, sizes and times of all files of bundles.
pub(crate) type Stamp = BTreeMap<PathBuf, Option<(u64, Option<SystemTime>)>>;

impl Library {
    /// Opens a repository's bundles or a single manifest; learned codes need `nets` to run their nets.
    pub(crate) fn open(path: Option<PathBuf>, nets: Option<Arc<dyn LoadNets>>) -> Self {
        let library = Self { path, nets, bundles: RwLock::default() };
        library.read();
        library
    }

    /// Whether bundles are configured.
    pub(crate) fn exists(&self) -> bool {
        self.path.is_some()
    }

    /// Whether no bundle was found.
    pub(crate) fn is_empty(&self) -> bool {
        self.bundles.read().is_empty()
    }

    /// Whether any bundle has a stand-in.
    pub(crate) fn has_stand_ins(&self) -> bool {
        self.bundles.read().values().any(|bundle| !bundle.stand_ins.is_empty())
    }

    /// The bundle of a model's version; a server without versions has the expected one.
    pub(crate) fn bundle(&self, model: &str, version: &str) -> Option<Arc<Bundle>> {
        let bundles = self.bundles.read();
        let bundle = bundles.get(model)?;
        let meant = version.is_empty() || version == bundle.manifest.deployed.version.to_string();
        meant.then(|| bundle.clone())
    }

    /// Describes the role of a model in another model's bundle.
    pub(crate) fn part_of(&self, model: &str) -> Option<String> {
        let bundles = self.bundles.read();
        bundles.iter().find_map(|(deployed, bundle)| {
            let Manifest { parities, stand_ins, .. } = &bundle.manifest;
            if parities.iter().flat_map(Parity::files).any(|file| file.name == model) {
                return Some(format!("parity model of '{deployed}'"));
            }
            let stands_in = stand_ins.iter().any(|stand_in| stand_in.model.name == model);
            stands_in.then(|| format!("stand-in of '{deployed}'"))
        })
    }

    /// Rereads all bundles; unreadable ones stay as they were. Returns whether anything changed.
    pub(crate) fn read(&self) -> bool {
        let mut next = BTreeMap::new();
        for (name, path) in self.manifests() {
            match self.bundle_at(&name, &path) {
                Ok(bundle) => drop(next.insert(name, Arc::new(bundle))),
                Err(problem) => {
                    tracing::warn!(code = %parm_protocol::StableCode::InvalidBundle, model = %name, %problem, "cannot read a bundle");
                    if let Some(known) = self.bundles.read().get(&name) {
                        next.insert(name, known.clone());
                    }
                }
            }
        }
        let mut bundles = self.bundles.write();
        let changed = *bundles != next;
        *bundles = next;
        changed
    }

    /// Present state of all files of bundles.
    pub(crate) fn stamp(&self) -> Stamp {
        let mut stamp = Stamp::new();
        let of = |path: &Path| fs::metadata(path).ok().map(|file| (file.len(), file.modified().ok()));
        for (name, path) in self.manifests() {
            let root = path.parent().and_then(Path::parent).unwrap_or(Path::new("."));
            if let Some(bundle) = self.bundles.read().get(&name) {
                let deployed = &bundle.manifest.deployed;
                let own = [(name.as_str(), deployed.version)];
                let others = files(&bundle.manifest);
                for (model, version) in own.into_iter().chain(others.map(|file| (&*file.name, file.version)))
                {
                    let folder = root.join(model).join(version.to_string());
                    let file = folder.join("model.onnx");
                    stamp.insert(file.clone(), of(&file));
                    // The digest of a model covers its external data.
                    for file in fs::read_dir(&folder).into_iter().flatten().flatten() {
                        stamp.insert(file.path(), of(&file.path()));
                    }
                }
            }
            let state = of(&path);
            stamp.insert(path, state);
        }
        stamp
    }

    /// Reads a manifest and checks the files next to it. Other files are at the workers; their tensors are checked when
    /// an instance joins.
    fn bundle_at(&self, name: &str, path: &Path) -> Result<Bundle, String> {
        let manifest = Manifest::read(path).map_err(|error| error.to_string())?;
        let root = path.parent().and_then(Path::parent);
        let repository = root.and_then(|root| Repository::open(root).ok());
        let deployed = &manifest.deployed;
        let own = ModelFile { name: name.into(), version: deployed.version, sha256: deployed.sha256.clone() };
        let mut problems: Vec<String> = manifest.check().iter().map(ToString::to_string).collect();
        problems.extend(repository.as_ref().and_then(|repository| other_file(repository, &own)));
        problems
            .iter()
            .for_each(|problem| tracing::warn!(code = %parm_protocol::StableCode::InvalidBundle, model = name, %problem, "bundle does not match its models"));
        let mut entries = Vec::new();
        for parity in manifest.parities.iter().filter(|_| problems.is_empty()) {
            let mut found: Vec<String> = parity.check().iter().map(ToString::to_string).collect();
            let files = parity.files();
            found.extend(files.filter_map(|file| other_file(repository.as_ref()?, file)));
            let code = if found.is_empty() { self.code(parity, root) } else { Err(found.join("; ")) };
            match code {
                Ok(code) => entries.push(TrainedCode { parity: parity.clone(), code }),
                Err(problem) => {
                    let (kind, k) = (parity.code.kind, parity.code.k);
                    tracing::warn!(code = %parm_protocol::StableCode::InvalidBundle, model = name, %kind, k, %problem, "code disabled");
                }
            }
        }
        let stand_ins =
            if problems.is_empty() { usable(&manifest, name, repository.as_ref()) } else { Vec::new() };
        Ok(Bundle { manifest, entries, stand_ins })
    }

    /// Builds the code of an entry; a learned one loads its two nets.
    fn code(&self, parity: &Parity, root: Option<&Path>) -> Result<Arc<dyn Code>, String> {
        let Some(learned) = parity.learned.as_ref().filter(|_| parity.code.kind.runs_nets()) else {
            return parity.code.build().map(Arc::from).map_err(|error| error.to_string());
        };
        let nets = self
            .nets
            .as_ref()
            .ok_or("learned codes are not supported: this frontend has no engine for their nets")?;
        let root = root.unwrap_or(Path::new("."));
        let nets = nets.load(&file(root, &learned.encoder), &file(root, &learned.decoder))?;
        let code = Learned::new(&parity.code, nets).map_err(|error| error.to_string())?;
        Ok(Arc::new(code))
    }

    /// Manifests by model.
    fn manifests(&self) -> Vec<(String, PathBuf)> {
        let Some(path) = &self.path else { return Vec::new() };
        let named = |folder: &Path| Some((folder.file_name()?.to_str()?.to_owned(), folder.join(MANIFEST)));
        if path.is_file() {
            let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
            let name = folder.as_deref().and_then(named).map(|(name, _)| name);
            return name.map(|name| (name, path.clone())).into_iter().collect();
        }
        let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
        let folders = entries.flatten().filter_map(|entry| named(&entry.path()));
        let mut found: Vec<_> = folders.filter(|(_, path)| path.is_file()).take(MOST).collect();
        found.sort();
        found
    }
}

impl Bundle {
    /// The most accurate entry for k and r.
    pub(crate) fn best(&self, k: usize, r: usize) -> Option<&TrainedCode> {
        let fitting =
            self.entries.iter().filter(|entry| entry.parity.code.k == k && entry.parity.code.r == r);
        fitting.max_by(|a, b| degraded(a).total_cmp(&degraded(b)))
    }

    /// Entries of a kind with r parities, the most accurate first.
    pub(crate) fn of(&self, kind: Kind, r: usize) -> Vec<&TrainedCode> {
        let mut found: Vec<_> = self
            .entries
            .iter()
            .filter(|entry| entry.parity.code.kind == kind && entry.parity.code.r == r)
            .collect();
        found.sort_by(|a, b| degraded(b).total_cmp(&degraded(a)));
        found
    }
}

fn degraded(entry: &TrainedCode) -> f64 {
    entry.parity.accuracy.as_ref().map_or(0.0, |accuracy| accuracy.degraded)
}

/// Models of a bundle other than the deployed one: parities, learned nets, stand-ins.
fn files(manifest: &Manifest) -> impl Iterator<Item = &ModelFile> {
    let stand_ins = manifest.stand_ins.iter().map(|stand_in| &stand_in.model);
    manifest.parities.iter().flat_map(Parity::files).chain(stand_ins)
}

/// Stand-ins that match the manifest, the cheapest first.
fn usable(manifest: &Manifest, name: &str, repository: Option<&Repository>) -> Vec<StandIn> {
    let is_usable = |stand_in: &&StandIn| {
        let mut found: Vec<String> = stand_in.check().iter().map(ToString::to_string).collect();
        found.extend(repository.and_then(|repository| other_file(repository, &stand_in.model)));
        let stands_in = &stand_in.model.name;
        found.iter().for_each(
            |problem| tracing::warn!(code = %parm_protocol::StableCode::InvalidBundle, model = name, stand_in = %stands_in, %problem, "stand-in disabled"),
        );
        found.is_empty()
    };
    let mut usable: Vec<StandIn> = manifest.stand_ins.iter().filter(is_usable).cloned().collect();
    let cost = |stand_in: &StandIn| stand_in.cost().unwrap_or(f64::INFINITY);
    usable.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
    usable
}

/// Path of a model in a repository.
fn file(root: &Path, file: &ModelFile) -> PathBuf {
    root.join(&file.name).join(file.version.to_string()).join("model.onnx")
}

/// Why a model's file is not the expected one, if it exists.
fn other_file(repository: &Repository, file: &ModelFile) -> Option<String> {
    let model = repository.model(&file.name).ok()?;
    let digest = model.versions.get(&file.version)?.digest().map_err(|error| error.to_string());
    match digest {
        Ok(actual) if actual.eq_ignore_ascii_case(&file.sha256) => None,
        Ok(actual) => Some(format!(
            "model '{}' version {} has sha256 {actual}, the manifest has {}: restore the file or train again",
            file.name, file.version, file.sha256
        )),
        Err(error) => Some(error),
    }
}
