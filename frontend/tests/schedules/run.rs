//! One run: a frontend over the servers of a schedule, with paused time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use parm_encoder::{CodeSpec, Kind};
use parm_frontend::{Config, Frontend, Timers};
use parm_parity_models::bundle::{
    Calibration, Deployed, Input, Manifest, Meaning, ModelFile, Output, Parity, Range,
};
use parm_protocol::{DataType, InferenceService};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::admin::{self, Admin};
use crate::instances::{Instance, Network};
use crate::invariants::Basis;
use crate::schedule::{Ask, Event, Lapse, Model, Schedule, Serving, Source, Temper, What, address, host};
use crate::world::{Breach, EVER, SIZES, Server, Truth, WIDTH, World};
use crate::{clients, invariants, take_panic};

/// Time for all instances to join.
const START: Duration = Duration::from_secs(4);
/// The time in which the name server is asked twice and answers.
const SAID_TWICE: Duration = Duration::from_secs(3);

/// Result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) breaches: Vec<Breach>,
    pub(crate) requests: usize,
    /// Hash of all observations.
    pub(crate) trace: u64,
}

/// A run in progress.
pub(crate) struct Stage {
    pub(crate) frontend: Frontend,
    pub(crate) admin: Admin,
    pub(crate) network: Arc<Network>,
    pub(crate) world: Arc<World>,
    pub(crate) folder: PathBuf,
    pub(crate) models: u8,
    pub(crate) schedule: Schedule,
    /// Number of writes of the file.
    pub(crate) writes: Arc<AtomicU64>,
    /// The complete text of the file.
    pub(crate) listed: Mutex<String>,
    clients: JoinSet<()>,
}

pub(crate) fn run(schedule: &Schedule) -> Report {
    let folder = tempfile::tempdir().expect("a folder for files");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime of one thread");
    take_panic();
    let mut report = runtime.block_on(async {
        let mut stage = Stage::set(schedule, folder.path()).await;
        stage.play().await;
        stage.end().await
    });
    drop(runtime);
    if let Some(panic) = take_panic() {
        report.breaches.insert(0, Breach { rule: "nothing panics", at: 0, what: panic });
    }
    report
}

impl Stage {
    async fn set(schedule: &Schedule, folder: &Path) -> Self {
        let world = Arc::new(World::new());
        let numbers = 0..schedule.setup.workers.len();
        let instances = numbers.map(|number| Arc::new(Instance::new(number, schedule, world.clone())));
        let network = Arc::new(Network { instances: instances.collect(), world: world.clone() });
        let now = Instant::now();
        {
            let mut truth = world.0.lock();
            truth.servers = network.instances.iter().map(|instance| known(instance, now + START)).collect();
            truth.constants = schedule.setup.settings.clone();
            truth.curved = schedule.setup.curved;
            truth.dns = Ok(of(schedule, Source::Dns).into_iter().map(host).collect());
        }
        let config = config(schedule, folder);
        let timers = Timers::Simulated { seed: schedule.seed };
        let frontend = Frontend::start(config, network.clone(), timers).expect("a valid configuration");
        let admin = Admin::of(&frontend);
        let models = schedule.setup.workers[0].models.iter();
        let models = models.filter(|own| matches!(own.model, Model::Asked(_))).count() as u8;
        let settings = admin.settings().await;
        admin::note(&mut world.0.lock(), &settings, models);
        sleep(START).await;
        let clients = JoinSet::new();
        Self {
            frontend,
            admin,
            network,
            world,
            folder: folder.to_owned(),
            models,
            schedule: schedule.clone(),
            writes: Arc::default(),
            listed: Mutex::new(lines(&of(schedule, Source::File))),
            clients,
        }
    }

    async fn play(&mut self) {
        let start = Instant::now();
        let watch = tokio::spawn(invariants::watch(self.world.clone(), self.admin.clone()));
        for Event { at, what } in self.schedule.events.clone() {
            sleep_until(start + Duration::from_millis(at)).await;
            self.perform(what).await;
            while self.clients.try_join_next().is_some() {}
        }
        sleep_until(start + Duration::from_millis(self.schedule.length)).await;
        self.restore();
        // Until the last deadline, and the last overrun of a job. Only real requests bring an instance back.
        for _ in 0..40 {
            for ask in self.each_version() {
                self.clients.spawn(clients::ask(self.frontend.clone(), self.world.clone(), ask));
            }
            sleep(Duration::from_millis(250)).await;
        }
        sleep(Duration::from_secs(13)).await;
        watch.abort();
    }

