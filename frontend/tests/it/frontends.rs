//! Frontends over the same servers, which give no tokens: they hear what the others hold.

use std::sync::Arc;
use std::time::Duration;

use parm_dispatch::PolicyKind;
use parm_frontend::{Config, Error, Frontend, Timers};
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
            until("all servers are there", || ready(frontend) == 4.0).await;
        }
        two
    }

    /// The same without servers.
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
        until("neighbours are heard, or not any more", || heard() == counts).await;
    }

    /// Requests that each server has seen.
    fn seen(&self) -> Vec<usize> {
        self.servers.iter().map(|server| server.seen.lock().len()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn two_frontends_meet_nowhere_while_there_is_another_server() {
    let two = Two::start().await;
    two.until_heard([1.0, 1.0]).await;
    let [one, other] = &two.frontends;
    // Each begins with its own two.
    let asked = [one, other, one, other].map(|frontend| start(frontend, request(&[1.0])));
    until("all are given", || two.seen().iter().sum::<usize>() == 4).await;
    assert_eq!(two.seen(), [1, 1, 1, 1]);
    for answer in asked {
        answer.await.unwrap().unwrap();
    }
    tokio::time::sleep(Duration::from_millis(5)).await;
    // One alone uses all of them.
    let asked = [1.0; 4].map(|x| start(one, request(&[x])));
    until("all are given", || two.seen().iter().sum::<usize>() == 8).await;
    assert_eq!(two.seen(), [2, 2, 2, 2]);
    tokio::time::sleep(Duration::from_millis(5)).await;
    // What comes to the other waits here for the first that is free, and for as long as a batch takes at most.
    let late = start(other, request(&[9.0]));
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(two.seen(), [2, 2, 2, 2]);
    late.await.unwrap().unwrap();
    for answer in asked {
        answer.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn threads_of_a_process_are_its_own_though_another_has_some_of_the_same_name() {
    let two = Two::over_none();
    for (frontend, server) in two.frontends.iter().zip(&two.servers) {
        frontend.embed(server.clone(), None).unwrap();
        until("it is there", || ready(frontend) == 1.0).await;
    }
    two.until_heard([1.0, 1.0]).await;
    let asked = start(&two.frontends[0], request(&[1.0]));
    tokio::time::sleep(Duration::from_millis(10)).await;
    let other = start(&two.frontends[1], request(&[1.0]));
    tokio::time::sleep(Duration::from_millis(3)).await;
    assert_eq!(two.seen(), [1, 1, 0, 0], "nobody waits for the other's");
    asked.await.unwrap().unwrap();
    other.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_neighbour_that_is_gone_holds_nothing() {
    let mut two = Two::start().await;
    two.until_heard([1.0, 1.0]).await;
    let asked = [1.0; 4].map(|x| start(&two.frontends[0], request(&[x])));
    until("all are given", || two.seen() == [1, 1, 1, 1]).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    two.admins.clear();
    two.network.severs();
    two.until_heard([0.0, 0.0]).await;
    infer(&two.frontends[1], request(&[1.0])).await.unwrap();
    // It comes back at another time.
    let admins = two.frontends.iter().zip(["10.0.0.1:8003", "10.0.0.2:8003"]);
    two.admins = admins.map(|(frontend, at)| two.network.listens(at, frontend)).collect();
    two.until_heard([1.0, 1.0]).await;
    for answer in asked {
        answer.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_ends_and_holds_nothing_is_not_heard_again() {
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
async fn names_stand_for_all_frontends_and_nobody_listens_to_itself() {
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
async fn a_key_is_asked_for_and_only_one_that_may_read_is_told() {
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
async fn an_address_that_cannot_be_one_is_an_error_at_once() {
    for url in ["10.0.0.1:8003", "frames://10.0.0.1:8003", "dns+http://frontends", "https://10.0.0.1:8003"] {
        let error = Frontend::start(beside(url), Network::with(&[]), Timers::Runtime).err().unwrap();
        assert!(matches!(&error, Error::BadNeighbour { .. }), "{url}: {error:?}");
        assert!(error.to_string().contains(url), "{error}");
    }
}
