//! Tests of rolling updates under load.
//!
//! Versions and shapes change and servers restart in turn, and no request fails.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parm_frontend::{Config, Frontend, Timers};
use parm_protocol::client::Client;
use parm_protocol::{Code, Error, InferResponse, InferenceService, ModelMetadata, ModelRef};
use parm_settings::PolicyKind;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::fleet::{MS, over};
use crate::rig::{Network, call, config, infer, metric, ready, request, start, until};
use crate::scripted::{Scripted, doubler};

/// Interval between two servers' updates: longer than it takes to detect.
const TURN: Duration = Duration::from_secs(7);

fn version(number: u32) -> ModelMetadata {
    ModelMetadata { versions: vec![number.to_string()], ..doubler("double") }
}

/// The same version with another declaration of output `z`: requests for one are valid for the other.
fn reshaped() -> ModelMetadata {
    let mut model = doubler("double");
    model.outputs[1].shape[1] = -1;
    model
}

/// A short queue, which overflows if too few instances get all the work.
fn tight() -> Config {
    let mut config = config(PolicyKind::Hedge);
    config.dispatch.queue_limit = NonZeroU32::new(8).unwrap();
    config
}

fn six() -> Vec<Arc<Scripted>> {
    ["a", "b", "c", "d", "e", "f"].map(|name| Scripted::quick(&format!("test://{name}"), 100)).to_vec()
}

/// A request every 50 ms, a third of the capacity of six such instances, for as many intervals as there are servers and
/// one more.
fn load(frontend: &Frontend, servers: usize) -> JoinHandle<Vec<JoinHandle<Result<InferResponse, Error>>>> {
    let frontend = frontend.clone();
    let ends = Instant::now() + TURN * (servers as u32 + 1);
    tokio::spawn(async move {
        let mut asked = Vec::new();
        while Instant::now() < ends {
            asked.push(start(&frontend, request(&[1.0])));
            tokio::time::sleep(50 * MS).await;
        }
        asked
    })
}

/// The versions that answered, in order; panics if any request failed.
async fn versions(load: JoinHandle<Vec<JoinHandle<Result<InferResponse, Error>>>>) -> Vec<String> {
    let mut versions = Vec::new();
    for (number, asked) in load.await.unwrap().into_iter().enumerate() {
        let answer = asked.await.unwrap().unwrap_or_else(|error| panic!("request {number}: {error}"));
        versions.push(answer.model_version);
    }
    versions
}

#[tokio::test(start_paused = true)]
async fn no_request_fails_during_rolling_update_of_versions() {
    // Forward and back: the last instances of a version are as few as the first.
    for (from, to) in [(1, 2), (2, 1)] {
        let servers = six();
        servers.iter().for_each(|server| server.serve(&[version(from)]));
        let frontend = over(tight(), &servers).await;
        let answers = load(&frontend, servers.len());
        for server in &servers {
            server.serve(&[version(to)]);
            tokio::time::sleep(TURN).await;
        }
        let versions = versions(answers).await;
        let (before, after) = (from.to_string(), to.to_string());
        let switch = versions.iter().position(|version| *version == after).expect("the switch");
        assert!(versions[..switch].iter().all(|version| *version == before), "{versions:?}");
        assert!(
            versions[switch..].iter().all(|version| *version == after),
            "expected one switch: {versions:?}"
        );
        let turn = switch / (TURN.as_millis() / 50) as usize;
        assert!((2..=3).contains(&turn), "expected the switch at half, not in turn {turn}");
    }
}

#[tokio::test(start_paused = true)]
async fn version_at_few_instances_is_used_only_by_name() {
    let servers = six();
    let frontend = over(tight(), &servers).await;
    servers[0].serve(&[version(2)]);
    tokio::time::sleep(TURN).await;
    let newest = ModelRef { name: "double".into(), version: Some("2".into()) };
    assert_eq!(frontend.is_model_ready(&newest), Ok(true));
    assert_eq!(infer(&frontend, request(&[1.0])).await.unwrap().model_version, "1");
    let mut named = request(&[1.0]);
    named.model = newest;
    assert_eq!(infer(&frontend, named).await.unwrap().model_version, "2");
    let served: BTreeSet<_> =
        frontend.model_metadata(&ModelRef::latest("double")).unwrap().versions.into_iter().collect();
    assert_eq!(served, BTreeSet::from(["1".into(), "2".into()]));
    // A draining instance does not count.
    servers[1..].iter().for_each(|server| server.set_ready(Ok(false)));
    until("the other instances drain", || ready(&frontend) == 1.0).await;
    assert_eq!(infer(&frontend, request(&[1.0])).await.unwrap().model_version, "2");
}

