//! One run: a frontend over the servers of a schedule, with paused time.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parm_frontend::{Config, Frontend, Timers};
use parm_protocol::InferenceService;
use parm_settings::PolicyKind;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::admin::Admin;
use crate::instances::{Instance, Network};
use crate::opaque::{Errand, Route};
use crate::schedule::{Ask, Event, Model, Schedule, Serving, Source, Temper, What, Worker, address, host};
use crate::world::{Breach, Server, Truth, WIDTH, World};
use crate::{clients, invariants, opaque, take_panic};

/// Time for all instances to join.
const START: Duration = Duration::from_secs(4);

/// Result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) breaches: Vec<Breach>,
    pub(crate) requests: usize,
    /// Hash of all observations.
    pub(crate) trace: u64,
}

/// A run in progress.
struct Stage {
    frontend: Frontend,
    admin: Admin,
    network: Network,
    world: Arc<World>,
    folder: PathBuf,
    clients: JoinSet<()>,
}

pub(crate) fn run(schedule: &Schedule) -> Report {
    let folder = tempfile::tempdir().expect("a folder for files");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime of one thread");
    take_panic();
    let mut report = runtime.block_on(async {
        let mut stage = Stage::set(schedule, folder.path()).await;
        stage.play(schedule).await;
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
        let workers = &schedule.setup.workers;
        let from = Instant::now() + START;
        let known = |worker: &Worker| Server::new(worker.source, worker.models.clone(), from);
        let world = Arc::new(World::new(workers.iter().map(known).collect()));
        world.0.lock().once = schedule.setup.settings.policy == PolicyKind::Once;
        let config = config(schedule, &world.0.lock(), folder);
        let routes = config.upstreams.client().expect("valid routes").routes;
        let instances =
            (0..workers.len()).map(|number| Instance::new(number, schedule, world.clone(), routes.clone()));
        let network = Network { instances: instances.collect(), world: world.clone() };
        let connect = Arc::new(network.clone());
        let frontend = Frontend::start(config, connect, Timers::Runtime).expect("a valid configuration");
        let admin = Admin::of(&frontend);
        sleep(START).await;
        Self { frontend, admin, network, world, folder: folder.to_owned(), clients: JoinSet::new() }
    }

    async fn play(&mut self, schedule: &Schedule) {
        let start = Instant::now();
        let watch = tokio::spawn(invariants::watch(self.world.clone(), self.admin.clone()));
        for Event { at, what } in schedule.events.clone() {
            sleep_until(start + Duration::from_millis(at)).await;
            self.perform(what).await;
            while self.clients.try_join_next().is_some() {}
        }
        sleep_until(start + Duration::from_millis(schedule.length)).await;
        restore(&mut self.world.0.lock());
        // Until the last deadline, and the last overrun of a job. Only real requests bring an instance back.
        for _ in 0..40 {
            let good = |(model, version)| Ask { version: Some(version), ..Ask::good(model) };
            self.served().into_iter().map(good).for_each(|ask| self.asks(ask));
            if self.has_upstreams() {
                let routes = [Route::ALL; 2].concat();
                routes.into_iter().for_each(|route| self.forwards(Errand::plain(route)));
            }
            sleep(Duration::from_millis(250)).await;
        }
        sleep(Duration::from_secs(13)).await;
        watch.abort();
    }

    /// The versions of each model with clients that servers have.
    fn served(&self) -> BTreeSet<(u8, u8)> {
        let truth = self.world.0.lock();
        let served = truth.servers.iter().flat_map(|server| &server.models);
        let asked = served.filter_map(|own| match own.model {
            Model::Asked(model) => Some((model, own.version)),
            _ => None,
        });
        asked.collect()
    }

    fn asks(&mut self, ask: Ask) {
        self.clients.spawn(clients::ask(self.frontend.clone(), self.world.clone(), ask));
    }

    fn forwards(&mut self, errand: Errand) {
        self.clients.spawn(opaque::forward(self.frontend.clone(), self.world.clone(), errand));
    }

    fn has_upstreams(&self) -> bool {
        self.world.0.lock().listed(Source::Upstream).next().is_some()
    }

    async fn perform(&mut self, what: What) {
        match what {
            What::Ask(ask) => self.asks(ask),
            What::Forward(errand) => self.forwards(errand),
            What::Temper(worker, temper) => self.world.0.lock().becomes(worker, temper),
            What::Blip(worker) => {
                let own = &mut self.world.0.lock().servers[worker];
                (own.blips, own.was_ill) = (true, true);
            }
            What::Serve(worker, models) => self.world.0.lock().serves(worker, models),
            What::File(workers, torn) => {
                self.world.0.lock().lists(Source::File, &workers);
                let text = self.world.0.lock().file();
                let (percent, after) = torn.unwrap_or((100, 0));
                self.write(&text[..text.len() * percent as usize / 100], after);
            }
            What::NoFile(after) => {
                fs::remove_file(self.folder.join("workers")).expect("a file can be removed");
                self.completes_file(after);
            }
            What::Dns(workers) => {
                let mut truth = self.world.0.lock();
                truth.dns_is_down = workers.is_empty();
                if !workers.is_empty() {
                    truth.lists(Source::Dns, &workers);
                }
            }
            What::ShortAnswer => self.world.0.lock().dns_is_short = true,
            What::Settings(model, patch) => {
                self.world.0.lock().once |= patch["policy"] == "once";
                let of = model.map_or(String::new(), |model| format!("/{}", Model::Asked(model).name()));
                self.admin.call("PATCH", &format!("/settings{of}"), &patch).await;
                self.settings_follow(false).await;
            }
            What::Load(model) => {
                let frontend = self.frontend.clone();
                self.clients.spawn(async move {
                    // Some workers may be gone.
                    let _ = frontend.load_model(&Model::Asked(model).name()).await;
                });
            }
            What::Unload(model) => {
                let frontend = self.frontend.clone();
                self.clients.spawn(async move {
                    let _ = frontend.unload_model(&Model::Asked(model).name()).await;
                });
            }
        }
    }

    /// Writes text to the workers file, which is complete after so many milliseconds.
    fn write(&self, text: &str, after: u64) {
        fs::write(self.folder.join("workers"), text).expect("a file can be written");
        self.completes_file(after);
    }

    fn completes_file(&self, after: u64) {
        let (world, file) = (self.world.clone(), self.folder.join("workers"));
        tokio::spawn(async move {
            sleep(Duration::from_millis(after)).await;
            fs::write(file, world.0.lock().file()).expect("a file can be written");
        });
    }

    /// Checks that the effective settings follow from the requested ones.
    async fn settings_follow(&self, settled: bool) {
        let settings = self.admin.call("GET", "/settings", &Value::Null).await;
        let mut truth = self.world.0.lock();
        if let Some(difference) = invariants::misfit(&settings, settled) {
            truth.breach("effective settings follow from requested ones", || difference);
        }
    }

    async fn end(mut self) -> Report {
        invariants::converges(&self.frontend, &self.network, &self.admin).await;
        let models: BTreeSet<u8> = self.served().into_iter().map(|(model, _)| model).collect();
        for model in models {
            let mut truth = self.world.0.lock();
            let mut served = truth.servers.iter().flat_map(|server| &server.models);
            if served.all(|own| own.model != Model::Asked(model) || own.width == WIDTH) {
                truth.in_flux.remove(&model);
                drop(truth);
                self.asks(Ask::good(model));
            }
        }
        sleep(Duration::from_secs(12)).await;
        invariants::converges(&self.frontend, &self.network, &self.admin).await;
        let lied = self.world.0.lock().lied;
        self.settings_follow(!lied).await;
        let truth = self.world.0.lock();
        let requests = truth.requests.len() + truth.sent.len();
        Report { breaches: truth.breaches.clone(), requests, trace: truth.trace }
    }
}

/// Makes all servers healthy, with the same models.
fn restore(truth: &mut Truth) {
    truth.dns_is_down = false;
    let mut agreed: Vec<Serving> = Vec::new();
    for worker in 0..truth.servers.len() {
        truth.becomes(worker, Temper::Well);
        truth.servers[worker].blips = false;
        let mut models = truth.servers[worker].models.clone();
        for own in &mut models {
            match agreed.iter().find(|agreed| (agreed.model, agreed.version) == (own.model, own.version)) {
                Some(agreed) => own.width = agreed.width,
                None => agreed.push(*own),
            }
        }
        truth.serves(worker, models);
    }
}

fn config(schedule: &Schedule, truth: &Truth, folder: &Path) -> Config {
    let mut config = Config { dispatch: schedule.setup.settings.clone(), ..Config::default() };
    config.workers = truth.listed(Source::Static).map(|server| address(server, Source::Static)).collect();
    let urls = truth.listed(Source::Upstream).map(|server| format!("http://{}", host(server)));
    config.upstreams = opaque::config(urls.collect(), [4, 8, 256][schedule.seed as usize % 3]);
    config.instances.dns_interval = Duration::from_secs(1);
    if truth.listed(Source::Dns).next().is_some() {
        config.workers.push("dns+test://pool:1".into());
    }
    if truth.listed(Source::File).next().is_some() {
        fs::write(folder.join("workers"), truth.file()).expect("a file can be written");
        config.workers_file = Some(folder.join("workers"));
    }
    config
}
