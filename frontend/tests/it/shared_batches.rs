//! Tests of requests that share batches: a bad request must not affect others or instances.

use std::num::NonZeroU16;
use std::sync::atomic::Ordering;

use parm_frontend::Config;
use parm_protocol::{Code, Error};
use parm_settings::PolicyKind;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::fleet::{MS, over};
use crate::rig::{column, config, frontend, infer, metric, ready, request, start, until};
use crate::scripted::{Act, Scripted};

/// A value that every instance rejects.
const BAD: f32 = 99.0;

fn refusal() -> Error {
    Error::Malformed { message: "index out of range".into() }
}

fn batching(size: u16) -> Config {
    let mut config = config(PolicyKind::None);
    config.dispatch.ejection.enabled = true;
    config.dispatch.batch.max_size = NonZeroU16::new(size).expect("positive").into();
    config
}

#[tokio::test(start_paused = true)]
async fn rejected_row_of_long_request_blames_no_instance() {
    let instances = [Scripted::quick("a", 10), Scripted::quick("b", 10)];
    let frontend = frontend(batching(1), &instances.each_ref()).await;
    instances[0].then(Act::Fail(MS, refusal()));
    let values: Vec<f32> = (0..12u8).map(f32::from).collect();
    let error = infer(&frontend, request(&values)).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    assert_eq!(ready(&frontend), 2.0);
    assert_eq!(metric(&frontend, "parm_ejections_total", &[]), 0.0);
    assert_eq!(metric(&frontend, "parm_retries_total", &[]), 0.0);
}

#[tokio::test(start_paused = true)]
async fn other_request_in_batch_of_failed_request_is_answered() {
    let instance = Scripted::quick("a", 10);
    let frontend = frontend(batching(8), &[&instance]).await;
    instance.then(Act::Fail(5 * MS, refusal()));
    let guilty = start(&frontend, request(&[1.0, 2.0, 3.0]));
    until("its first row is running", || !instance.seen.lock().is_empty()).await;
    // Its other rows wait, and share the next batch with this one.
    let stranger = start(&frontend, request(&[5.0]));
    assert_eq!(guilty.await.unwrap().unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(column(&stranger.await.unwrap().unwrap()), [10.0]);
    assert_eq!(metric(&frontend, "parm_retries_total", &[]), 0.0);
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

/// Requests with their rows, the index of a bad row if any, and the time since the previous one.
fn traffic() -> impl Strategy<Value = Vec<(usize, Option<usize>, u64)>> {
    vec((1..6usize, prop::option::weighted(0.3, 0..6usize), 0..15u64), 1..16)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn good_requests_are_answered_next_to_rejected_ones(
        traffic in traffic(), size in 1..9u16, count in 1..4usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let instances: Vec<_> = ["a", "b", "c"][..count]
                .iter()
                .map(|name| Scripted::new(name, Act::Unless(10 * MS, BAD, refusal())))
                .collect();
            let frontend = over(batching(size), &instances).await;
            let mut asked = Vec::new();
            for (number, (rows, bad, pause)) in traffic.into_iter().enumerate() {
                let mut values: Vec<f32> = (0..rows).map(|row| (100 + 10 * number + row) as f32).collect();
                let bad = bad.and_then(|row| values.get_mut(row)).map(|value| *value = BAD).is_some();
                asked.push((values.clone(), bad, start(&frontend, request(&values))));
                tokio::time::sleep(pause as u32 * MS).await;
            }
            for (values, bad, answer) in asked {
                let answer = answer.await.unwrap();
                if bad {
                    assert_eq!(answer.unwrap_err().code(), Code::InvalidArgument);
                } else {
                    let doubled: Vec<f32> = values.iter().map(|value| 2.0 * value).collect();
                    assert_eq!(column(&answer.unwrap()), doubled);
                }
            }
            assert_eq!(metric(&frontend, "parm_instance_failures_total", &[]), 0.0);
            assert_eq!(metric(&frontend, "parm_ejections_total", &[]), 0.0);
            assert_eq!(ready(&frontend), count as f64);
        });
    }
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