    /// A good request for each version of each model that is served.
    fn each_version(&self) -> Vec<Ask> {
        let served = self.network.instances.iter().flat_map(|instance| instance.models.lock().clone());
        let asked = served.filter_map(|own| match own.model {
            Model::Asked(model) => Some((model, own.version)),
            _ => None,
        });
        let asked: BTreeSet<(u8, u8)> = asked.collect();
        asked.into_iter().map(|(model, version)| Ask { version: Some(version), ..Ask::good(model) }).collect()
    }

    async fn perform(&mut self, what: What) {
        notes(&mut self.world.0.lock(), &what);
        match what {
            What::Ask(ask) => {
                self.clients.spawn(clients::ask(self.frontend.clone(), self.world.clone(), ask));
            }
            What::Temper(worker, temper) => self.becomes(worker, temper),
            What::Blip(worker) => {
                self.world.0.lock().servers[worker].was_ill = true;
                *self.network.instances[worker].blip.lock() = true;
            }
            What::Serve(worker, models) => self.serve(worker, models),
            What::File(workers, torn) => self.write(&workers, torn),
            What::Dns(workers) => self.resolve(&workers),
            What::Settings(model, patch) => self.change(vec![(model, patch)]).await,
            What::Together(patches) => self.change(patches).await,
            What::Load(model) => {
                self.world.0.lock().unsettles(model);
                let frontend = self.frontend.clone();
                self.clients.spawn(async move {
                    // Some workers may be gone.
                    let _ = frontend.load_model(&Model::Asked(model).name()).await;
                });
            }
            What::Unload(model) => {
                self.world.0.lock().in_flux.insert(model, Instant::now() + EVER);
                let frontend = self.frontend.clone();
                self.clients.spawn(async move {
                    let _ = frontend.unload_model(&Model::Asked(model).name()).await;
                });
            }
            What::Bundle(sizes) => {
                let mut truth = self.world.0.lock();
                give_back(&self.folder);
                bundle(&self.folder, &sizes, truth.millis());
                truth.sizes = sizes;
            }
            What::NoBundles(ms) => self.takes_bundles(ms).await,
            What::NoFile(ms) => self.takes_file(ms),
            What::OneAnswer(lapse) => self.world.0.lock().lapse = Some(lapse),
            What::Unlisted(worker, model) => *self.network.instances[worker].unlisted.lock() = Some(model),
        }
    }

    fn becomes(&self, worker: usize, temper: Temper) {
        self.world.0.lock().becomes(worker, temper);
        self.network.instances[worker].temper.send_replace(temper);
    }

    fn serve(&self, worker: usize, models: Vec<Serving>) {
        let mut truth = self.world.0.lock();
        truth.serves(worker, &models);
        let before = self.network.instances[worker].models.lock().clone();
        for own in &models {
            let Model::Asked(number) = own.model else { continue };
            if own.width != WIDTH {
                truth.in_flux.insert(number, Instant::now() + EVER);
            } else if before.iter().any(|before| before.model == own.model && before.width != own.width) {
                truth.unsettles(number);
            }
        }
        // The crowd's models stay.
        let crowd = before.into_iter().filter(|own| matches!(own.model, Model::Crowd(_)));
        *self.network.instances[worker].models.lock() = models.iter().copied().chain(crowd).collect();
    }

    fn write(&self, workers: &[usize], torn: Option<(u64, u64)>) {
        self.world.0.lock().names(&of(&self.schedule, Source::File), workers);
        let (file, text) = (self.folder.join("workers"), lines(workers));
        self.listed.lock().clone_from(&text);
        let (writes, own) = (self.writes.clone(), self.writes.fetch_add(1, Ordering::Relaxed) + 1);
        match torn {
            None => fs::write(file, text).expect("a file can be written"),
            Some((percent, after)) => {
                fs::write(&file, &text[..text.len() * percent as usize / 100])
                    .expect("a file can be written");
                tokio::spawn(async move {
                    sleep(Duration::from_millis(after)).await;
                    // A later write supersedes this one.
                    if writes.load(Ordering::Relaxed) == own {
                        fs::write(file, text).expect("a file can be written");
                    }
                });
            }
        }
    }

    fn resolve(&self, workers: &[usize]) {
        let mut truth = self.world.0.lock();
        if workers.is_empty() {
            let known = truth.dns_since + SAID_TWICE < Instant::now();
            let before = std::mem::replace(&mut truth.dns, Err("the name server is down".into()));
            truth.unsaid = before.ok().filter(|_| !known).or(truth.unsaid.take());
            return;
        }
        (truth.unsaid, truth.dns_since) = (None, Instant::now());
        truth.dns = Ok(workers.iter().copied().map(host).collect());
        truth.names(&of(&self.schedule, Source::Dns), workers);
    }

