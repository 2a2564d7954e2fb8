//! Keeps the served models in step with the repository: at start, by request, and when files change.
//!
//! Loading and unloading by request runs off the runtime's threads, and once for all concurrent requests. Embedded instances
//! share one host, so a frontend that loads a model on each of its instances sends as many requests as there are instances.
//! A request is already fulfilled if another load began after it was received and has ended: the files were read after the
//! request. A load that began earlier may have read older files, and does not count.
//!
//! Requests wait for their turn without a thread: behind a load that never ends they would otherwise use up the runtime's
//! threads for blocking work, which decompress bodies and read files too.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use parm_parity_models::repository::{Change, Watch};
use parm_protocol::{Error as Refusal, ModelIndex};

use super::load::Source;
use super::{Host, Loaded};
use crate::engine::guarded;
use crate::{Error, VersionPolicy};

/// The time for which the loader waits for requests on a replaced version before freeing it. After that the last of
/// these requests frees it.
const RETIRE: Duration = Duration::from_secs(10);

/// The changes of one model.
#[derive(Default)]
struct News {
    /// Versions whose content has changed.
    stale: BTreeSet<u64>,
    /// Versions that two successive polls missed.
    gone: BTreeSet<u64>,
}

impl Host {
    /// Loads the configured models. A model that cannot be loaded is reported in the index and hides no other; an
    /// unreadable repository is an error.
    pub(crate) fn load_all(&self) -> Result<(), Error> {
        let mut names: BTreeSet<String> = self.config.emulated.keys().cloned().collect();
        if let Some(repository) = &self.repository {
            let scan = repository.scan()?;
            for (name, error) in &scan.problems {
                tracing::warn!(code = %parm_protocol::StableCode::InvalidRepository, name, %error, "invalid entry in the repository: ignored");
            }
            if let Some(cure) = repository.vacancy(&scan) {
                tracing::warn!(code = %parm_protocol::StableCode::NoModels, "no model to serve: {cure}");
            } else if let Some(cure) = repository.loose_files(&scan) {
                tracing::warn!(code = %parm_protocol::StableCode::InvalidRepository, "ignored: {cure}");
            }
            let unnamed = |name: &String| self.config.load.is_empty() && !scan.models.contains_key(name);
            for (name, error) in scan.problems.iter().filter(|(name, _)| unnamed(name)) {
                self.ignore(name, error);
            }
            if !self.config.reload.is_zero() {
                // Before anything is loaded: a file that changes meanwhile would keep its old model.
                *self.watch.lock() = Some(Watch::new(repository.clone(), &scan));
            }
            names.extend(scan.models.into_keys());
        }
        if !self.config.load.is_empty() {
            names = self.config.load.iter().cloned().collect();
        }
        for name in names {
            // Errors are in the log and in the index, which has no unknown names.
            if let Err(error) = self.load_now(&name, self.orders.ask())
                && self.catalogue.known(&name).is_empty()
            {
                self.ignore(&name, &error);
            }
        }
        self.started.store(true, Ordering::Release);
        Ok(())
    }

    /// Remembers a name for which the index has no version.
    fn ignore(&self, name: &str, error: &impl std::fmt::Display) {
        let (name, reason) = (name.to_owned(), error.to_string());
        self.ignored.lock().push(ModelIndex { name, reason, ..ModelIndex::default() });
    }

    /// Loads, or reloads, a model by name. Blocks until it is loaded.
    pub(super) fn load_now(&self, name: &str, asked: u64) -> Result<(), Error> {
        self.orders.load(name, asked, || {
            // A request by name always reads the current files.
            let outcome = self.refresh(name, |_| true, |_| true);
            self.metrics.loaded(name, &outcome);
            if let Err(error) = &outcome {
                tracing::error!(code = %parm_protocol::StableCode::ModelNotLoaded, name, %error, "model not loaded");
            }
            outcome
        })
    }

    /// Takes a model out of service. Blocks until nothing runs on it, or until a timeout.
    pub(super) fn unload_now(&self, name: &str) -> Result<(), Error> {
        let _alone = self.orders.alone();
        let known = self.catalogue.known(name);
        if known.is_empty() {
            let root = self.config.models.clone().unwrap_or_default();
            let name = name.to_string();
            return Err(parm_parity_models::Error::UnknownModel { name, root }.into());
        }
        for version in known {
            retire(self.catalogue.unload(name, version, "unloaded by request"));
        }
        tracing::info!(name, "model unloaded");
        Ok(())
    }

