//! Tests of workers behind a Service of Kubernetes, with failures of the API server.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parm_frontend::discovery::kubernetes::{ApiServer, Service};
use parm_frontend::{Config, Error, Frontend, Timers};
use parm_settings::PolicyKind;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::cluster::{Cluster, Manner, ending, pod};
use crate::rig::{Network, call, config, get, infer, metric, ready, request, start, started, until};
use crate::scripted::{Act, Scripted};

const SERVICE: &str = "kubernetes+test://workers.ml:http";

/// A frontend that follows a Service, and three workers for its pods.
struct Followed {
    cluster: Arc<Cluster>,
    workers: [Arc<Scripted>; 3],
    network: Arc<Network>,
    frontend: Frontend,
}

impl Followed {
    fn start(cluster: Arc<Cluster>, change: impl FnOnce(&mut Config)) -> Self {
        let workers = [1, 2, 3].map(|number| Scripted::quick(&format!("test://10.0.0.{number}:8000"), 40));
        let network = Network::with(&workers.each_ref());
        network.has(&cluster);
        let mut config = Config { workers: vec![SERVICE.into()], ..config(PolicyKind::None) };
        config.kubernetes.server = Some("http://api.test".into());
        change(&mut config);
        let frontend = Frontend::start(config, network.clone(), Timers::Runtime).unwrap();
        Self { cluster, workers, network, frontend }
    }

    /// Starts with pods for the first `pods` workers, each on its own node, in one slice.
    async fn with(pods: usize) -> Self {
        let followed = Self::start(Cluster::with(&well(pods)), |_| {});
        followed.until_ready(pods).await;
        followed
    }

    async fn until_ready(&self, count: usize) {
        until("the instances are ready", || ready(&self.frontend) == count as f64).await;
    }

    async fn until_current(&self, current: bool) {
        let expected = if current { 1.0 } else { 0.0 };
        until("the state is known", || self.metric("parm_kubernetes_current") == expected).await;
    }

    fn metric(&self, name: &str) -> f64 {
        metric(&self.frontend, name, &[&format!("service=\"{SERVICE}\"")])
    }

    /// A worker's node and zone in the admin API.
    async fn place(&self, address: &str) -> (Value, Value) {
        let (_, instances) = get(&self.frontend, "/instances").await;
        let own = instances.as_array().unwrap().iter().find(|one| one["address"] == address);
        let own = own.unwrap_or_else(|| panic!("unknown instance {address}: {instances}"));
        assert_eq!(own["source"], "kubernetes");
        (own["node"].clone(), own["zone"].clone())
    }

    async fn works(&self) {
        infer(&self.frontend, request(&[1.0])).await.unwrap();
    }

    fn seen(&self) -> [usize; 3] {
        self.workers.each_ref().map(|worker| worker.seen.lock().len())
    }
}

/// The first `pods` workers as healthy pods, each on its own node.
fn well(pods: usize) -> Vec<Value> {
    (1..=pods).map(|number| pod(&format!("10.0.0.{number}"), &format!("n{number}"), json!({}))).collect()
}

/// Conditions of a pod that is neither ready nor terminating.
fn unready() -> Value {
    json!({"conditions": {"ready": false, "serving": false, "terminating": false}})
}

#[tokio::test(start_paused = true)]
async fn terminating_pod_drains() {
    let followed = Followed::with(2).await;
    let first = pod("10.0.0.1", "n1", ending(true));
    followed.cluster.put("w-1", &[first, well(2)[1].clone()]);
    // Its job lasts until the next list.
    followed.workers[0].becomes(Act::Answer(Duration::from_secs(3)));
    let held = [start(&followed.frontend, request(&[1.0])), start(&followed.frontend, request(&[2.0]))];
    followed.until_ready(1).await;
    for request in held {
        request.await.unwrap().unwrap();
    }
    let [before, ..] = followed.seen();
    followed.works().await;
    // It stays drained while it is listed, and nothing changes when it is gone.
    sleep(Duration::from_secs(40)).await;
    followed.cluster.put("w-1", &well(2)[1..]);
    sleep(Duration::from_secs(40)).await;
    followed.works().await;
    assert_eq!((ready(&followed.frontend), followed.seen()[0]), (1.0, before));
    assert!(before > 0, "it had a job when it terminated");
}

