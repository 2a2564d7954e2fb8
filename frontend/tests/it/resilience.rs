//! Tests of slow, broken, hung and wrong instances.

use std::num::NonZeroU8;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use parm_encoder::Kind;
use parm_frontend::discovery::{Connect, Name};
use parm_frontend::{Config, Frontend, Timers};
use parm_protocol::client::{BoxFuture, Client};
use parm_protocol::{Code, Error, InferenceService, ModelRef};
use parm_settings::PolicyKind;
use serde_json::json;
use tokio::time::Instant;

use crate::fleet::MS;
use crate::rig::{
    Network, column, config, frontend, get, gone, infer, metric, outcome, ready, request, start, until, with,
};
use crate::scripted::{Act, Scripted, doubler};

#[tokio::test(start_paused = true)]
async fn job_of_dead_instance_is_retried_at_another() {
    let instances = Scripted::pair(10);
    let frontend = frontend(config(PolicyKind::None), &instances.each_ref()).await;
    instances[0].then(Act::Fail(5 * MS, gone("it")));
    let response = infer(&frontend, request(&[1.0])).await.unwrap();
    assert_eq!((column(&response), outcome(&response)), (vec![2.0], "exact"));
    assert_eq!(instances.each_ref().map(|instance| instance.seen.lock().len()), [1, 1]);
    assert_eq!(metric(&frontend, "parm_retries_total", &[]), 1.0);
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

#[tokio::test(start_paused = true)]
async fn late_query_is_hedged_and_labelled() {
    let instances = Scripted::pair(10);
    let frontend = frontend(config(PolicyKind::Hedge), &instances.each_ref()).await;
    for value in 0..200u8 {
        infer(&frontend, request(&[f32::from(value)])).await.unwrap();
    }
    instances[0].then(Act::Hang);
    let sent = Instant::now();
    let response = infer(&frontend, request(&[7.0])).await.unwrap();
    assert_eq!((column(&response), outcome(&response)), (vec![14.0], "hedged"));
    assert!(sent.elapsed() < 30 * MS, "{:?}", sent.elapsed());
    assert_eq!(metric(&frontend, "parm_hedges_total", &[]), 1.0);
    assert_eq!(metric(&frontend, "parm_hedges_won_total", &[]), 1.0);
    let hedged = &["outcome=\"hedged\"", "policy=\"hedge\""];
    assert_eq!(metric(&frontend, "parm_request_duration_seconds_count", hedged), 1.0);
}

#[tokio::test(start_paused = true)]
async fn request_lists_outcomes_of_its_rows() {
    let instances = Scripted::pair(10);
    let frontend = frontend(config(PolicyKind::Hedge), &instances.each_ref()).await;
    for value in 0..200u8 {
        infer(&frontend, request(&[f32::from(value)])).await.unwrap();
    }
    instances[0].then(Act::Hang);
    let response = infer(&frontend, request(&[1.0, 2.0, 3.0])).await.unwrap();
    assert_eq!((column(&response), outcome(&response)), (vec![2.0, 4.0, 6.0], "hedged"));
    assert_eq!(response.parameters["parm_outcomes"].as_str(), Some("hedged,exact,exact"));
}

#[tokio::test(start_paused = true)]
async fn hung_instance_holds_only_one_job() {
    let hung = Scripted::new("a", Act::Hang);
    let frontend = frontend(config(PolicyKind::None), &[&hung]).await;
    for _ in 0..3 {
        let error = infer(&frontend, with(request(&[1.0]), "timeout", 20_000u64)).await.unwrap_err();
        assert_eq!(error.code(), Code::DeadlineExceeded);
    }
    assert_eq!(hung.seen.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn wrong_number_of_rows_counts_as_instance_failure() {
    let liar = Scripted::quick("a", 1);
    let frontend = frontend(config(PolicyKind::None), &[&liar]).await;
    liar.then(Act::Short);
    assert_eq!(column(&infer(&frontend, request(&[1.0])).await.unwrap()), [2.0]);
    assert_eq!(metric(&frontend, "parm_instance_failures_total", &[]), 1.0);
}

#[tokio::test(start_paused = true)]
async fn draining_frontend_answers_all_requests() {
    let instance = Scripted::quick("a", 50);
    let frontend = frontend(config(PolicyKind::None), &[&instance]).await;
    assert!(frontend.is_ready());
    let accepted: Vec<_> = (0..4).map(|_| start(&frontend, request(&[1.0]))).collect();
    until("a job is running", || !instance.seen.lock().is_empty()).await;
    let draining = {
        let frontend = frontend.clone();
        tokio::spawn(async move { frontend.drain().await })
    };
    until("the frontend is not ready", || !frontend.is_ready()).await;
    assert!(!draining.is_finished());
    let late = infer(&frontend, request(&[3.0])).await.unwrap();
    assert_eq!(column(&late), [6.0], "late requests must still be answered");
    for request in accepted {
        assert_eq!(column(&request.await.unwrap().unwrap()), [2.0]);
    }
    draining.await.unwrap();
    assert_eq!(metric(&frontend, "nv_inference_request_success", &[]), 5.0);
}

#[tokio::test(start_paused = true)]
async fn failing_instance_is_ejected_until_it_answers_a_request() {
    let instances = [Scripted::quick("a", 10), Scripted::quick("b", 10)];
    let mut config = config(PolicyKind::None);
    config.dispatch.ejection.enabled = true;
    let frontend = frontend(config, &instances.each_ref()).await;
    instances[0].becomes(Act::Fail(MS, Error::Internal { message: "broken".into() }));
    while ready(&frontend) == 2.0 {
        infer(&frontend, request(&[1.0])).await.unwrap();
    }
    assert_eq!(metric(&frontend, "parm_ejections_total", &["reason=\"failing\""]), 1.0);
    let listed = get(&frontend, "/instances").await.1;
    assert_eq!((&listed[0]["reason"], listed[1].get("reason")), (&json!("failing"), None));
    assert!(listed[0]["problem"].as_str().unwrap().contains("broken"), "the cause: {listed}");
    let before = instances[0].seen.lock().len();
    for _ in 0..300 {
        assert_eq!(outcome(&infer(&frontend, request(&[1.0])).await.unwrap()), "exact");
    }
    assert_eq!(ready(&frontend), 1.0, "it still fails");
    let tried = instances[0].seen.lock().len() - before;
    assert!((1..10).contains(&tried), "{tried} copies in three seconds show whether it works");
    instances[0].becomes(Act::Answer(10 * MS));
    while ready(&frontend) == 1.0 {
        infer(&frontend, request(&[1.0])).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn lost_instance_is_reconnected() {
    let server = Scripted::quick("test://a", 10);
    let network = Network::with(&[&server]);
    let config = parm_frontend::Config { workers: vec!["test://a".into()], ..config(PolicyKind::None) };
    let frontend =
        parm_frontend::Frontend::start(config, network.clone(), parm_frontend::Timers::Runtime).unwrap();
    until("it joined", || ready(&frontend) == 1.0).await;
    network.kill(&server);
    until("the instance is gone", || ready(&frontend) == 0.0).await;
    let error = infer(&frontend, request(&[1.0])).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable, "the model must stay known: {error}");
    server.set_ready(Ok(true));
    network.start(&server);
    until("the instance is back", || ready(&frontend) == 1.0).await;
    assert_eq!(column(&infer(&frontend, request(&[1.0])).await.unwrap()), [2.0]);
}

#[tokio::test(start_paused = true)]
async fn deadlines_hold_after_unloading_a_coded_model() {
    let mut config = config(PolicyKind::ParmPlus);
    let coding = &mut config.dispatch.coding;
    (coding.k, coding.r) = (NonZeroU8::new(2).unwrap(), NonZeroU8::new(2).unwrap());
    (coding.code, coding.parm_plus.k_follows_load) = (Some(Kind::Mds), false);
    let instances = [Scripted::quick("a", 10), Scripted::quick("b", 10)];
    instances.iter().for_each(|instance| instance.serve(&[doubler("double"), doubler("other")]));
    let frontend = frontend(config, &instances.each_ref()).await;
    for asked in [start(&frontend, request(&[1.0])), start(&frontend, request(&[5.0]))] {
        asked.await.unwrap().unwrap();
    }
    frontend.unload_model("double").await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    instances.iter().for_each(|instance| instance.becomes(Act::Hang));
    let mut hung = with(request(&[1.0]), "timeout", 100_000u64);
    hung.model = ModelRef::latest("other");
    let answer = tokio::time::timeout(Duration::from_secs(1), infer(&frontend, hung)).await;
    assert_eq!(answer.expect("an answer by its deadline").unwrap_err().code(), Code::DeadlineExceeded);
    assert!(frontend.broken().now_or_never().is_none(), "nothing panicked");
}

/// A connector that panics.
struct Trap;

impl Connect for Trap {
    fn check(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn connect<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Arc<dyn Client>, Error>> {
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
        assert_eq!(frontend.broken().await, parm_frontend::Error::Panicked { part });
    }
}

#[tokio::test(start_paused = true)]
async fn inputs_that_break_one_model_do_not_affect_another() {
    let instances = [Scripted::quick("a", 10), Scripted::quick("b", 10), Scripted::quick("c", 10)];
    let broken = Error::Internal { message: "gather index 99 out of range".into() };
    for instance in &instances {
        instance.serve(&[doubler("double"), doubler("other")]);
        instance.becomes(Act::Unless(10 * MS, 99.0, broken.clone()));
    }
    let mut config = config(PolicyKind::None);
    config.dispatch.ejection.enabled = true;
    let frontend = frontend(config, &instances.each_ref()).await;
    let poison = |frontend: &Frontend| {
        let mut poison = request(&[99.0]);
        poison.model = ModelRef::latest("other");
        start(frontend, poison)
    };
    for burst in [1, 1, 1, 12] {
        let asked: Vec<_> = (0..burst).map(|_| poison(&frontend)).collect();
        let innocent = start(&frontend, request(&[1.0]));
        for asked in asked {
            let error = asked.await.unwrap().unwrap_err();
            assert!(error.to_string().contains("index 99"), "{error}");
        }
        assert_eq!(column(&innocent.await.unwrap().unwrap()), [2.0]);
        assert_eq!(ready(&frontend), 3.0);
    }
}

#[tokio::test(start_paused = true)]
async fn retry_uses_an_idle_instance_when_others_hang() {
    let instances = [Scripted::quick("a", 10), Scripted::new("b", Act::Hang)];
    let frontend = frontend(config(PolicyKind::None), &instances.each_ref()).await;
    let hangs = [start(&frontend, request(&[1.0])), start(&frontend, request(&[2.0]))];
    tokio::time::sleep(100 * MS).await;
    instances[0].then(Act::Fail(MS, Error::Overloaded { message: "busy".into(), retry_after: MS }));
    let sent = Instant::now();
    assert_eq!(column(&infer(&frontend, request(&[3.0])).await.unwrap()), [6.0]);
    assert!(sent.elapsed() < 200 * MS, "{:?}", sent.elapsed());
    hangs.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn hung_instance_is_ejected_though_clients_cancel_first() {
    let instances = [Scripted::quick("a", 10), Scripted::quick("b", 10), Scripted::quick("c", 10)];
    let mut config = config(PolicyKind::None);
    config.dispatch.ejection.enabled = true;
    let frontend = frontend(config, &instances.each_ref()).await;
    for _ in 0..300 {
        infer(&frontend, request(&[1.0])).await.unwrap();
    }
    instances[0].becomes(Act::Hang);
    let before = instances[0].seen.lock().len();
    let mut lost = 0;
    for _ in 0..200 {
        lost += u32::from(tokio::time::timeout(100 * MS, infer(&frontend, request(&[1.0]))).await.is_err());
    }
    assert_eq!(ready(&frontend), 2.0);
    assert_eq!(lost, 1, "it is given up as older than any run before");
    let tried = instances[0].seen.lock().len() - before - 1;
    assert!(tried < 10, "tried {tried} times");
}
