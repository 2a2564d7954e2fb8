//! Tests of several frontends over the same servers without tokens, which exchange their load.

use std::sync::Arc;
use std::time::Duration;

use parm_frontend::{Config, Error, Frontend, Timers};
use parm_settings::PolicyKind;
use parm_transport::client::Token;
use tokio_util::task::AbortOnDropHandle;

use crate::rig::{Network, config, infer, metric, ready, request, start, until};
use crate::scripted::Scripted;

const SERVERS: [&str; 4] = ["test://a", "test://b", "test://c", "test://d"];

/// Two frontends over four servers that take 40 ms.
struct Two {
    servers: Vec<Arc<Scripted>>,
    network: Arc<Network>,
    frontends: [Frontend; 2],
    admins: Vec<AbortOnDropHandle<()>>,
}

fn beside(neighbour: &str) -> Config {
    let mut config = config(PolicyKind::None);
    config.workers = SERVERS.map(str::to_owned).to_vec();
    config.neighbours.urls = vec![neighbour.into()];
    config
}

impl Two {
    async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    async fn start_with(change: impl Fn(&mut Config)) -> Self {
        let two = Self::new(change);
        for frontend in &two.frontends {
            until("all servers are ready", || ready(frontend) == 4.0).await;
        }
        two
    }

    /// Two frontends without servers.
    fn over_none() -> Self {
        Self::new(|config| config.workers.clear())
    }

    fn new(change: impl Fn(&mut Config)) -> Self {
        let servers = SERVERS.map(|name| Scripted::quick(name, 40)).to_vec();
        let network = Network::with(&servers.iter().collect::<Vec<_>>());
        let frontends = ["http://10.0.0.2:8003", "http://10.0.0.1:8003"].map(|neighbour| {
            let mut config = beside(neighbour);
            change(&mut config);
            Frontend::start(config, network.clone(), Timers::Runtime).unwrap()
        });
        let admins = frontends.iter().zip(["10.0.0.1:8003", "10.0.0.2:8003"]);
        let admins = admins.map(|(frontend, at)| network.listens(at, frontend)).collect();
        Self { servers, network, frontends, admins }
    }

    async fn until_heard(&self, counts: [f64; 2]) {
        let heard = || [0, 1].map(|at| metric(&self.frontends[at], "parm_neighbours", &[]));
        until("the number of neighbours matches", || heard() == counts).await;
    }

    /// Number of requests that each server has received.
    fn seen(&self) -> Vec<usize> {
        self.servers.iter().map(|server| server.seen.lock().len()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn frontends_use_different_servers_while_one_is_free() {
    let two = Two::start().await;
    two.until_heard([1.0, 1.0]).await;
    let [one, other] = &two.frontends;
    // Each begins with its own two servers.
    let asked = [one, other, one, other].map(|frontend| start(frontend, request(&[1.0])));
    until("all jobs are sent", || two.seen().iter().sum::<usize>() == 4).await;
    assert_eq!(two.seen(), [1, 1, 1, 1]);
    for answer in asked {
        answer.await.unwrap().unwrap();
    }
    tokio::time::sleep(Duration::from_millis(5)).await;
    // A single busy frontend uses all of them.
    let asked = [1.0; 4].map(|x| start(one, request(&[x])));
    until("all jobs are sent", || two.seen().iter().sum::<usize>() == 8).await;
    assert_eq!(two.seen(), [2, 2, 2, 2]);
    tokio::time::sleep(Duration::from_millis(5)).await;
    // A query of the other frontend waits for the first free server, at most for the time of a batch.
    let late = start(other, request(&[9.0]));
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(two.seen(), [2, 2, 2, 2]);
    late.await.unwrap().unwrap();
    for answer in asked {
        answer.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn embedded_instances_are_not_shared_despite_equal_names() {
    let two = Two::over_none();
    for (frontend, server) in two.frontends.iter().zip(&two.servers) {
        frontend.embed(server.clone(), None).unwrap();
        until("the instance is ready", || ready(frontend) == 1.0).await;
    }
    two.until_heard([1.0, 1.0]).await;
    let asked = start(&two.frontends[0], request(&[1.0]));
    tokio::time::sleep(Duration::from_millis(10)).await;
    let other = start(&two.frontends[1], request(&[1.0]));
    tokio::time::sleep(Duration::from_millis(3)).await;
    assert_eq!(two.seen(), [1, 1, 0, 0], "queries must not wait for instances of the other process");
    asked.await.unwrap().unwrap();
    other.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn lost_neighbours_jobs_are_ignored() {
    let mut two = Two::start().await;
    two.until_heard([1.0, 1.0]).await;
    let asked = [1.0; 4].map(|x| start(&two.frontends[0], request(&[x])));
    until("all jobs are sent", || two.seen() == [1, 1, 1, 1]).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    two.admins.clear();
    two.network.severs();
    two.until_heard([0.0, 0.0]).await;
    infer(&two.frontends[1], request(&[1.0])).await.unwrap();
    // It comes back later.
    let admins = two.frontends.iter().zip(["10.0.0.1:8003", "10.0.0.2:8003"]);
    two.admins = admins.map(|(frontend, at)| two.network.listens(at, frontend)).collect();
    two.until_heard([1.0, 1.0]).await;
    for answer in asked {
        answer.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn stopped_neighbour_without_jobs_is_not_followed() {
    let two = Two::start().await;
    two.until_heard([1.0, 1.0]).await;
    two.frontends[0].start_draining();
    two.until_heard([1.0, 0.0]).await;
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(metric(&two.frontends[1], "parm_neighbours", &[]), 0.0);
    }
}

#[tokio::test(start_paused = true)]
async fn name_of_all_frontends_excludes_itself() {
    let two = Two::start_with(|config| {
        config.neighbours.urls = vec!["dns+http://frontends.ml:8003".into()];
    })
    .await;
    two.network.resolves(Ok(&["10.0.0.1:8003", "10.0.0.2:8003"]));
    two.until_heard([1.0, 1.0]).await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    two.until_heard([1.0, 1.0]).await;
    two.network.resolves(Ok(&["10.0.0.1:8003"]));
    two.until_heard([0.0, 1.0]).await;
}

#[tokio::test(start_paused = true)]
async fn neighbour_needs_a_key_with_role_read() {
    let locked = |token: &'static str| {
        move |config: &mut Config| {
            config.admin.token = Some(Token::new("open sesame"));
            config.neighbours.token = Some(Token::new(token));
        }
    };
    let two = Two::start_with(locked("open sesame")).await;
    two.until_heard([1.0, 1.0]).await;
    let two = Two::start_with(locked("wrong")).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    two.until_heard([0.0, 0.0]).await;
}

#[tokio::test(start_paused = true)]
async fn invalid_neighbour_address_is_an_error_at_start() {
    for url in ["10.0.0.1:8003", "frames://10.0.0.1:8003", "dns+http://frontends", "https://10.0.0.1:8003"] {
        let error = Frontend::start(beside(url), Network::with(&[]), Timers::Runtime).err().unwrap();
        assert!(matches!(&error, Error::BadNeighbour { .. }), "{url}: {error:?}");
        assert!(error.to_string().contains(url), "{error}");
    }
}