#[tokio::test(start_paused = true)]
async fn empty_service_changes_nothing() {
    let followed = Followed::with(2).await;
    followed.cluster.put("w-1", &[]);
    until("it was seen", || followed.metric("parm_kubernetes_endpoints") == 0.0).await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(ready(&followed.frontend), 2.0);
    // The next endpoints replace all others.
    followed.cluster.put("w-3", &well(3)[2..]);
    until("the other instances are gone", || {
        let page = followed.frontend.metrics();
        ready(&followed.frontend) == 1.0 && page.contains("10.0.0.3:8000") && !page.contains("10.0.0.1:8000")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn unavailable_api_server_removes_no_instance() {
    for manner in [
        Manner::Away,
        Manner::Silent,
        Manner::Refuses(500, "etcd is unavailable"),
        Manner::Refuses(403, "no"),
        Manner::Babbles("<html>"),
        Manner::Babbles("{}"),
        Manner::Endless,
    ] {
        let followed = Followed::with(2).await;
        followed.cluster.is(manner.clone());
        followed.until_current(false).await;
        // An endless list has 64 MiB each time.
        let seconds = if matches!(manner, Manner::Endless) { 3 } else { 60 };
        sleep(Duration::from_secs(seconds)).await;
        let current = followed.metric("parm_kubernetes_current");
        assert_eq!((ready(&followed.frontend), current), (2.0, 0.0), "{manner:?}");
        followed.works().await;
        followed.cluster.put("w-1", &well(3));
        followed.cluster.is(Manner::Answers);
        followed.until_ready(3).await;
        followed.until_current(true).await;
    }
}

#[tokio::test(start_paused = true)]
async fn endpoint_over_limit_is_added_when_another_leaves() {
    let followed =
        Followed::start(Cluster::with(&well(3)), |config| config.instances.limit = 2.try_into().unwrap());
    followed.until_ready(2).await;
    let gone = [pod("10.0.0.1", "n1", ending(false)), well(3)[1].clone(), well(3)[2].clone()];
    followed.cluster.put("w-1", &gone);
    until("the third instance joined", || followed.frontend.metrics().contains("10.0.0.3:8000")).await;
    followed.until_ready(2).await;
}

#[tokio::test(start_paused = true)]
async fn pod_that_becomes_ready_is_connected_at_once() {
    let followed = Followed::start(Cluster::with(&[pod("10.0.0.1", "n1", unready())]), |config| {
        config.instances.connect_backoff_min = Duration::from_secs(500);
        config.instances.connect_backoff_max = Duration::from_secs(500);
    });
    followed.network.kill(&followed.workers[0]);
    let connecting = || metric(&followed.frontend, "parm_instances", &["state=\"connecting\""]) == 1.0;
    until("the instance is connecting", connecting).await;
    sleep(Duration::from_secs(1)).await;
    followed.workers[0].set_ready(Ok(true));
    followed.network.start(&followed.workers[0]);
    followed.cluster.put("w-1", &well(1));
    let before = Instant::now();
    followed.until_ready(1).await;
    assert!(before.elapsed() < Duration::from_secs(3), "it must not wait for the next attempt");
}

#[tokio::test(start_paused = true)]
async fn pod_not_ready_or_at_another_node_keeps_serving() {
    let followed = Followed::with(2).await;
    let moved = pod("10.0.0.2", "n9", json!({"zone": "y"}));
    followed.cluster.put("w-1", &[pod("10.0.0.1", "n1", unready()), moved]);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(ready(&followed.frontend), 2.0);
    assert_eq!(followed.place("test://10.0.0.2:8000").await, (json!("n9"), json!("y")));
    followed.works().await;
}

#[tokio::test(start_paused = true)]
async fn member_removed_by_an_operator_stays_removed() {
    let followed = Followed::with(2).await;
    let (_, instances) = get(&followed.frontend, "/instances").await;
    let first = instances.as_array().unwrap().iter().find(|one| one["node"] == "n1").unwrap();
    let path = format!("/instances/{}", first["number"]);
    call(&followed.frontend, "DELETE", &path, json!(null)).await;
    followed.until_ready(1).await;
    followed.cluster.put("w-2", &well(3)[2..]);
    followed.until_ready(2).await;
    sleep(Duration::from_secs(400)).await;
    assert_eq!(ready(&followed.frontend), 2.0);
}

/// The folder of a service account.
fn account(token: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let key = rcgen::generate_simple_self_signed(vec!["api.test".into()]).unwrap();
    for (file, text) in [("token", token), ("namespace", "ml\n"), ("ca.crt", &key.cert.pem())] {
        fs::write(folder.path().join(file), text).unwrap();
    }
    folder
}

#[tokio::test(start_paused = true)]
async fn token_is_read_for_each_request() {
    let (folder, cluster) = (account("first\n"), Cluster::with(&well(1)));
    cluster.knows("first");
    let followed = Followed::start(cluster, |config| {
        config.kubernetes.server = Some("https://api.test".into());
        config.kubernetes.service_account = folder.path().into();
    });
    followed.until_ready(1).await;
    // A late rotation is a failure that ends by itself.
    followed.cluster.knows("second");
    followed.until_current(false).await;
    fs::write(folder.path().join("token"), "second").unwrap();
    followed.until_current(true).await;
    assert_eq!(ready(&followed.frontend), 1.0);
}

async fn look(cluster: &Arc<Cluster>, account: &Path) -> Result<(Vec<String>, Option<String>), String> {
    let network = Network::with(&[]);
    network.has(cluster);
    let config = parm_frontend::discovery::kubernetes::Config {
        server: Some("https://api.test".into()),
        service_account: account.into(),
    };
    let service = Service::read("kubernetes+test://workers:http").unwrap().unwrap();
    ApiServer::open(&config, &service, network)?.look().await
}

#[tokio::test(start_paused = true)]
async fn look_reports_endpoints_or_missing_permission() {
    let pods = [pod("10.0.0.1", "n1", json!({})), pod("10.0.0.2", "n1", ending(true))];
    let (folder, cluster) = (account("t"), Cluster::with(&pods));
    assert_eq!(look(&cluster, folder.path()).await, Ok((vec!["test://10.0.0.1:8000".into()], None)));
    let path = "/apis/discovery.k8s.io/v1/namespaces/ml/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dworkers";
    assert!(cluster.asked()[0].starts_with(path), "the own namespace must be listed: {:?}", cluster.asked());
    cluster.is(Manner::Refuses(403, "User \"system:serviceaccount:ml:parm\" cannot list"));
    let told = look(&cluster, folder.path()).await.unwrap_err();
    for word in ["bind a Role", "list endpointslices", "namespace ml", "system:serviceaccount:ml:parm"] {
        assert!(told.contains(word), "expected {word:?} in {told}");
    }
    cluster.knows("another");
    assert!(look(&cluster, folder.path()).await.unwrap_err().contains("(401)"));
}

#[tokio::test(start_paused = true)]
async fn invalid_kubernetes_settings_are_an_error_at_start() {
    let empty = tempfile::tempdir().unwrap();
    let start = |url: &str, server: &str| {
        let mut config = Config { workers: vec![url.into()], ..config(PolicyKind::None) };
        config.kubernetes.server = Some(server.into());
        config.kubernetes.service_account = empty.path().into();
        started(config).err().unwrap()
    };
    for (url, server, word) in [
        ("kubernetes+test://No.Service:http", "http://api.test", "SERVICE[.NAMESPACE][:PORT]"),
        ("kubernetes+http://workers.ml:http", "http://api.test", "not an address of the tests"),
        (SERVICE, "api.test", "https://HOST:PORT"),
        (SERVICE, "https://api.test", "automountServiceAccountToken"),
        ("kubernetes+test://workers:http", "http://api.test", "has no namespace"),
    ] {
        let error = start(url, server);
        assert!(matches!(&error, Error::BadUrl { .. } | Error::Service { .. }), "{error:?}");
        assert!(error.to_string().contains(word), "expected {word:?} in {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn terminating_pods_serve_until_a_new_one_does() {
    let followed = Followed::with(2).await;
    followed.network.kill(&followed.workers[2]);
    let old = ["10.0.0.1", "10.0.0.2"].map(|host| pod(host, "n", ending(true)));
    let pods = |new| [old[0].clone(), old[1].clone(), pod("10.0.0.3", "n", new)];
    followed.cluster.put("w-1", &pods(unready()));
    for _ in 0..10 {
        followed.works().await;
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(ready(&followed.frontend), 2.0, "they are all that serves");
    followed.workers[2].set_ready(Ok(true));
    followed.network.start(&followed.workers[2]);
    followed.until_ready(3).await;
    followed.cluster.put("w-1", &pods(json!({})));
    followed.until_ready(1).await;
    followed.works().await;
    assert_eq!(followed.workers[2].seen.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn model_is_not_unknown_while_new_pods_start() {
    let followed = Followed::with(1).await;
    followed.network.kill(&followed.workers[1]);
    // The old pod is gone before the new one is connected.
    followed.cluster.put("w-1", &[pod("10.0.0.1", "n1", ending(false)), well(2)[1].clone()]);
    followed.until_ready(0).await;
    sleep(Duration::from_secs(5)).await;
    let error = infer(&followed.frontend, request(&[1.0])).await.unwrap_err();
    assert!(matches!(error, parm_protocol::Error::Unavailable { .. }), "{error:?}");
    followed.workers[1].set_ready(Ok(true));
    followed.network.start(&followed.workers[1]);
    followed.until_ready(1).await;
    followed.works().await;
}