#[tokio::test(start_paused = true)]
async fn no_request_fails_during_rolling_update_of_shapes() {
    let servers = &six()[..3];
    let other = doubler("other");
    servers.iter().for_each(|server| server.serve(&[doubler("double"), other.clone()]));
    // The last instance with the old shape answers all requests until the others are admitted.
    let mut config = tight();
    config.dispatch.queue_limit = NonZeroU32::new(512).unwrap();
    let frontend = over(config, servers).await;
    let asked = load(&frontend, servers.len());
    for server in servers {
        server.serve(&[reshaped(), other.clone()]);
        tokio::time::sleep(TURN).await;
    }
    versions(asked).await;
    assert_eq!(metric(&frontend, "parm_instances_refused_total", &[]), 2.0, "each rejection must count once");
    servers.iter().for_each(|server| server.seen.lock().clear());
    for _ in 0..3 {
        infer(&frontend, request(&[1.0, 2.0, 3.0])).await.unwrap();
    }
    let counts: Vec<_> = servers.iter().map(|server| server.seen.lock().len()).collect();
    assert!(counts.iter().all(|count| *count > 0), "all must serve it again: {counts:?}");
}

/// Two servers that were lost with version 1.
async fn lost() -> ([Arc<Scripted>; 2], Arc<Network>, Frontend) {
    let servers = ["a", "b"].map(|name| Scripted::quick(&format!("test://{name}"), 10));
    let network = Network::with(&servers.each_ref());
    let frontend = Frontend::start(config(PolicyKind::None), network.clone(), Timers::Runtime).unwrap();
    for server in &servers {
        assert_eq!(call(&frontend, "POST", "/instances", json!({ "url": server.peer() })).await.0, 201);
    }
    until("both joined", || ready(&frontend) == 2.0).await;
    servers.iter().for_each(|server| network.kill(server));
    until("both are lost", || ready(&frontend) == 0.0).await;
    (servers, network, frontend)
}

fn listed(frontend: &Frontend) -> Vec<String> {
    frontend.repository_index(false).unwrap().into_iter().map(|model| model.version).collect()
}

#[tokio::test(start_paused = true)]
async fn version_is_forgotten_when_its_servers_return_without() {
    let (servers, network, frontend) = lost().await;
    for (server, known) in servers.iter().zip([&["1", "2"][..], &["2"]]) {
        assert_eq!(listed(&frontend)[0], "1", "a lost server may return with it");
        let joined = ready(&frontend) + 1.0;
        server.serve(&[version(2)]);
        server.set_ready(Ok(true));
        network.start(server);
        until("the server is back", || ready(&frontend) == joined).await;
        assert_eq!(listed(&frontend), known);
    }
    infer(&frontend, request(&[1.0])).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn model_is_kept_when_its_addresses_answer_without_a_list() {
    let (servers, network, frontend) = lost().await;
    for server in &servers {
        server.unlisted.store(true, Ordering::Relaxed);
        server.set_ready(Ok(true));
        network.start(server);
    }
    tokio::time::sleep(20_000 * MS).await;
    assert_eq!(infer(&frontend, request(&[1.0])).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(listed(&frontend), ["1"], "another server may answer at an address for a while");
}

#[tokio::test(start_paused = true)]
async fn model_is_forgotten_when_its_lost_servers_are_removed() {
    let (_, _, frontend) = lost().await;
    for number in [1, 2] {
        assert_eq!(infer(&frontend, request(&[1.0])).await.unwrap_err().code(), Code::Unavailable);
        assert_eq!(call(&frontend, "DELETE", &format!("/instances/{number}"), json!(null)).await.0, 202);
        tokio::time::sleep(2000 * MS).await;
    }
    assert_eq!(listed(&frontend), Vec::<String>::new());
    assert_eq!(infer(&frontend, request(&[1.0])).await.unwrap_err().code(), Code::NotFound);
}
