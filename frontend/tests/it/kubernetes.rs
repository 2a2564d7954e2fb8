//! Workers behind a Service of Kubernetes: found, told apart by node, drained and kept, whatever the API server does.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parm_dispatch::PolicyKind;
use parm_frontend::discovery::kubernetes::{ApiServer, Service, Trouble};
use parm_frontend::{Config, Error, Frontend, Timers};
use serde_json::json;

use crate::cluster::{Cluster, Manner, ending, pod};
use crate::followed::{Followed, SERVICE, well};
use crate::rig::{Network, ask, config, get, metric, ready, request, start, until};

#[tokio::test(start_paused = true)]
async fn pods_are_found_with_their_nodes_and_new_ones_at_once() {
    let followed = Followed::with(1).await;
    assert_eq!(followed.place("test://10.0.0.1:8000").await, (json!("n1"), json!("z")));
    let asked = followed.cluster.asked("limit=").remove(0);
    let path = "/apis/discovery.k8s.io/v1/namespaces/ml/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dworkers";
    assert!(asked.starts_with(path), "{asked}");
    // Another slice of the same Service.
    followed.cluster.put("w-2", &well(3)[1..]);
    followed.until_ready(3).await;
    assert_eq!(followed.place("test://10.0.0.3:8000").await, (json!("n3"), json!("z")));
    followed.cluster.delete("w-2");
    followed.until_ready(1).await;
    assert_eq!(followed.lists(), 1, "a watch tells all of it");
    assert_eq!(followed.metric("parm_kubernetes_endpoints"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ends_gets_nothing_more_and_ends_what_it_holds() {
    let followed = Followed::with(2).await;
    let held = [start(&followed.frontend, request(&[1.0])), start(&followed.frontend, request(&[2.0]))];
    let seen = |worker: usize| followed.workers[worker].seen.lock().len();
    until("both work", || seen(0) == 1 && seen(1) == 1).await;
    let [first, second] = [pod("10.0.0.1", "n1", ending(true)), pod("10.0.0.2", "n2", json!({}))];
    followed.cluster.put("w-1", &[first, second.clone()]);
    let draining = || metric(&followed.frontend, "parm_instances", &["state=\"ready\""]) == 1.0;
    until("it drains", draining).await;
    for request in held {
        request.await.unwrap().unwrap();
    }
    followed.works().await;
    assert_eq!([seen(0), seen(1)], [1, 2]);
    // While it is still listed it stays away, and when it is gone nothing changes.
    followed.cluster.bookmark();
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(ready(&followed.frontend), 1.0);
    followed.cluster.put("w-1", &[second]);
    followed.works().await;
    assert_eq!([seen(0), seen(1)], [1, 3]);
}

#[tokio::test(start_paused = true)]
async fn where_all_pods_end_those_that_still_serve_go_on() {
    let followed = Followed::with(2).await;
    let ends = |serving: [bool; 2]| {
        [("10.0.0.1", serving[0]), ("10.0.0.2", serving[1])]
            .map(|(host, serving)| pod(host, "n", ending(serving)))
    };
    followed.cluster.put("w-1", &ends([true, false]));
    followed.until_ready(1).await;
    followed.works().await;
    assert_eq!(followed.workers[0].seen.lock().len(), 1);
    // They were seen to end, so that they are gone means something.
    followed.cluster.delete("w-1");
    followed.until_ready(0).await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_names_nobody_changes_nothing() {
    let followed = Followed::with(2).await;
    followed.cluster.put("w-1", &[]);
    followed.cluster.delete("w-1");
    until("that was seen", || followed.metric("parm_kubernetes_endpoints") == 0.0).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(ready(&followed.frontend), 2.0);
    // Who is named then is the whole truth again.
    followed.cluster.put("w-3", &well(3)[2..]);
    until("the others are gone", || {
        let page = followed.frontend.metrics();
        ready(&followed.frontend) == 1.0 && page.contains("10.0.0.3:8000") && !page.contains("10.0.0.1:8000")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_severed_watch_goes_on_from_where_it_was() {
    let followed = Followed::with(1).await;
    followed.cluster.bookmark();
    let version = followed.cluster.version();
    followed.cluster.severs();
    followed.until_current(false).await;
    // What happens meanwhile is told by the next watch.
    followed.cluster.put("w-2", &well(2)[1..]);
    followed.until_ready(2).await;
    followed.until_current(true).await;
    let last = followed.cluster.asked("watch=true").pop().unwrap();
    assert!(last.ends_with(&format!("&resourceVersion={version}")), "{last}");
    assert_eq!((followed.lists(), followed.metric("parm_kubernetes_failures_total")), (1, 1.0));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_as_it_should_is_no_failure_and_is_not_asked_for_without_end() {
    let followed = Followed::with(1).await;
    let asked = || followed.cluster.asked("watch=true").len();
    for watches in 2..=6 {
        followed.cluster.ends_watches();
        until("it is watched again", || asked() == watches).await;
    }
    assert_eq!((followed.lists(), followed.metric("parm_kubernetes_failures_total")), (1, 0.0));
    let cluster = followed.cluster.clone();
    let ends = tokio::spawn(async move {
        loop {
            cluster.ends_watches();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    tokio::time::sleep(Duration::from_secs(10)).await;
    ends.abort();
    assert!((10..=17).contains(&asked()), "{} watches in ten seconds", asked());
}

#[tokio::test(start_paused = true)]
async fn a_list_after_what_is_forgotten_shows_who_is_silently_gone() {
    for at_once in [true, false] {
        let followed = Followed::with(3).await;
        followed.cluster.put_silently("w-1", &well(2));
        followed.cluster.forgets(at_once);
        followed.cluster.severs();
        followed.until_ready(2).await;
        followed.until_current(true).await;
        assert_eq!(followed.lists(), 3, "at once: {at_once}: the second list that misses it decides");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_forgets_at_once_is_not_asked_without_end() {
    let followed = Followed::with(1).await;
    // Every version that a list gives is too old by the time of the watch.
    let cluster = followed.cluster.clone();
    let forgets = tokio::spawn(async move {
        loop {
            cluster.forgets(true);
            cluster.severs();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    tokio::time::sleep(Duration::from_secs(120)).await;
    forgets.abort();
    assert!(followed.lists() < 20, "{} lists in two minutes", followed.lists());
    assert_eq!(ready(&followed.frontend), 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_lapse_of_time_shows_what_no_watch_tells() {
    let followed = Followed::with(3).await;
    followed.cluster.put_silently("w-1", &well(1));
    tokio::time::sleep(Duration::from_secs(240)).await;
    assert_eq!(ready(&followed.frontend), 3.0, "nobody told it");
    tokio::time::sleep(Duration::from_secs(70)).await;
    assert_eq!((ready(&followed.frontend), followed.lists()), (1.0, 3));
}

#[tokio::test(start_paused = true)]
async fn pod_missing_from_one_list_stays() {
    let followed = Followed::with(3).await;
    followed.cluster.put_silently("w-1", &well(2));
    tokio::time::sleep(Duration::from_secs(260)).await;
    until("all is listed again", || followed.lists() == 2).await;
    followed.cluster.put_silently("w-1", &well(3));
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!((ready(&followed.frontend), followed.lists()), (3.0, 3), "the second list has it");
    followed.cluster.put_silently("w-1", &well(2));
    tokio::time::sleep(Duration::from_secs(240)).await;
    until("the pod is gone", || ready(&followed.frontend) == 2.0).await;
    assert_eq!(followed.lists(), 5);
}

#[tokio::test(start_paused = true)]
async fn frontends_that_start_together_list_apart() {
    let cluster = Cluster::new();
    cluster.put("w-1", &well(1));
    let followed: Vec<_> = (0..4).map(|_| Followed::start(cluster.clone())).collect();
    until("all have listed", || followed[0].lists() == 4).await;
    let began = tokio::time::Instant::now();
    tokio::time::sleep(Duration::from_secs(265)).await;
    let mut at = std::collections::BTreeSet::new();
    while followed[0].lists() < 8 {
        let before = followed[0].lists();
        tokio::time::sleep(Duration::from_millis(100)).await;
        if followed[0].lists() > before {
            at.insert(began.elapsed().as_millis());
        }
    }
    let (first, last) = (at.first().unwrap(), at.last().unwrap());
    assert!((269_000..=300_000).contains(first) && *last <= 301_000, "shortened by a tenth at most: {at:?}");
    assert!(at.len() >= 2, "all list again at {at:?} ms");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_died_without_a_word_is_noticed() {
    let followed = Followed::with(1).await;
    let asked = followed.cluster.asked("watch=true").len();
    // Nothing is said for longer than the watch was asked for.
    tokio::time::sleep(Duration::from_secs(72)).await;
    assert_eq!(followed.cluster.asked("watch=true").len(), asked + 1);
    assert_eq!(followed.lists(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_takes_nobody_away() {
    for manner in [
        Manner::Away,
        Manner::Silent,
        Manner::Refuses(500, "etcd is gone"),
        Manner::Refuses(403, "no"),
        Manner::Babbles("<html>"),
        Manner::Babbles("{}"),
    ] {
        let followed = Followed::with(2).await;
        followed.cluster.is(manner.clone());
        followed.cluster.severs();
        followed.until_current(false).await;
        tokio::time::sleep(Duration::from_secs(900)).await;
        assert_eq!(
            (ready(&followed.frontend), followed.metric("parm_kubernetes_current")),
            (2.0, 0.0),
            "{manner:?}"
        );
        followed.works().await;
        let asked = followed.cluster.asked("").len();
        assert!(asked < 50, "{manner:?}: asked {asked} times in a quarter of an hour");
        followed.cluster.put("w-1", &well(3));
        followed.cluster.is(Manner::Answers);
        followed.until_ready(3).await;
        followed.until_current(true).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_at_the_start_is_waited_for() {
    let cluster = Cluster::new();
    cluster.is(Manner::Away);
    cluster.put("w-1", &well(1));
    let followed = Followed::start(cluster);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(ready(&followed.frontend), 0.0);
    followed.cluster.is(Manner::Answers);
    followed.until_ready(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_line_that_cannot_be_read_leads_to_a_list_and_loses_nobody() {
    for garbage in
        ["nonsense", "{\"type\": \"ADDED\", \"object\": 5}", "{\"type\": \"PARTY\", \"object\": {}}"]
    {
        let followed = Followed::with(2).await;
        followed.cluster.put_silently("w-1", &well(3));
        followed.cluster.says(garbage);
        followed.until_ready(3).await;
        followed.until_current(true).await;
        assert_eq!(
            (followed.lists(), followed.metric("parm_kubernetes_failures_total")),
            (2, 1.0),
            "{garbage}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn lists_and_lines_without_end_are_refused_and_lose_nobody() {
    let followed = Followed::with(2).await;
    followed.cluster.says(&"x".repeat(5 << 20));
    followed.until_current(false).await;
    followed.until_current(true).await;
    followed.cluster.is(Manner::Endless);
    followed.cluster.says("nonsense");
    followed.until_current(false).await;
    let failures = followed.metric("parm_kubernetes_failures_total");
    until("the list is refused", || followed.metric("parm_kubernetes_failures_total") > failures).await;
    assert_eq!(ready(&followed.frontend), 2.0);
    followed.cluster.is(Manner::Answers);
    followed.until_current(true).await;
}

#[tokio::test(start_paused = true)]
async fn a_long_list_comes_in_pages() {
    let cluster = Cluster::new();
    for (number, pod) in well(3).into_iter().enumerate() {
        cluster.put(&format!("w-{number}"), &[pod]);
    }
    cluster.pages(1);
    let followed = Followed::start(cluster);
    followed.until_ready(3).await;
    assert_eq!(followed.cluster.asked("continue=").len(), 2);
    assert_eq!(followed.metric("parm_kubernetes_lists_total"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn endpoints_beyond_the_limit_of_instances_are_left_out_and_come_in_when_there_is_room() {
    let cluster = Cluster::new();
    cluster.put("w-1", &well(3));
    let followed = Followed::start_with(cluster, |config| config.instances.limit = 2.try_into().unwrap());
    followed.until_ready(2).await;
    followed.until_watched().await;
    let gone = [pod("10.0.0.1", "n1", ending(false)), well(3)[1].clone(), well(3)[2].clone()];
    followed.cluster.put("w-1", &gone);
    until("the third is in", || followed.frontend.metrics().contains("10.0.0.3:8000")).await;
    followed.until_ready(2).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_became_ready_is_connected_to_at_once() {
    let starting = json!({"conditions": {"ready": false, "serving": false, "terminating": false}});
    let cluster = Cluster::new();
    cluster.put("w-1", &[pod("10.0.0.1", "n1", starting)]);
    let followed = Followed::start_with(cluster, |config| {
        config.instances.connect_backoff_min = Duration::from_secs(500);
        config.instances.connect_backoff_max = Duration::from_secs(500);
    });
    followed.network.kill(&followed.workers[0]);
    until("it is known", || metric(&followed.frontend, "parm_instances", &["state=\"connecting\""]) == 1.0)
        .await;
    followed.until_watched().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    followed.workers[0].set_ready(Ok(true));
    followed.network.start(&followed.workers[0]);
    followed.cluster.put("w-1", &well(1));
    let before = tokio::time::Instant::now();
    followed.until_ready(1).await;
    assert!(before.elapsed() < Duration::from_secs(1), "it need not wait for the next try");
}

#[tokio::test(start_paused = true)]
async fn what_kubernetes_takes_for_not_ready_serves_as_long_as_it_does() {
    let followed = Followed::with(2).await;
    let cut_off = json!({"conditions": {"ready": false, "serving": false, "terminating": false}});
    followed.cluster.put("w-1", &[pod("10.0.0.1", "n1", cut_off.clone()), pod("10.0.0.2", "n2", cut_off)]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(ready(&followed.frontend), 2.0);
    followed.works().await;
}

#[tokio::test(start_paused = true)]
async fn an_address_that_is_another_pods_now_stands_on_that_ones_node() {
    let followed = Followed::with(1).await;
    followed.cluster.put("w-1", &[pod("10.0.0.1", "n9", json!({"zone": "y"}))]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(followed.place("test://10.0.0.1:8000").await, (json!("n9"), json!("y")));
    assert_eq!(ready(&followed.frontend), 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_was_removed_by_hand_stays_away() {
    let followed = Followed::with(2).await;
    let (_, instances) = get(&followed.frontend, "/instances").await;
    let first = instances.as_array().unwrap().iter().find(|one| one["node"] == "n1").unwrap();
    let path = format!("/instances/{}", first["number"]);
    ask("DELETE", &followed.frontend, &path).await;
    followed.until_ready(1).await;
    followed.cluster.put("w-2", &well(3)[2..]);
    followed.until_ready(2).await;
    tokio::time::sleep(Duration::from_secs(400)).await;
    assert_eq!(ready(&followed.frontend), 2.0);
}

/// A service account's folder.
fn account(token: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let key = rcgen::generate_simple_self_signed(vec!["api.test".into()]).unwrap();
    for (file, text) in [("token", token), ("namespace", "ml\n"), ("ca.crt", &key.cert.pem())] {
        fs::write(folder.path().join(file), text).unwrap();
    }
    folder
}

#[tokio::test(start_paused = true)]
async fn the_token_is_read_again_for_every_question() {
    let (folder, cluster) = (account("first\n"), Cluster::new());
    cluster.put("w-1", &well(1));
    cluster.knows("first");
    let followed = Followed::start_with(cluster, |config| {
        config.kubernetes.server = Some("https://api.test".into());
        config.kubernetes.service_account = folder.path().into();
    });
    followed.until_ready(1).await;
    followed.until_watched().await;
    // It is rotated, and the old one is not known any more: the watch that is open goes on.
    fs::write(folder.path().join("token"), "second").unwrap();
    followed.cluster.knows("second");
    followed.cluster.put("w-1", &well(2));
    followed.until_ready(2).await;
    followed.cluster.ends_watches();
    until("it is watched again", || followed.cluster.asked("watch=true").len() == 2).await;
    followed.until_watched().await;
    assert_eq!(followed.metric("parm_kubernetes_failures_total"), 0.0);
    // One that is rotated late is a failure that ends by itself.
    followed.cluster.knows("third");
    followed.cluster.severs();
    followed.until_current(false).await;
    fs::write(folder.path().join("token"), "third").unwrap();
    followed.until_current(true).await;
    assert_eq!(ready(&followed.frontend), 2.0);
}

async fn look(cluster: &Arc<Cluster>, account: &Path) -> Result<(Vec<String>, Option<String>), Trouble> {
    let network = Network::with(&[]);
    network.has(cluster);
    let config = parm_frontend::discovery::kubernetes::Config {
        server: Some("https://api.test".into()),
        service_account: account.into(),
        ..Default::default()
    };
    let service = Service::read("kubernetes+test://workers:http").unwrap().unwrap();
    ApiServer::open(&config, &service, network)?.look().await
}

#[tokio::test(start_paused = true)]
async fn a_look_says_who_is_there_or_which_right_is_missing() {
    let (folder, cluster) = (account("t"), Cluster::new());
    cluster.put("w-1", &[pod("10.0.0.1", "n1", json!({})), pod("10.0.0.2", "n1", ending(true))]);
    assert_eq!(look(&cluster, folder.path()).await, Ok((vec!["test://10.0.0.1:8000".into()], None)));
    assert_eq!(
        cluster.asked("namespaces/ml/").len(),
        2,
        "the namespace is our own, and watching is tried too"
    );
    cluster.is(Manner::Refuses(403, "User \"system:serviceaccount:ml:parm\" cannot list"));
    let told = look(&cluster, folder.path()).await.unwrap_err().to_string();
    for word in
        ["bind a Role", "list and watch endpointslices", "namespace ml", "system:serviceaccount:ml:parm"]
    {
        assert!(told.contains(word), "{word:?} is missing in {told}");
    }
    cluster.knows("another");
    assert_eq!(look(&cluster, folder.path()).await, Err(Trouble::Unauthenticated));
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_cannot_work_is_an_error_at_once() {
    let empty = tempfile::tempdir().unwrap();
    let start = |url: &str, server: &str| {
        let mut config = Config { workers: vec![url.into()], ..config(PolicyKind::None) };
        config.kubernetes.server = Some(server.into());
        config.kubernetes.service_account = empty.path().into();
        Frontend::start(config, Network::with(&[]), Timers::Runtime).err().unwrap()
    };
    for (url, server, word) in [
        ("kubernetes+test://No.Service:http", "http://api.test", "SERVICE[.NAMESPACE][:PORT]"),
        ("kubernetes+http://workers.ml:http", "http://api.test", "not of the tests"),
        (SERVICE, "api.test", "https://HOST:PORT"),
        (SERVICE, "https://api.test", "automountServiceAccountToken"),
        ("kubernetes+test://workers:http", "http://api.test", "no namespace is given"),
    ] {
        let error = start(url, server);
        assert!(matches!(&error, Error::BadUrl { .. } | Error::Service { .. }), "{error:?}");
        assert!(error.to_string().contains(word), "{word:?} is missing in {error}");
    }
}
