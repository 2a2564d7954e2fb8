//! Tests of requests and their responses: batches that clients share, where a bad request must not affect others or
//! instances, and the shares that requests are charged to.

use std::num::{NonZeroU16, NonZeroUsize};
use std::sync::atomic::Ordering;

use parm_frontend::Config;
use parm_protocol::{Code, Error, InferenceService, ModelRef};
use parm_settings::PolicyKind;
use parm_shares::{Settings, ShareSettings};

use crate::rig::{MS, column, config, frontend, infer, metric, request, start, until, with};
use crate::scripted::{Act, Scripted};

#[tokio::test(start_paused = true)]
async fn unbatched_models_get_whole_requests() {
    for (stated, is_configured) in [(Some(0), false), (None, true), (Some(1024), true)] {
        let instances = [Scripted::quick("a", 10), Scripted::quick("b", 10)];
        instances.iter().for_each(|own| stated.into_iter().for_each(|most| own.says_max_batch(most)));
        let mut config = config(PolicyKind::None);
        config.unbatched = if is_configured { vec!["double".into()] } else { Vec::new() };
        config.dispatch.batch.max_size = NonZeroU16::new(8).unwrap().into();
        config.requests.max_rows = NonZeroUsize::new(2).unwrap();
        let frontend = frontend(config, &instances.each_ref()).await;
        let lengths: [&[f32]; 4] = [&[1.0, 2.0, 3.0], &[4.0], &[5.0, 6.0, 7.0], &[8.0]];
        let asked = lengths.map(|values| start(&frontend, request(values)));
        for (answer, sent) in asked.into_iter().zip(lengths) {
            let wanted: Vec<f32> = sent.iter().map(|value| value * 2.0).collect();
            assert_eq!(column(&answer.await.unwrap().unwrap()), wanted);
        }
        let mut seen: Vec<usize> = instances.iter().flat_map(|instance| instance.batches()).collect();
        seen.sort_unstable();
        assert_eq!(seen, [1, 1, 3, 3], "requests must be neither split nor merged: {stated:?}");
        assert_eq!(frontend.model_config(&ModelRef::latest("double")).unwrap().max_batch_size, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn leaving_client_cancels_its_job_at_the_instance() {
    let instance = Scripted::new("a", Act::Hang);
    let frontend = frontend(config(PolicyKind::None), &[&instance]).await;
    let leaving = start(&frontend, request(&[1.0]));
    let queued = start(&frontend, request(&[2.0]));
    until("the job is running", || instance.seen.lock().len() == 1).await;
    queued.abort();
    leaving.abort();
    until("the job is cancelled", || instance.cancelled.load(Ordering::SeqCst) == 1).await;
    instance.becomes(Act::Answer(MS));
    assert_eq!(column(&infer(&frontend, request(&[3.0])).await.unwrap()), [6.0]);
    assert_eq!(instance.seen.lock().len(), 2, "the queued query must not run");
    assert_eq!(metric(&frontend, "parm_dispatch_total", &["event=\"cancelled\""]), 2.0);
}

#[tokio::test(start_paused = true)]
async fn last_error_is_returned_when_every_attempt_fails() {
    let broken = Scripted::new("a", Act::Fail(MS, Error::Internal { message: "out of memory".into() }));
    let frontend = frontend(config(PolicyKind::None), &[&broken]).await;
    let error = infer(&frontend, request(&[1.0])).await.unwrap_err();
    assert_eq!(error.code(), Code::Internal);
    assert!(error.to_string().contains("out of memory"), "{error}");
    assert_eq!(broken.seen.lock().len(), 2, "twice at the only instance, as the query may be at fault");
}

/// A value that every instance rejects.
const BAD: f32 = 99.0;

fn batching(size: u16) -> Config {
    let mut config = config(PolicyKind::None);
    config.dispatch.ejection.enabled = true;
    config.dispatch.batch.max_size = NonZeroU16::new(size).expect("positive").into();
    config
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

fn shares(names: &[&str]) -> Config {
    let shares = names.iter().map(|name| ((*name).to_owned(), ShareSettings::default())).collect();
    Config { shares: Settings(shares), ..config(PolicyKind::Equal) }
}

#[tokio::test(start_paused = true)]
async fn request_is_charged_to_named_share_or_its_model() {
    let instance = Scripted::quick("a", 10);
    let frontend = frontend(shares(&["gold", "silver"]), &[&instance]).await;
    infer(&frontend, with(request(&[1.0]), "parm_share", "gold")).await.unwrap();
    infer(&frontend, request(&[1.0])).await.unwrap();
    let used = |label: &str| metric(&frontend, "parm_share_used_seconds_total", &[label]);
    for label in ["share=\"gold\"", "model=\"double\""] {
        assert!((used(label) - 0.010).abs() < 0.002, "{label}: {}", used(label));
    }
    assert_eq!(used("share=\"silver\""), 0.0);
    let refused = infer(&frontend, with(request(&[1.0]), "parm_share", "bronze")).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(["bronze", "gold", "silver"].iter().all(|name| refused.to_string().contains(name)), "{refused}");
}