    /// Loads the versions that the policy selects and that are missing or `stale`, then unloads all others. A version
    /// that is missing from the repository stays until it is `gone`.
    fn refresh(
        &self,
        name: &str,
        stale: impl Fn(u64) -> bool,
        gone: impl Fn(u64) -> bool,
    ) -> Result<(), Error> {
        let (wanted, superseded) = self.wanted(name)?;
        let mut first_error = Ok(());
        for (&version, source) in &wanted {
            if stale(version) || !self.catalogue.is_ready(name, version) {
                let installed = self.install(name, version, source);
                first_error = first_error.and(installed);
            }
        }
        // Unloads only once the new versions serve: a broken one must not end a working one.
        if first_error.is_ok() {
            let goes = |version: &u64| {
                !wanted.contains_key(version) && (superseded.contains(version) || gone(*version))
            };
            for version in self.catalogue.known(name).into_iter().filter(goes) {
                self.forget(name, version);
            }
        }
        first_error
    }

    /// The versions that the policy selects, and the known ones that it does not.
    fn wanted(&self, name: &str) -> Result<(BTreeMap<u64, Source>, BTreeSet<u64>), Error> {
        if let Some(spec) = self.config.emulated.get(name) {
            return Ok((BTreeMap::from([(1, Source::Emulated(spec.clone()))]), BTreeSet::new()));
        }
        let Some(repository) = &self.repository else {
            let (name, root) = (name.to_string(), PathBuf::new());
            return Err(parm_parity_models::Error::UnknownModel { name, root }.into());
        };
        let model = repository.model(name)?;
        let latest_only = self.config.versions == VersionPolicy::Latest;
        let skipped = if latest_only { model.versions.len().saturating_sub(1) } else { 0 };
        let mut superseded: BTreeSet<u64> = model.versions.keys().take(skipped).copied().collect();
        if latest_only {
            let newest = model.latest().map(|(number, _)| number);
            for (&version, error) in &model.unreadable {
                if Some(version) < newest {
                    superseded.insert(version);
                } else if self.catalogue.is_ready(name, version) {
                    // Its file is not gone, so an older version must not take its place.
                    return Err(error.clone().into());
                }
            }
        }
        let versions = model.versions.into_iter().skip(skipped);
        Ok((versions.map(|(number, version)| (number, Source::File(version))).collect(), superseded))
    }

    /// Takes a version out of the index, whose file is gone or superseded.
    pub(super) fn forget(&self, name: &str, version: u64) {
        retire(self.catalogue.forget(name, version));
        self.metrics.forget(name, version);
    }

    fn install(&self, name: &str, version: u64, source: &Source) -> Result<(), Error> {
        self.catalogue.loading(name, version);
        // A panic, such as of the tokenizer's library, must not end the loading of other models.
        let outcome = guarded(|| self.load(name, version, source)).map(Arc::new);
        let error = outcome.as_ref().err().cloned();
        retire(self.catalogue.put(name, version, outcome));
        error.map_or(Ok(()), Err)
    }

    /// Follows the repository from a separate thread while the host lives.
    pub(crate) fn follow(self: &Arc<Self>) -> Result<(), Error> {
        let Some(mut watch) = self.watch.lock().take() else { return Ok(()) };
        let interval = self.config.reload;
        let host = Arc::downgrade(self);
        let follow = move || {
            while host.strong_count() > 0 {
                std::thread::sleep(interval);
                follow_once(&host, &mut watch);
            }
        };
        let thread = std::thread::Builder::new().name("model-reload".into()).spawn(follow);
        thread.map(drop).map_err(|error| Error::Thread { message: error.to_string() })
    }

    /// Updates the models that changed. A change also loads a model that was unloaded by request: a new file is meant
    /// to be served.
    pub(super) fn apply(&self, changes: &[Change]) {
        let mut news: BTreeMap<&str, News> = BTreeMap::new();
        for change in changes {
            match change {
                Change::Changed(name, version) => news.entry(name).or_default().stale.insert(*version),
                Change::Removed(name, version) => news.entry(name).or_default().gone.insert(*version),
                Change::Added(name, _) => {
                    news.entry(name).or_default();
                    false
                }
            };
        }
        for (name, news) in news {
            let chosen = self.config.load.is_empty() || self.config.load.iter().any(|chosen| chosen == name);
            if chosen || !self.catalogue.known(name).is_empty() {
                self.follow_model(name, &news);
            }
        }
    }

