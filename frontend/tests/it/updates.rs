//! Tests of updates under load: versions, forms and files of models change and servers restart in turn, and no request fails.

use std::collections::BTreeSet;
use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parm_frontend::{Config, Frontend, Timers};
use parm_protocol::client::Client;
use parm_protocol::{Code, Error, InferResponse, InferenceService, ModelMetadata, ModelRef};
use parm_settings::{BatchSize, BudgetSettings, Fraction, PolicyKind};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::rig::{
    MS, Network, call, coded, column, config, get, infer, metric, over, ready, request, start, until, with,
    workers,
};
use crate::scripted::{Act, Scripted, doubler};

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

type Load = JoinHandle<Vec<JoinHandle<Result<InferResponse, Error>>>>;

fn six() -> Vec<Arc<Scripted>> {
    ["a", "b", "c", "d", "e", "f"].map(|name| Scripted::quick(&format!("test://{name}"), 100)).to_vec()
}

/// Requests at this interval.
fn load(frontend: &Frontend, count: usize, every: Duration) -> Load {
    let frontend = frontend.clone();
    tokio::spawn(async move {
        let mut asked = Vec::new();
        for _ in 0..count {
            asked.push(start(&frontend, request(&[1.0])));
            tokio::time::sleep(every).await;
        }
        asked
    })
}

/// A request every 50 ms, a third of the capacity of six such instances, for as many intervals as there are servers and
/// one more.
fn load_in_turns(frontend: &Frontend, servers: usize) -> Load {
    load(frontend, (TURN.as_millis() / 50) as usize * (servers + 1), 50 * MS)
}

