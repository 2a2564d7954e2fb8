//! One run: servers, a frontend and its clients, in paused time.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parm_frontend::discovery::Wire;
use parm_frontend::{Config, Frontend, Timers, upstreams};
use parm_transport::client;
use parm_transport::server::{self, Server};
use serde_json::{Value, json};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::client::{SharedLine, send, shared_line};
use super::judge::{are_in_service, judge};
use super::plan::{Errand, Event, Line, Mood, Plan, Route};
use super::record::{Known, Sent, Shared};
use super::upstream::Upstream;
use crate::admin::Admin;
use crate::take_panic;

/// Time for the last answers to end.
const LAST: Duration = Duration::from_secs(8);

pub(super) struct Report {
    pub(super) requests: usize,
    pub(super) breaches: Vec<(&'static str, String)>,
}

struct Stage {
    plan: Plan,
    record: Shared,
    servers: Vec<Arc<Upstream>>,
    frontend: Frontend,
    admin: Admin,
    socket: PathBuf,
    shared: SharedLine,
    clients: JoinSet<()>,
}

pub(super) fn run(plan: &Plan) -> Report {
    let folder = tempfile::tempdir().expect("a folder for sockets");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.expect("a runtime of one thread");
    take_panic();
    let mut report = runtime.block_on(async {
        tokio::spawn(ticks());
        let stop = CancellationToken::new();
        let (mut stage, server) = Stage::set(plan.clone(), folder.path(), stop.clone()).await;
        stage.play().await;
        stage.recovers().await;
        stage.drains(stop, server).await;
        stage.end()
    });
    drop(runtime);
    if let Some(panic) = take_panic() {
        report.breaches.insert(0, ("nothing panics", panic));
    }
    report
}

/// Paused time jumps to the next timer whenever all tasks wait, also for sockets: this bounds the jump.
async fn ticks() {
    loop {
        sleep(Duration::from_millis(1)).await;
    }
}

impl Stage {
    async fn set(plan: Plan, folder: &std::path::Path, stop: CancellationToken) -> (Self, JoinHandle<usize>) {
        let record = Shared::default();
        let known = Known { mood: Mood::Well, member: true, since: Instant::now(), out_since: None };
        record.lock().servers = vec![known; plan.servers];
        record.lock().hedges = plan.hedges();
        let servers: Vec<_> =
            (0..plan.servers).map(|number| Upstream::new(number, folder, &plan, record.clone())).collect();
        let mut config = Config::default();
        config.dispatch.policy = plan.policy;
        config.upstreams = upstreams(&plan, servers.iter().map(|server| server.url()).collect());
        let wire = client::Config {
            upstream: config.upstreams.client().expect("valid routes"),
            ..client::Config::default()
        };
        let timers = Timers::Simulated { seed: plan.seed };
        let frontend =
            Frontend::start(config, Arc::new(Wire::new(wire)), timers).expect("a valid configuration");
        let socket = folder.join("parm");
        let any = || "127.0.0.1:0".parse().expect("an address");
        let config = server::Config {
            http: any(),
            grpc: any(),
            metrics: any(),
            unix: Some(socket.clone()),
            ..server::Config::default()
        };
        let server = Server::bind(config, Arc::new(frontend.clone())).await.expect("addresses are free");
        let server = tokio::spawn(server.run(stop));
        let shared = shared_line(&socket).await;
        let admin = Admin::of(&frontend);
        sleep(Duration::from_secs(2)).await;
        (Self { plan, record, servers, frontend, admin, socket, shared, clients: JoinSet::new() }, server)
    }

    async fn play(&mut self) {
        let start = Instant::now();
        let (record, admin) = (self.record.clone(), self.admin.clone());
        let watch = tokio::spawn(async move {
            loop {
                sleep(Duration::from_millis(100)).await;
                let listed = listed(&admin).await;
                are_in_service(&mut record.lock(), &listed);
            }
        });
        for (at, event) in std::mem::take(&mut self.plan.events) {
            sleep_until(start + Duration::from_millis(at)).await;
            self.perform(event).await;
            while self.clients.try_join_next().is_some() {}
        }
        sleep_until(start + Duration::from_millis(self.plan.length)).await;
        for number in 0..self.servers.len() {
            if self.record.lock().servers[number].mood != Mood::Well {
                self.servers[number].becomes(Mood::Well);
            }
        }
        sleep(LAST).await;
        watch.abort();
    }