    fn follow_model(&self, name: &str, news: &News) {
        use parm_parity_models::Error as Stored;
        let _alone = self.orders.alone();
        let outcome = self.refresh(
            name,
            |version| news.stale.contains(&version),
            |version| news.gone.contains(&version),
        );
        if let Err(Error::Repository(Stored::UnknownModel { .. } | Stored::NoVersion { .. })) = outcome {
            // A folder that is missing for the first time, in a poll that reports another change, has not been missed
            // twice.
            for version in self.catalogue.known(name).into_iter().filter(|known| news.gone.contains(known)) {
                tracing::info!(name, version, "removed from the repository: unloaded");
                self.forget(name, version);
            }
            return;
        }
        if let Err(error) = &outcome {
            let code = parm_protocol::StableCode::ModelNotLoaded;
            if self.catalogue.known(name).is_empty() {
                tracing::error!(%code, name, %error, "model not loaded");
            } else {
                tracing::error!(%code, name, %error, "model not reloaded: serving the version loaded before");
            }
        }
        self.metrics.loaded(name, &outcome);
    }
}

fn follow_once(host: &Weak<Host>, watch: &mut Watch) {
    let Some(host) = host.upgrade() else {
        return;
    };
    match watch.poll() {
        Ok(poll) => {
            for (name, error) in &poll.unreadable {
                tracing::warn!(code = %parm_protocol::StableCode::InvalidRepository, name, %error, "cannot read a model in the repository: serving what is loaded");
            }
            host.apply(&poll.changes);
        }
        Err(error) => {
            tracing::warn!(code = %parm_protocol::StableCode::InvalidRepository, %error, "cannot poll the repository: serving the loaded models")
        }
    }
}

