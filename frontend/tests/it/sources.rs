//! Tests of the sources of instances: the configured list, the workers file, threads of the process.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parm_frontend::discovery::{Connect, Name};
use parm_frontend::{Config, Error, Frontend, Timers};
use parm_protocol::client::{BoxFuture, Client};
use parm_settings::PolicyKind;

use crate::rig::{Network, config, get, infer, metric, ready, request, until};
use crate::scripted::Scripted;

struct Watched {
    _folder: tempfile::TempDir,
    file: PathBuf,
    frontend: Frontend,
}

impl Watched {
    fn start(text: &str, servers: &[&Arc<Scripted>]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("workers");
        fs::write(&file, text).unwrap();
        let config = Config { workers_file: Some(file.clone()), ..config(PolicyKind::None) };
        let frontend = Frontend::start(config, Network::with(servers), Timers::Runtime).unwrap();
        Self { _folder: folder, file, frontend }
    }

    fn write(&self, text: &str) {
        fs::write(&self.file, text).unwrap();
    }

    async fn until_ready(&self, count: f64) {
        until("the file is applied", || ready(&self.frontend) == count).await;
    }
}

#[tokio::test(start_paused = true)]
async fn replaced_workers_serve_until_the_new_ones_have_joined() {
    let servers = [Scripted::quick("test://a", 1), Scripted::quick("test://b", 1)];
    servers.iter().for_each(|server| server.thinks_for(Duration::from_millis(100)));
    let watched = Watched::start("test://a\n", &servers.each_ref());
    watched.until_ready(1.0).await;
    for name in ["b", "a", "b"] {
        watched.write(&format!("test://{name}\n"));
        for _ in 0..1000 {
            infer(&watched.frontend, request(&[1.0])).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(ready(&watched.frontend), 1.0);
    }
    assert!(servers.iter().all(|server| server.seen.lock().len() > 500));
}

#[tokio::test(start_paused = true)]
async fn server_of_two_sources_stays_when_one_drops_it() {
    let servers = ["test://a:1", "test://b:1"].map(|name| Scripted::quick(name, 1));
    let (folder, network) = (tempfile::tempdir().unwrap(), Network::with(&servers.each_ref()));
    let file = folder.path().join("workers");
    let mut config = Config { workers: vec!["dns+test://pool:1".into()], ..config(PolicyKind::None) };
    (config.instances.dns_interval, config.workers_file) = (Duration::from_secs(1), Some(file.clone()));
    let lists = async |named: &[&str], listed: &str| {
        network.resolves(Ok(named));
        fs::write(&file, listed).unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
    };
    fs::write(&file, "test://a:1\ntest://b:1\n").unwrap();
    network.resolves(Ok(&["a:1"]));
    let frontend = Frontend::start(config, network.clone(), Timers::Runtime).unwrap();
    // Whichever source was first, each of them drops the server while the other one lists it.
    for turn in ["first", "second"] {
        lists(&["a:1", "b:1"], "test://a:1\ntest://b:1\n").await;
        lists(&["a:1"], "test://b:1\n").await;
        assert_eq!(ready(&frontend), 2.0, "the name lists the server in the {turn} turn");
        lists(&["a:1", "b:1"], "test://a:1\ntest://b:1\n").await;
        lists(&["b:1"], "test://a:1\n").await;
        assert_eq!(ready(&frontend), 2.0, "the file lists the server in the {turn} turn");
    }
    lists(&["b:1"], "test://b:1\n").await;
    assert_eq!(ready(&frontend), 1.0, "no source lists the server");
}

/// Place of each instance, by address: node and zone.
async fn places(frontend: &Frontend) -> Vec<(String, String, String)> {
    let (_, instances) = get(frontend, "/instances").await;
    let word = |one: &serde_json::Value, name: &str| one[name].as_str().unwrap_or("-").to_owned();
    let of = |one| (word(one, "address"), word(one, "node"), word(one, "zone"));
    instances.as_array().unwrap().iter().map(of).collect()
}

fn stands(address: &str, node: &str, zone: &str) -> (String, String, String) {
    (address.into(), node.into(), zone.into())
}

#[tokio::test(start_paused = true)]
async fn place_in_file_precedes_place_of_worker() {
    let servers = ["test://a:1", "test://b:1", "test://c:1"].map(|name| Scripted::quick(name, 1));
    servers[0].stands_at("n1", "eu-1a");
    servers[1].stands_at("n1", "eu-1a");
    // The last two lines are wrong: an unknown label, and another place of a listed server.
    let lines = "test://a:1\ntest://b:1 node=rack-4 # a wrong setting there\ntest://c:1\ntest://d:1 nod=n\ntest://b:1 node=n2\n";
    let watched = Watched::start(lines, &servers.each_ref());
    watched.until_ready(3.0).await;
    assert_eq!(metric(&watched.frontend, "parm_workers_file_bad_lines", &[]), 2.0);
    // Without a statement of either, the address is the node.
    let expected = [
        stands("test://a:1", "n1", "eu-1a"),
        stands("test://b:1", "rack-4", "eu-1a"),
        stands("test://c:1", "c", "-"),
    ];
    assert_eq!(places(&watched.frontend).await, expected);
    // The file changes, and a worker reports that it was moved.
    watched.write("test://a:1 zone=eu-1b\ntest://b:1\ntest://c:1\n");
    servers[2].stands_at("n3", "");
    let expected = [
        stands("test://a:1", "n1", "eu-1b"),
        stands("test://b:1", "n1", "eu-1a"),
        stands("test://c:1", "n3", "-"),
    ];
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(places(&watched.frontend).await, expected);
    assert_eq!(metric(&watched.frontend, "parm_workers_file_bad_lines", &[]), 0.0);
    assert_eq!(ready(&watched.frontend), 3.0);
}

/// A connector that panics.
struct Trap;

impl Connect for Trap {
    fn check(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn connect<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Arc<dyn Client>, parm_protocol::Error>> {
        Box::pin(async { panic!("intended by the test") })
    }

    fn resolve<'a>(&'a self, _: &'a Name) -> BoxFuture<'a, Result<Vec<String>, String>> {
        Box::pin(async { panic!("intended by the test") })
    }
}

#[tokio::test(start_paused = true)]
async fn panicked_part_of_frontend_is_reported() {
    for (worker, part) in [("test://a", "instance supervisor"), ("dns+http://a:1", "DNS polling")] {
        let config = Config { workers: vec![worker.into()], ..config(PolicyKind::None) };
        let frontend = Frontend::start(config, Arc::new(Trap), Timers::Runtime).unwrap();
        assert_eq!(frontend.broken().await, Error::Panicked { part });
    }
}