    async fn perform(&mut self, event: Event) {
        match event {
            Event::Send(errand) => self.sends(errand),
            Event::Mood(server, mood) => self.servers[server].becomes(mood),
            Event::Settings(route, patch) => {
                self.admin.patch(route, &patch).await;
            }
            Event::Order(server, order) => {
                self.record.lock().joins(server, order == "undrain");
                self.order(server, order).await;
            }
            Event::Remove(server) => {
                self.record.lock().joins(server, false);
                if let Some(number) = self.number(server).await {
                    self.admin.call("DELETE", &format!("/instances/{number}"), &Value::Null).await;
                }
            }
            Event::Add(server) => {
                let url = upstreams::address(&self.servers[server].url());
                self.admin.call("POST", "/instances", &json!({ "url": url })).await;
                self.order(server, "undrain").await;
                self.record.lock().joins(server, true);
            }
        }
    }

    fn sends(&mut self, errand: Errand) {
        let number = {
            let mut record = self.record.lock();
            record.requests.push(Sent { errand: errand.clone(), at: Instant::now() });
            record.requests.len() - 1
        };
        let (record, socket, shared) = (self.record.clone(), self.socket.clone(), self.shared.clone());
        self.clients.spawn(async move {
            let end = send(&errand, number, &socket, shared).await;
            judge(&mut record.lock(), number, &end);
        });
    }

    async fn number(&self, server: usize) -> Option<u64> {
        let listed = listed(&self.admin).await;
        let entry = listed.iter().find(|(address, _)| address.ends_with(&format!("/upstream{server}")));
        entry.and_then(|(_, entry)| entry["number"].as_u64())
    }

    async fn order(&self, server: usize, order: &str) {
        if let Some(number) = self.number(server).await {
            self.admin.call("POST", &format!("/instances/{number}/{order}"), &Value::Null).await;
        }
    }

    /// Everything is well: all servers are used again, and every request succeeds.
    async fn recovers(&mut self) {
        let first = self.record.lock().requests.len();
        for _ in 0..20 {
            for route in Route::ALL {
                for _ in 0..self.servers.len() {
                    self.sends(Errand::plain(route));
                }
            }
            sleep(Duration::from_millis(100)).await;
        }
        sleep(LAST).await;
        let mut record = self.record.lock();
        for server in 0..self.servers.len() {
            if !record.runs.iter().any(|run| run.request >= first && run.server == server) {
                record.breach("recovered servers are used", || format!("server {server} got nothing"));
            }
        }
    }

    /// Parm ends while it answers.
    async fn drains(&mut self, stop: CancellationToken, server: JoinHandle<usize>) {
        for route in Route::ALL {
            for line in [Line::Http1, Line::Http2, Line::Narrow, Line::Shared] {
                self.sends(Errand::lasting(route, line));
            }
        }
        sleep(Duration::from_millis(300)).await;
        stop.cancel();
        let cut = server.await.expect("the server does not panic");
        sleep(Duration::from_secs(1)).await;
        if cut > 0 {
            self.record.lock().breach("a drain cuts no answer", || format!("{cut} connections were cut"));
        }
    }

    /// Nothing is left.
    fn end(mut self) -> Report {
        let held = self.frontend.held();
        let mut record = self.record.lock();
        let open = record.runs.iter().filter(|run| run.open).count();
        if open > 0 {
            record.breach("no run is left at a server", || format!("{open} are open"));
        }
        if held.requests + held.queries + held.jobs > 0 {
            record.breach("no state is left behind", || format!("{held:?}"));
        }
        while self.clients.try_join_next().is_some() {}
        if !self.clients.is_empty() {
            record.breach("every request gets an answer", || format!("{} clients wait", self.clients.len()));
        }
        Report { requests: record.requests.len(), breaches: record.breaches.clone() }
    }
}

fn upstreams(plan: &Plan, urls: Vec<String>) -> upstreams::Config {
    let stall = super::client::STALL;
    let mut config = upstreams::Config {
        urls,
        concurrency: plan.concurrency.try_into().expect("not zero"),
        ..upstreams::Config::default()
    };
    for (name, path, repeatable) in [
        ("chat", "/v1/chat/completions", true),
        ("predict", "/predict", true),
        ("declared", "/declared", false),
    ] {
        let route = upstreams::RouteConfig {
            paths: vec![path.into()],
            repeatable,
            stall,
            ..upstreams::RouteConfig::default()
        };
        config.routes.insert(name.into(), route);
    }
    let paths = vec![Route::Call.path().into()];
    let call = upstreams::RouteConfig { paths, grpc: true, stall, ..upstreams::RouteConfig::default() };
    config.routes.insert("call".into(), call);
    config
}

async fn listed(admin: &Admin) -> Vec<(String, Value)> {
    admin.instances().await.into_iter().collect()
}