    /// Checks that the effective settings follow from the requested ones.
    pub(crate) fn stands(&self, truth: &mut Truth, settings: &serde_json::Value, settled: bool) {
        let basis = Basis { setup: &self.schedule.setup, sizes: &truth.sizes, settled };
        if let Some(difference) = invariants::misfit(settings, &basis) {
            truth.breach("effective settings follow from requested ones", || difference);
        }
    }

    /// Makes all servers healthy, with the same models.
    fn restore(&self) {
        {
            let mut truth = self.world.0.lock();
            if let Some(names) = truth.unsaid.take() {
                truth.dns = Ok(names);
            }
        }
        let mut agreed: Vec<Serving> = Vec::new();
        for (worker, instance) in self.network.instances.iter().enumerate() {
            let now = *instance.temper.borrow();
            if now != Temper::Well {
                self.becomes(worker, Temper::Well);
            }
            (*instance.blip.lock(), *instance.unlisted.lock()) = (false, None);
            let mut models = instance.models.lock().clone();
            for own in &mut models {
                match agreed.iter().find(|agreed| (agreed.model, agreed.version) == (own.model, own.version))
                {
                    Some(agreed) => own.width = agreed.width,
                    None => agreed.push(*own),
                }
            }
            models.retain(|own| !matches!(own.model, Model::Crowd(_)));
            self.serve(worker, models);
        }
    }

    async fn end(mut self) -> Report {
        invariants::converges(&self.frontend, &self.network, &self.admin).await;
        for model in 0..self.models {
            let served = |own: &Serving| own.model == Model::Asked(model) && own.width == WIDTH;
            let somewhere =
                self.network.instances.iter().any(|instance| instance.models.lock().iter().any(served));
            let others = |own: &Serving| own.model == Model::Asked(model) && own.width != WIDTH;
            let elsewhere =
                self.network.instances.iter().any(|instance| instance.models.lock().iter().any(others));
            if somewhere && !elsewhere {
                self.world.0.lock().in_flux.remove(&model);
                self.clients.spawn(clients::ask(self.frontend.clone(), self.world.clone(), Ask::good(model)));
            }
        }
        sleep(Duration::from_secs(12)).await;
        invariants::converges(&self.frontend, &self.network, &self.admin).await;
        let settings = self.admin.settings().await;
        let mut truth = self.world.0.lock();
        let settled = !truth.lied;
        self.stands(&mut truth, &settings, settled);
        Report { breaches: truth.breaches.clone(), requests: truth.requests.len(), trace: truth.trace }
    }
}

fn known(instance: &Instance, steady_at: Instant) -> Server {
    Server {
        temper: Temper::Well,
        silent_since: None,
        member: true,
        steady_at,
        models: instance.models.lock().iter().map(|own| (*own, steady_at)).collect(),
        missed: None,
        failures: BTreeMap::new(),
        poisoned: 0,
        was_ill: false,
    }
}

fn of(schedule: &Schedule, source: Source) -> Vec<usize> {
    let workers = schedule.setup.workers.iter().enumerate();
    workers.filter(|(_, worker)| worker.source == source).map(|(number, _)| number).collect()
}

pub(crate) fn lines(workers: &[usize]) -> String {
    workers.iter().map(|worker| format!("{}\n", address(*worker))).collect()
}

fn config(schedule: &Schedule, folder: &Path) -> Config {
    let mut config = Config { dispatch: schedule.setup.settings.clone(), ..Config::default() };
    config.workers = of(schedule, Source::Static).into_iter().map(address).collect();
    config.instances.dns_interval = Duration::from_secs(1);
    if !of(schedule, Source::Dns).is_empty() {
        config.workers.push("dns+test://pool:1".into());
    }
    let named = of(schedule, Source::File);
    if !named.is_empty() {
        fs::write(folder.join("workers"), lines(&named)).expect("a file can be written");
        config.workers_file = Some(folder.join("workers"));
    }
    if schedule.setup.bundle {
        bundle(folder, &SIZES, 0);
        config.bundles = Some(folder.join("bundles"));
    }
    config
}

