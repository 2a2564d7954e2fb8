//! The files that ONNX Runtime needs to run on a card, found before anything is opened.
//!
//! The loader stops at the first missing library, after seconds, with a message that does not name its package. So all
//! files are looked for first: the library itself, its providers next to it, the libraries that those need, and the
//! driver. Opening them comes last.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::card::{Card, Cards};
use super::needed::needed;
use super::package::{RUNTIME, generation, is_of_nvidia, opened_later, package};

const PROVIDERS: [&str; 2] = ["libonnxruntime_providers_shared.so", "libonnxruntime_providers_cuda.so"];
const DRIVER: &str = "libcuda.so.1";

/// The version of CUDA that is assumed if the provider does not show it.
const USUAL_GENERATION: u32 = 13;

/// The most libraries that are followed; CUDA has about twenty.
const MOST_LIBRARIES: usize = 128;

/// The places where files are looked for.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// Files of ONNX Runtime, in order of preference.
    pub(crate) runtimes: Vec<PathBuf>,
    /// Folders of the system's libraries, and of the driver's.
    pub(crate) system: Vec<PathBuf>,
    pub(crate) cards: Cards,
}

/// All files that a device needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kit {
    /// ONNX Runtime.
    pub runtime: PathBuf,
    /// Libraries to open before it, each after those that it needs.
    pub libraries: Vec<PathBuf>,
    /// The card.
    pub card: Card,
    /// Missing files that only some models need.
    pub optional: Vec<Lacking>,
}

/// A missing file, or another missing part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lacking {
    /// Its name.
    pub part: String,
    /// The way to get it.
    pub cure: Cure,
}

/// The way to get a missing file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cure {
    /// A PyPI package.
    Package(String),
    /// Something to do.
    Action(String),
}

struct Search<'a> {
    folders: Vec<PathBuf>,
    system: &'a [PathBuf],
    generation: u32,
    seen: BTreeSet<String>,
    found: Vec<PathBuf>,
    lacking: Vec<Lacking>,
}

/// Finds the files for a device. The error lists all that are missing.
pub(crate) fn find(device: usize, places: &Places) -> Result<Kit, Vec<Lacking>> {
    let folder = |runtime: &Path| runtime.parent().map(Path::to_owned).unwrap_or_default();
    let is_complete = |runtime: &&PathBuf| folder(runtime).join(PROVIDERS[1]).is_file();
    let runtimes = &places.runtimes;
    let runtime = runtimes.iter().find(is_complete).or_else(|| runtimes.first());
    let home = runtime.map(|runtime| folder(runtime)).unwrap_or_default();
    let mut search = Search::new(&home, places);
    if runtime.is_none() {
        search.miss("libonnxruntime.so", Cure::Package(RUNTIME.into()));
    }
    for provider in PROVIDERS {
        if runtime.is_none() || !home.join(provider).is_file() {
            search.miss(provider, Cure::Package(RUNTIME.into()));
        }
    }
    let provider = home.join(PROVIDERS[1]);
    let mut optional = Vec::new();
    if runtime.is_some() && provider.is_file() {
        optional = search.follow_provider(&provider);
    }
    search.follow(DRIVER);
    let card = places.cards.find(device);
    if let Card::Missing(reason) = &card {
        let action = format!("{reason}: choose another device, or set CUDA_VISIBLE_DEVICES");
        search.miss(&format!("card {device}"), Cure::Action(action));
    }
    match runtime {
        Some(runtime) if search.lacking.is_empty() => {
            Ok(Kit { runtime: runtime.clone(), libraries: search.found, card, optional })
        }
        _ => Err(search.lacking),
    }
}

impl<'a> Search<'a> {
    fn new(home: &Path, places: &'a Places) -> Self {
        Self {
            folders: packaged(home),
            system: &places.system,
            generation: USUAL_GENERATION,
            seen: BTreeSet::new(),
            found: Vec::new(),
            lacking: Vec::new(),
        }
    }