/// The versions that answered, in order; panics if any request failed.
async fn versions(load: Load) -> Vec<String> {
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
        let answers = load_in_turns(&frontend, servers.len());
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
    let asked = load_in_turns(&frontend, servers.len());
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

const LOOK: Duration = Duration::from_secs(6);

/// Sends bursts of single rows; returns the errors.
async fn bursts(frontend: &Frontend, count: usize) -> Vec<String> {
    let mut errors = Vec::new();
    for _ in 0..count {
        let asked: Vec<_> = (0..64u8).map(|value| start(frontend, request(&[f32::from(value)]))).collect();
        for (value, asked) in asked.into_iter().enumerate() {
            match asked.await.unwrap() {
                Ok(response) => assert_eq!(column(&response), [2.0 * value as f32]),
                Err(error) => errors.push(error.to_string()),
            }
        }
    }
    errors
}

fn largest(instance: &Scripted) -> usize {
    instance.batches().into_iter().max().unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn batches_fit_each_instance_when_limits_differ_or_change() {
    for size in [BatchSize::Fixed(NonZeroU16::new(32).unwrap()), BatchSize::Auto] {
        for (first, last) in [([4, 64], None), ([64, 4], None), ([64, 64], Some([4, 4]))] {
            let mut config = config(PolicyKind::Hedge);
            config.dispatch.batch.max_size = size;
            let instances = workers(2, 10);
            instances.iter().zip(first).for_each(|(instance, most)| instance.says_max_batch(most));
            let frontend = over(config, &instances).await;
            let mut errors = bursts(&frontend, 6).await;
            if let Some(last) = last {
                instances.iter().zip(last).for_each(|(instance, most)| instance.says_max_batch(most));
                tokio::time::sleep(2 * LOOK).await;
                instances.iter().for_each(|instance| instance.seen.lock().clear());
                errors.extend(bursts(&frontend, 6).await);
            }
            let had = [largest(&instances[0]), largest(&instances[1])];
            assert!(errors.is_empty() && had[0].max(had[1]) <= 4, "{size:?} {first:?} {had:?}: {errors:?}");
        }
    }
}

/// The policy that runs for the model, and why it differs from the requested one.
async fn in_force(frontend: &Frontend) -> (String, String) {
    let (_, settings) = get(frontend, "/settings/double").await;
    let own = &settings["in_force"]["1"];
    let text = |name: &str| own[name].as_str().unwrap_or_default().to_owned();
    (text("policy"), text("not_coded"))
}

#[tokio::test(start_paused = true)]
async fn model_is_tried_again_when_its_file_changes() {
    let instances = workers(3, 10);
    instances.iter().for_each(|instance| instance.says_digest("a"));
    let frontend = over(coded(PolicyKind::ParmPlus, 2, 1), &instances).await;
    until("it is coded", || metric(&frontend, "parm_codes", &[]) > 0.0).await;
    assert_eq!(in_force(&frontend).await, ("parm+".into(), String::new()));
    // Parities of one file do not fit predictions of another.
    instances[0].says_digest("b");
    tokio::time::sleep(LOOK).await;
    let (policy, why) = in_force(&frontend).await;
    assert!(policy == "hedge" && why.contains("different files"), "{policy} {why}");
    // The new file is not linear.
    instances.iter().for_each(|instance| {
        instance.says_digest("b");
        instance.becomes(Act::bent(10 * MS));
    });
    tokio::time::sleep(2 * LOOK).await;
    let (policy, why) = in_force(&frontend).await;
    assert!(policy == "hedge" && why.contains("is not linear"), "{policy} {why}");
    for _ in 0..4 {
        instances[0].then(Act::Hang);
        let brief = |value| with(request(&[value]), "timeout", 500_000u64);
        let asked = [(-3.0, 0.0), (5.0, 10.0)].map(|(value, right)| (right, start(&frontend, brief(value))));
        for (right, asked) in asked {
            let Ok(response) = asked.await.unwrap() else { continue };
            assert!((column(&response)[0] - right).abs() < 1e-3, "{response:?}");
        }
    }
    // A linear file again.
    instances[0].script.lock().clear();
    instances.iter().for_each(|instance| {
        instance.says_digest("c");
        instance.becomes(Act::Answer(10 * MS));
    });
    tokio::time::sleep(2 * LOOK).await;
    assert_eq!(in_force(&frontend).await, ("parm+".into(), String::new()));
}

#[tokio::test(start_paused = true)]
async fn requests_stay_whole_once_rows_are_no_batch() {
    let instances = workers(2, 10);
    instances.iter().for_each(|instance| {
        instance.says_digest("a");
        instance.says_max_batch(64);
    });
    let frontend = over(config(PolicyKind::None), &instances).await;
    infer(&frontend, request(&[1.0, 2.0])).await.unwrap();
    let arrived = || metric(&frontend, "parm_dispatch_total", &["event=\"arrived\""]);
    let before = arrived();
    instances.iter().for_each(|instance| instance.says_max_batch(0));
    let (mut split, mut failed) = (0, Vec::new());
    for number in 0..60 {
        instances.iter().for_each(|instance| instance.seen.lock().clear());
        match infer(&frontend, request(&[1.0, 2.0])).await {
            Ok(_) => split += usize::from(instances.iter().all(|instance| largest(instance) == 1)),
            Err(error) => failed.push((number, error.to_string())),
        }
        tokio::time::sleep(100 * MS).await;
    }
    // The frontend describes the instances again at once, but not more than once a second.
    assert!(split == 0 && failed.iter().all(|(number, _)| *number < 20), "{split} {failed:?}");
    assert!(arrived() >= before + 60.0 - failed.len() as f64, "counters go on");
}

/// Without retries, a request that an updated instance rejects fails at once: a second later the others have the model, too.
#[tokio::test(start_paused = true)]
async fn rejected_request_fails_at_once_when_none_is_retried() {
    let mut config = config(PolicyKind::Hedge);
    config.dispatch.retry = BudgetSettings { ratio: Fraction::percent(20), burst: 0 };
    let instances = workers(3, 10);
    let frontend = over(config.clone(), &instances).await;
    instances[0].serve(&[version(2)]);
    for _ in 0..6 {
        let began = tokio::time::Instant::now();
        let answer = infer(&frontend, request(&[1.0])).await;
        assert!(began.elapsed() < 100 * MS, "{:?}: {answer:?}", began.elapsed());
    }
    // One that a single instance serves waits for its new version.
    let instances = workers(1, 10);
    let frontend = over(config, &instances).await;
    instances[0].serve(&[version(2)]);
    assert_eq!(infer(&frontend, request(&[1.0])).await.unwrap().model_version, "2");
}

#[tokio::test(start_paused = true)]
async fn other_form_at_all_instances_is_served_after_one_look() {
    let form = |dtype: &str, outputs: usize, width: i64| {
        let mut model = doubler("double");
        model.outputs.truncate(outputs);
        model.outputs[0].datatype = dtype.into();
        model.outputs[0].shape[1] = width;
        model
    };
    for (policy, other) in [
        (PolicyKind::Hedge, form("FP32", 1, 2)),
        (PolicyKind::Hedge, form("FP64", 2, 2)),
        (PolicyKind::Hedge, form("FP32", 2, -1)),
        (PolicyKind::None, form("FP32", 1, 2)),
    ] {
        let instances = workers(4, 10);
        let frontend = over(config(policy), &instances).await;
        infer(&frontend, request(&[1.0])).await.unwrap();
        instances.iter().for_each(|instance| instance.serve(std::slice::from_ref(&other)));
        tokio::time::sleep(LOOK).await;
        assert_eq!(ready(&frontend), 4.0, "{other:?}");
        let shown = frontend.model_metadata(&ModelRef::latest("double")).unwrap();
        assert_eq!(shown.outputs, other.outputs);
        for _ in 0..20 {
            infer(&frontend, request(&[1.0])).await.unwrap();
        }
    }
}