/// Writes model 0's bundle. The file's time is simulated, because the system's would differ between runs.
fn bundle(folder: &Path, sizes: &[u8], millis: u64) {
    let (datatype, shape) = (DataType::Fp32, vec![-1, 2]);
    let file = |name: String| ModelFile { name, version: 1, sha256: "0".repeat(64) };
    let output = |name: &str| Output {
        name: name.into(),
        datatype,
        shape: shape.clone(),
        meaning: Meaning::Logits,
        default_answer: Some(vec![0.5, -0.5]),
    };
    let parity = |k: &u8| Parity {
        code: CodeSpec::new(Kind::Sum, usize::from(*k), 1),
        models: vec![file(Model::Parity(*k).name())],
        learned: None,
        training: None,
        accuracy: None,
        calibration: Some(Calibration::default()),
    };
    let range = Some(Range { low: -3000.0, high: 3000.0 });
    let mut manifest = Manifest::new(Deployed {
        version: 1,
        sha256: "0".repeat(64),
        inputs: vec![Input { name: "x".into(), datatype, shape: shape.clone(), range }],
        outputs: vec![output("y"), output("z")],
        preprocessing: None,
    });
    manifest.parities = sizes.iter().map(parity).collect();
    let own = folder.join("bundles").join(Model::Asked(0).name());
    fs::create_dir_all(&own).expect("a folder can be made");
    let path = own.join("parm.toml");
    manifest.write(&path).expect("a manifest can be written");
    let opened = fs::File::options().write(true).open(&path);
    let set =
        opened.and_then(|file| file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_millis(1 + millis)));
    set.expect("a file's time can be set");
}

/// Time for a change to be in effect: two polls of bundles, a description of models, a linearity test.
const SETTLING: Duration = Duration::from_secs(8);
/// Time for the frontend to notice a lapse: two polls of bundles, and reading them.
const NOTICE: Duration = Duration::from_millis(2600);
/// Interval between two comparisons.
const PAUSE: Duration = Duration::from_millis(200);

/// Records an event that may change the effective settings.
fn notes(truth: &mut Truth, what: &What) {
    // Instances do not matter: one that has all models is always present.
    let decides = matches!(
        what,
        What::Settings(..)
            | What::Together(_)
            | What::Bundle(_)
            | What::Load(_)
            | What::Unload(_)
            | What::Serve(..)
    );
    if decides {
        truth.changed = Instant::now();
    }
}

/// Restores the folder of bundles.
fn give_back(folder: &Path) {
    let away = folder.join("away");
    if away.is_dir() {
        fs::rename(away, folder.join("bundles")).expect("a folder can be renamed");
    }
}

impl Truth {
    /// The name server's next answer.
    pub(crate) fn resolves(&mut self) -> Result<Vec<String>, String> {
        let mut servers = self.dns.clone()?;
        match self.lapse.take() {
            None => {}
            Some(Lapse::Empty) => servers.clear(),
            Some(Lapse::Error) => return Err("no answer".into()),
            Some(Lapse::Short(place)) => drop(servers.remove(place % servers.len())),
        }
        Ok(servers)
    }
}

impl Stage {
    /// The folder of bundles is missing for less than two polls: the effective settings stay.
    pub(crate) async fn takes_bundles(&self, ms: u64) {
        let since = self.world.0.lock().changed;
        let before = in_force(&self.admin).await;
        fs::rename(self.folder.join("bundles"), self.folder.join("away")).expect("a folder can be renamed");
        let (world, admin, folder) = (self.world.clone(), self.admin.clone(), self.folder.clone());
        let settled = since + SETTLING < Instant::now();
        tokio::spawn(async move {
            sleep(Duration::from_millis(ms)).await;
            give_back(&folder);
            let until = Instant::now() + NOTICE;
            while settled && Instant::now() < until && world.0.lock().changed == since {
                let now = in_force(&admin).await;
                if now != before {
                    world.0.lock().breach("a lapse of one poll removes nothing", || {
                        format!("after {ms} ms without bundles {now} is in effect, before it was {before}")
                    });
                }
                sleep(PAUSE).await;
            }
        });
    }

    /// The workers file is missing for less than two polls: its members stay.
    pub(crate) fn takes_file(&self, ms: u64) {
        let (file, text) = (self.folder.join("workers"), self.listed.lock().clone());
        let (writes, own) = (self.writes.clone(), self.writes.fetch_add(1, Ordering::Relaxed) + 1);
        fs::remove_file(&file).expect("a file can be removed");
        tokio::spawn(async move {
            sleep(Duration::from_millis(ms)).await;
            if writes.load(Ordering::Relaxed) == own {
                fs::write(file, text).expect("a file can be written");
            }
        });
    }
}

/// The effective settings of model 0 that depend on bundles.
async fn in_force(admin: &Admin) -> Value {
    let standing = &admin.settings().await["in_force"][Model::Asked(0).name()]["1"];
    json!({ "policy": standing["policy"], "coding": standing["coding"], "default": standing["default_answer"] })
}