    /// Finds the libraries of the provider for CUDA; returns missing ones that it opens later, if a model needs them.
    fn follow_provider(&mut self, provider: &Path) -> Vec<Lacking> {
        let needs = match needed(provider) {
            Ok(needs) => needs,
            Err(error) => {
                let action = format!("{error}: reinstall {RUNTIME}");
                self.miss(&provider.display().to_string(), Cure::Action(action));
                return Vec::new();
            }
        };
        self.generation = generation(&needs).unwrap_or(USUAL_GENERATION);
        self.prefer_own_generation();
        for name in needs.iter().filter(|name| is_of_nvidia(name)) {
            self.follow(name);
        }
        let [cudnn, others @ ..] = opened_later(self.generation);
        // Most networks have a convolution, so a card without cuDNN is of little use.
        self.follow(&cudnn);
        let before = self.lacking.len();
        others.iter().for_each(|name| self.follow(name));
        self.lacking.split_off(before)
    }

    /// A machine may have the packages of several versions of CUDA, and some libraries have the same name in both.
    fn prefer_own_generation(&mut self) {
        let own = format!("cu{}", self.generation);
        let rank = |folder: &PathBuf| {
            let package = folder.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
            let other = package.strip_prefix("cu").is_some_and(|rest| rest.parse::<u32>().is_ok());
            if package == *own { 0 } else { 1 + u8::from(other) }
        };
        self.folders.sort_by_key(rank);
    }

    /// Finds a library and the libraries that it needs. Those come first.
    fn follow(&mut self, name: &str) {
        if self.seen.len() >= MOST_LIBRARIES || !self.seen.insert(name.into()) {
            return;
        }
        let folders = self.folders.iter().chain(self.system);
        let Some(path) = folders.map(|folder| folder.join(name)).find(|path| path.is_file()) else {
            let cure = self.cure(name);
            return self.miss(name, cure);
        };
        // A file that is not a library is reported when it is opened.
        let needs = needed(&path).unwrap_or_default();
        for name in needs.iter().filter(|name| is_of_nvidia(name)) {
            self.follow(name);
        }
        self.found.push(path);
    }

    fn cure(&self, name: &str) -> Cure {
        if name.starts_with("libcuda.so") || name.starts_with("libnvidia-") {
            return Cure::Action("install NVIDIA's driver, or give the container its card".into());
        }
        let unknown = || Cure::Action("install it with CUDA, and add its folder to LD_LIBRARY_PATH".into());
        package(name, self.generation).map_or_else(unknown, Cure::Package)
    }

    fn miss(&mut self, part: &str, cure: Cure) {
        self.lacking.push(Lacking { part: part.into(), cure });
    }
}

/// The folders of libraries in the Python environment of a runtime: its own, and those of NVIDIA's packages.
fn packaged(home: &Path) -> Vec<PathBuf> {
    let site = home.parent().and_then(Path::parent);
    let packages = site.map(|site| super::entries(&site.join("nvidia"))).unwrap_or_default();
    [home.to_owned()].into_iter().chain(packages.into_iter().map(|package| package.join("lib"))).collect()
}

/// Missing parts in words: the packages in one command.
pub(crate) fn told(lacking: &[Lacking]) -> String {
    let mut packages: Vec<&str> = Vec::new();
    let mut brought: Vec<&str> = Vec::new();
    let mut rest = Vec::new();
    for Lacking { part, cure } in lacking {
        match cure {
            Cure::Package(package) => {
                brought.push(part);
                if !packages.contains(&package.as_str()) {
                    packages.push(package);
                }
            }
            Cure::Action(action) => rest.push(format!("missing {part}: {action}")),
        }
    }
    let install = (!packages.is_empty())
        .then(|| format!("missing {}: pip install {}", brought.join(", "), packages.join(" ")));
    install.into_iter().chain(rest).collect::<Vec<_>>().join("; ")
}
