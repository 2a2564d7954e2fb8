//! Tests of requests that share batches: a bad request must not affect others or instances.

use std::num::NonZeroU16;
use std::sync::atomic::Ordering;

use parm_frontend::Config;
use parm_protocol::{Code, Error};
use parm_settings::PolicyKind;

use crate::fleet::{MS, over};
use crate::rig::{column, config, frontend, infer, metric, request, start, until};
use crate::scripted::{Act, Scripted};

/// A value that every instance rejects.
const BAD: f32 = 99.0;

fn batching(size: u16) -> Config {
    let mut config = config(PolicyKind::None);
    config.dispatch.ejection.enabled = true;
    config.dispatch.batch.max_size = NonZeroU16::new(size).expect("positive").into();
    config
}

/// Ejections while a client repeats a query that fails with this error at every instance.
async fn ejections(error: Error) -> f64 {
    let instances = ["a", "b", "c"].map(|name| Scripted::new(name, Act::Unless(MS, BAD, error.clone())));
    let frontend = over(batching(1), &instances).await;
    for _ in 0..6 {
        infer(&frontend, request(&[BAD])).await.unwrap_err();
    }
    metric(&frontend, "parm_ejections_total", &["reason=\"failing\""])
}

/// Clients report an answer that they cannot read as internal, and a broken connection as such.
#[tokio::test(start_paused = true)]
async fn query_with_unreadable_answers_ejects_no_instance() {
    let message = "unreadable answer: NaN is not JSON".to_owned();
    assert_eq!(ejections(Error::Remote { code: Code::Internal, message: message.clone() }).await, 0.0);
    assert!(ejections(Error::Transport { peer: "a".into(), message }).await > 0.0);
}

/// Without retries a row that fails with another client's row would never be tried alone.
#[tokio::test(start_paused = true)]
async fn clients_share_no_batch_when_each_query_is_sent_once() {
    let error = || Error::Internal { message: "index out of range".into() };
    let instance = Scripted::new("a", Act::Unless(10 * MS, BAD, error()));
    let mut config = batching(8);
    config.dispatch.policy = PolicyKind::Once;
    let frontend = frontend(config, &[&instance]).await;
    let first = start(&frontend, request(&[1.0]));
    until("the instance is busy", || instance.seen.lock().len() == 1).await;
    let [guilty, stranger] = [BAD, 5.0].map(|value| start(&frontend, request(&[value])));
    let own = start(&frontend, request(&[2.0, 3.0, 4.0]));
    assert_eq!(column(&stranger.await.unwrap().unwrap()), [10.0]);
    assert_eq!(guilty.await.unwrap().unwrap_err().code(), Code::Internal);
    assert_eq!(column(&first.await.unwrap().unwrap()), [2.0]);
    assert_eq!(column(&own.await.unwrap().unwrap()), [4.0, 6.0, 8.0]);
    assert!(instance.batches().contains(&2), "rows of one request share a batch: {:?}", instance.batches());
}

#[tokio::test(start_paused = true)]
async fn requests_must_not_run_twice_when_each_is_sent_once() {
    for (policy, told) in [(PolicyKind::None, 0), (PolicyKind::Once, 1)] {
        let instance = Scripted::quick("a", 10);
        let frontend = frontend(config(policy), &[&instance]).await;
        infer(&frontend, request(&[1.0])).await.unwrap();
        assert_eq!(instance.once.load(Ordering::SeqCst), told, "{policy:?}");
    }
}