/// Frees a replaced version on this thread, once its requests are answered: freeing a large model takes milliseconds,
/// which an instance's thread should not spend.
pub(super) fn retire(replaced: Option<Arc<Loaded>>) {
    let Some(replaced) = replaced else {
        return;
    };
    let started = Instant::now();
    while Arc::strong_count(&replaced) > 1 && started.elapsed() < RETIRE {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Allows one load, unload or reload at a time.
pub(super) struct Orders {
    /// Number of loads by request that have begun.
    begun: AtomicU64,
    /// The turn of requests, and the places of those that wait for it.
    turn: Arc<tokio::sync::Mutex<()>>,
    places: tokio::sync::Semaphore,
    /// The last operation, if it was a load by name. Each load, unload and reload holds this lock until it ends.
    last: Mutex<Option<Load>>,
}

/// Most requests that wait.
const MOST: usize = 1024;

impl Default for Orders {
    fn default() -> Self {
        let places = tokio::sync::Semaphore::new(MOST);
        Self { begun: AtomicU64::new(0), turn: Arc::default(), places, last: Mutex::default() }
    }
}

/// A load by request.
pub(super) struct Load {
    number: u64,
    name: String,
    outcome: Result<(), Error>,
}

impl Orders {
    /// The number of loads that began before a request.
    pub(super) fn ask(&self) -> u64 {
        self.begun.load(Ordering::Acquire)
    }

    /// Loads a model, unless a load began and ended since it was requested.
    pub(super) fn load(
        &self,
        name: &str,
        asked: u64,
        load: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut last = self.last.lock();
        if let Some(last) = last.as_ref().filter(|last| last.name == name && last.number > asked) {
            return last.outcome.clone();
        }
        let number = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        let outcome = load();
        *last = Some(Load { number, name: name.into(), outcome: outcome.clone() });
        outcome
    }

    /// Excludes loads until the guard is dropped. The operation under the guard may undo the last load.
    pub(super) fn alone(&self) -> MutexGuard<'_, Option<Load>> {
        let mut last = self.last.lock();
        *last = None;
        last
    }
}

impl Host {
    /// Loads, or reloads, a model by name.
    pub(crate) async fn load_model(self: &Arc<Self>, name: &str) -> Result<(), Refusal> {
        let (host, name, asked) = (self.clone(), name.to_owned(), self.orders.ask());
        self.off_the_runtime(move || host.load_now(&name, asked)).await
    }

    /// Takes a model out of service.
    pub(crate) async fn unload_model(self: &Arc<Self>, name: &str) -> Result<(), Refusal> {
        let (host, name) = (self.clone(), name.to_owned());
        self.off_the_runtime(move || host.unload_now(&name)).await
    }

    /// Loading blocks for seconds, which the runtime's threads must not.
    async fn off_the_runtime(
        &self,
        work: impl FnOnce() -> Result<(), Error> + Send + 'static,
    ) -> Result<(), Refusal> {
        let full = |_| Refusal::Overloaded {
            message: format!("{MOST} loads and unloads wait: check the log for a model that hangs"),
            retry_after: Duration::from_secs(10),
        };
        let place = self.orders.places.try_acquire().map_err(full)?;
        let turn = self.orders.turn.clone().lock_owned().await;
        drop(place);
        let outcome = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work()
        });
        let lost = |error: tokio::task::JoinError| Refusal::Internal { message: error.to_string() };
        outcome.await.map_err(lost)?.map_err(Refusal::from)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;

    use parm_parity_models::onnx::{Builder, Tensor as Weights, Value};
    use parm_protocol::ModelRef;
    use prometheus::Registry;

    use super::super::Layout;
    use super::*;
    use crate::{Config, EngineConfig, Metrics};

    fn put(root: &std::path::Path, version: u64, outputs: usize) {
        let folder = root.join("m").join(version.to_string());
        fs::create_dir_all(&folder).unwrap();
        let mut graph = Builder::new("m", 1);
        let input = graph.input(Value::batch_of_f32("input", &[1]));
        let ones = Weights::from_f32("ones", &[1, outputs], &vec![1.0; outputs]).unwrap();
        let ones = graph.constant(ones);
        let copies = graph.node("MatMul", "output", &[&input, &ones]);
        graph.output(Value::batch_of_f32(&copies, &[outputs]));
        fs::write(folder.join("model.onnx"), graph.build().unwrap().bytes()).unwrap();
    }

    /// A host of these models that follows no folder by itself.
    fn still(root: &std::path::Path) -> Config {
        let (models, versions) = (Some(root.into()), VersionPolicy::All);
        let engine = EngineConfig { name: "tract".into(), ..EngineConfig::default() };
        let measure = Duration::ZERO;
        Config { models, versions, engine, measure, reload: Duration::ZERO, ..Config::default() }
    }

    fn start(config: Config) -> (Arc<Host>, Registry) {
        let registry = Registry::new();
        let host = Host::start(config, Metrics::worker(&registry).unwrap(), Layout::Shared).unwrap();
        host.load_all().unwrap();
        (host, registry)
    }

    #[test]
    fn model_that_changes_while_models_load_is_loaded_again() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), 1, 1);
        let (host, _) = start(Config { reload: Duration::from_millis(1), ..still(root.path()) });
        put(root.path(), 1, 1234);
        put(root.path(), 2, 7);
        host.follow().unwrap();
        let shape = |version: &str| {
            let model = ModelRef { name: "m".into(), version: Some(version.into()) };
            host.catalogue.find(&model).map(|model| model.metadata.outputs[0].shape.clone()).ok()
        };
        let until = Instant::now() + Duration::from_secs(30);
        let is_new = || shape("1") == Some(vec![-1, 1234]) && shape("2") == Some(vec![-1, 7]);
        while !is_new() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(is_new(), "it serves {:?} and {:?}", shape("1"), shape("2"));
    }

    #[test]
    fn version_missed_once_stays_until_it_is_removed() {
        for versions in [VersionPolicy::All, VersionPolicy::Latest] {
            let root = tempfile::tempdir().unwrap();
            (1..=2).for_each(|version| put(root.path(), version, 1));
            let (host, _) = start(Config { versions, ..still(root.path()) });
            let before = host.catalogue.known("m");
            fs::remove_dir_all(root.path().join("m/2")).unwrap();
            put(root.path(), 1, 3);
            host.apply(&[Change::Changed("m".into(), 1)]);
            assert!(host.catalogue.known("m").contains(&2), "{versions:?}: only one poll missed version 2");
            host.apply(&[Change::Removed("m".into(), 2)]);
            assert_eq!(host.catalogue.known("m"), [1], "{versions:?}, before: {before:?}");
            fs::remove_dir_all(root.path().join("m")).unwrap();
            host.apply(&[Change::Changed("m".into(), 1)]);
            assert_eq!(host.catalogue.known("m"), [1]);
            host.apply(&[Change::Removed("m".into(), 1)]);
            assert_eq!(host.catalogue.known("m"), [0; 0]);
        }
    }

    #[test]
    fn unreadable_newest_version_goes_on_alone() {
        let root = tempfile::tempdir().unwrap();
        (1..=2).for_each(|version| put(root.path(), version, 1));
        let (host, _) = start(Config { versions: VersionPolicy::Latest, ..still(root.path()) });
        std::os::unix::fs::symlink("/nowhere", root.path().join("m/2/labels.txt")).unwrap();
        put(root.path(), 1, 3);
        host.apply(&[Change::Changed("m".into(), 1)]);
        assert_eq!(host.catalogue.known("m"), [2]);
        put(root.path(), 3, 1);
        host.apply(&[Change::Added("m".into(), 3)]);
        assert_eq!(host.catalogue.known("m"), [3]);
    }

    #[test]
    fn entry_that_is_no_model_is_absent() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), 1, 1);
        // Its version is missing, and another version of `m` is not needed.
        fs::create_dir_all(root.path().join("flat")).unwrap();
        fs::write(root.path().join("flat/model.onnx"), "").unwrap();
        fs::create_dir_all(root.path().join("m/2")).unwrap();
        let absent = |load: &[&str]| {
            let load = load.iter().map(|name| (*name).to_owned()).collect();
            let (host, _) = start(Config { load, versions: VersionPolicy::Latest, ..still(root.path()) });
            host.absent().into_iter().map(|model| model.name).collect::<Vec<_>>()
        };
        assert_eq!(absent(&[]), ["flat"]);
        assert_eq!(absent(&["m"]), [""; 0]);
        assert_eq!(absent(&["m", "mistyped"]), ["mistyped"]);
    }

    #[test]
    fn series_of_a_version_end_with_it() {
        let root = tempfile::tempdir().unwrap();
        (1..=2).for_each(|version| put(root.path(), version, 1));
        let (host, registry) = start(still(root.path()));
        for version in ["1", "2"] {
            host.metrics.failed(Some(("m", version)), "malformed");
        }
        let count = |version: &str| {
            let families = registry.gather();
            let metrics = families.iter().flat_map(|family| family.get_metric());
            let labels = metrics.flat_map(|metric| metric.get_label());
            labels.filter(|label| label.name() == "version" && label.value() == version).count()
        };
        let before = count("1");
        assert!(before > 12 && count("2") == before, "{before}");
        fs::remove_dir_all(root.path().join("m/1")).unwrap();
        host.apply(&[Change::Removed("m".into(), 1)]);
        assert_eq!((count("1"), count("2")), (0, before));
    }

    #[tokio::test]
    async fn load_that_never_ends_does_not_use_up_all_threads() {
        let metrics = Metrics::worker(&Registry::new()).unwrap();
        let host = Host::start(Config::default(), metrics, Layout::Shared).unwrap();
        let (hangs, is_hanging) = std::sync::mpsc::sync_channel(0);
        let (release, released) = std::sync::mpsc::sync_channel::<()>(0);
        let busy = host.clone();
        std::thread::spawn(move || {
            let _alone = busy.orders.alone();
            hangs.send(()).unwrap();
            let _ = released.recv();
        });
        is_hanging.recv().unwrap();
        let load = || {
            let host = host.clone();
            tokio::spawn(async move { host.load_model("m").await })
        };
        // As many as the runtime has threads for blocking work.
        let waiting: Vec<_> = (0..600).map(|_| load()).collect();
        tokio::task::yield_now().await;
        let free = tokio::time::timeout(Duration::from_secs(30), tokio::task::spawn_blocking(|| ()));
        free.await.expect("it waits for a thread").unwrap();
        drop(release);
        for load in waiting {
            assert!(matches!(load.await.unwrap(), Err(Refusal::UnknownModel { .. })));
        }
    }

    #[test]
    fn load_serves_requests_received_before_it_began() {
        let orders = Orders::default();
        let loads = Cell::new(0);
        let load = |name: &str, asked| {
            orders.load(name, asked, || {
                loads.set(loads.get() + 1);
                if name == "broken" { Err(Error::FaultsDisabled) } else { Ok(()) }
            })
        };
        let (first, second) = (orders.ask(), orders.ask());
        assert_eq!((load("m", first), loads.get()), (Ok(()), 1));
        assert_eq!((load("m", second), loads.get()), (Ok(()), 1), "the request precedes the load");
        assert_eq!((load("m", orders.ask()), loads.get()), (Ok(()), 2), "the request follows the load");
        assert_eq!((load("n", second), loads.get()), (Ok(()), 3), "another model");
        let both = orders.ask();
        assert_eq!((load("broken", both), loads.get()), (Err(Error::FaultsDisabled), 4));
        assert_eq!((load("broken", both), loads.get()), (Err(Error::FaultsDisabled), 4));
        let asked = orders.ask();
        load("m", asked).unwrap();
        drop(orders.alone());
        assert_eq!((load("m", asked), loads.get()), (Ok(()), 6), "the model may have been unloaded since");
    }
}
