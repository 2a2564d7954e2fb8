//! A worker from the view of its clients.

use std::collections::BTreeMap;
use std::time::Duration;

use parm_backend::engine::Spec;
use parm_backend::faults::Plan;
use parm_backend::{Config, Embedded, Error, Metrics};
use parm_protocol::client::{CallContext, Client};
use parm_protocol::{Error as Refusal, InferenceService, ModelRef, Parameters, RequestedOutput};
use parm_workload::distribution::Distribution;

use crate::support::{LONG, Served, config, quick, request, values, with};

#[tokio::test]
async fn answer_has_the_id_model_and_version() {
    let served = Served::start(config());
    let answer = served.infer(request(&[1., 2., 3., 4., 10., 20., 30., 40.])).await.unwrap();
    assert_eq!(
        (answer.id.as_str(), answer.model_name.as_str(), answer.model_version.as_str()),
        ("7", "m", "1")
    );
    assert_eq!(answer.outputs[0].name, "output");
    assert_eq!(values(&answer), [4., 6., 40., 60.]);
}

#[tokio::test]
async fn unserved_names_are_unknown() {
    let served = Served::start(config());
    let other = |name: &str, version: Option<&str>| {
        let model = ModelRef { name: name.into(), version: version.map(String::from) };
        served.infer(parm_protocol::InferRequest { model, ..request(&[0.; 4]) })
    };
    assert_eq!(other("x", None).await, Err(Refusal::UnknownModel { name: "x".into() }));
    let (name, version, available) = ("m".into(), "2".into(), vec!["1".into()]);
    assert_eq!(other("m", Some("2")).await, Err(Refusal::UnknownVersion { name, version, available }));
    assert_eq!(other("m", Some("1")).await.map(|answer| answer.model_version), Ok("1".into()));
    assert_eq!(served.metric("nv_inference_request_failure"), 2.0);
}

#[tokio::test]
async fn requests_are_checked_against_the_metadata() {
    let served = Served::start(Config { max_rows: 2.try_into().unwrap(), ..config() });
    let too_many = served.infer(request(&[0.; 12])).await;
    assert_eq!(too_many, Err(Refusal::BatchTooLarge { rows: 3, limit: 2 }));
    let wanted = RequestedOutput { name: "y".into(), parameters: Parameters::new() };
    let unknown = parm_protocol::InferRequest { outputs: vec![wanted], ..request(&[0.; 4]) };
    let (model, name, expected) = ("m".into(), "y".into(), vec!["output".into()]);
    assert_eq!(served.infer(unknown).await, Err(Refusal::UnknownOutput { model, name, expected }));
}

/// A model with constant run times below twenty milliseconds runs on a reading thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn deadline_ends_the_wait_but_not_a_run_on_a_reading_thread() {
    let registry = prometheus::Registry::new();
    let slow = Spec { time_ms: Distribution::Constant { value: 15.0 }, ..quick() };
    let config = Config { emulated: BTreeMap::from([("m".into(), slow)]), faults: false, ..config() };
    let started = move || Embedded::start(config, Metrics::embedded(&registry).unwrap());
    let one = tokio::task::spawn_blocking(started).await.unwrap().unwrap().remove(0);
    let asked = async move {
        let context = CallContext { deadline: Some(tokio::time::Instant::now()), ..CallContext::default() };
        let late = one.infer(request(&[0.; 4]), context).await;
        // The run continues, and the next one waits for it.
        let next = one.infer(request(&[1., 2., 3., 4.]), CallContext::default()).await;
        (late, next)
    };
    let (late, next) = tokio::spawn(asked).await.unwrap();
    assert!(matches!(late, Err(Refusal::DeadlineExceeded { .. })), "{late:?}");
    assert_eq!(values(&next.unwrap()), [4., 6.]);
}

#[tokio::test]
async fn worker_is_ready_once_its_models_are_loaded() {
    let registry = prometheus::Registry::new();
    let worker = parm_backend::Worker::start(config(), Metrics::worker(&registry).unwrap()).unwrap();
    assert!(!worker.is_ready());
    assert!(worker.faults().is_ok());
    let forbidden = Served::start(Config { faults: false, ..config() });
    assert_eq!(forbidden.worker.faults().err(), Some(Error::FaultsDisabled));
    worker.load().unwrap();
    assert!(worker.is_ready());
    worker.drain(LONG).await.unwrap();
    assert!(!worker.is_ready());
}

#[tokio::test]
async fn unloaded_model_is_known_and_can_be_loaded_again() {
    let served = Served::start(config());
    let model = ModelRef::latest("m");
    served.worker.unload_model("m").await.unwrap();
    assert_eq!(served.worker.is_model_ready(&model), Ok(false));
    let refused = served.infer(request(&[0.; 4])).await;
    assert_eq!(
        refused,
        Err(Refusal::Unavailable { message: "model 'm' is not loaded: unloaded by request".into() })
    );
    let index = served.worker.repository_index(false).unwrap();
    assert_eq!((index[0].state.as_str(), index[0].reason.as_str()), ("UNAVAILABLE", "unloaded by request"));
    served.worker.load_model("m").await.unwrap();
    assert_eq!(served.worker.is_model_ready(&model), Ok(true));
    assert!(served.infer(request(&[0.; 4])).await.is_ok());
    let unknown = Err(Refusal::UnknownModel { name: "x".into() });
    assert_eq!(served.worker.unload_model("x").await, unknown);
    assert_eq!(served.worker.load_model("x").await, unknown);
}

#[tokio::test]
async fn statistics_and_metrics_count_requests_rows_and_executions() {
    let served = Served::start(config());
    served.infer(request(&[0.; 8])).await.unwrap();
    served.infer(request(&[0.; 4])).await.unwrap();
    served.worker.faults().unwrap().set(Plan { error_rate: 1.0, ..Plan::default() }).unwrap();
    assert!(matches!(served.infer(request(&[0.; 4])).await, Err(Refusal::Internal { .. })));
    let statistics = &served.worker.statistics(Some(&ModelRef::latest("m"))).unwrap()[0];
    assert_eq!((statistics.inference_count, statistics.execution_count), (3, 2));
    assert_eq!((statistics.inference_stats.success.count, statistics.inference_stats.fail.count), (2, 1));
    assert_eq!(served.metric("nv_inference_count"), 3.0);
    assert_eq!(served.metric("nv_inference_exec_count"), 2.0);
    assert_eq!(served.metric("nv_inference_request_success"), 2.0);
    assert_eq!(served.metric("nv_inference_request_failure"), 1.0);
}

#[tokio::test]
async fn embedded_instances_answer_as_separate_servers() {
    let registry = prometheus::Registry::new();
    let two = Config { instances: 2.try_into().unwrap(), ..config() };
    let instances = Embedded::start(two, Metrics::embedded(&registry).unwrap()).unwrap();
    assert_eq!(instances.iter().map(Client::peer).collect::<Vec<_>>(), ["embedded/0", "embedded/1"]);
    let wrong = Plan { instance: Some(1), wrong_rate: 1.0, ..Plan::default() };
    instances[0].worker().faults().unwrap().set(wrong).unwrap();
    for (instance, expected) in instances.iter().zip([[4., 6.], [6., 4.]]) {
        let answer = instance.infer(request(&[1., 2., 3., 4.]), CallContext::default()).await.unwrap();
        assert_eq!(values(&answer), expected);
        assert_eq!(instance.is_ready().await, Ok(true));
        assert_eq!(instance.model_metadata(&ModelRef::latest("m")).await.unwrap().platform, "parm_emulated");
    }
    // A load on one applies to all.
    let infer = || instances[1].infer(request(&[0.; 4]), CallContext::default());
    instances[0].unload_model("m").await.unwrap();
    assert_eq!(instances[1].unload_model("m").await, Ok(()), "unloading twice must succeed");
    assert!(matches!(infer().await, Err(Refusal::Unavailable { .. })));
    instances[0].load_model("m").await.unwrap();
    assert!(infer().await.is_ok());
    assert_eq!(instances[0].load_model("x").await, Err(Refusal::UnknownModel { name: "x".into() }));
}

#[tokio::test]
async fn transport_deadline_and_timeout_both_end_the_wait() {
    let served = Served::start(config());
    served.stall();
    let late = served.infer(with(request(&[0.; 4]), "timeout", 1)).await;
    assert!(matches!(late, Err(Refusal::DeadlineExceeded { .. })), "{late:?}");
    let mut passed = crate::support::context();
    passed.deadline = Some(passed.arrived);
    let late = served.worker.infer(request(&[0.; 4]), passed).await;
    assert!(matches!(late, Err(Refusal::DeadlineExceeded { .. })), "{late:?}");
    served.release();
}

/// Whether it has settled.
async fn is_settled(instance: &Embedded) -> bool {
    tokio::select! {
        biased;
        () = instance.settled() => true,
        () = std::future::ready(()) => false,
    }
}

#[tokio::test]
async fn embedded_instance_settles_after_its_cancelled_run() {
    let registry = prometheus::Registry::new();
    let instances = Embedded::start(config(), Metrics::embedded(&registry).unwrap()).unwrap();
    let instance = &instances[0];
    instance.settled().await;
    instance
        .worker()
        .faults()
        .unwrap()
        .set(Plan { stall: Duration::from_secs(3600), ..Plan::default() })
        .unwrap();
    let running = {
        let instance = instance.clone();
        tokio::spawn(async move { instance.infer(request(&[0.; 4]), CallContext::default()).await })
    };
    while is_settled(instance).await {
        tokio::task::yield_now().await; // the job is not taken yet
    }
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    assert!(!is_settled(instance).await, "its thread is still running");
    assert_eq!(instance.is_ready().await, Ok(true), "it must stay ready");
    let settled = instance.settled();
    instance.worker().faults().unwrap().set(Plan::default()).unwrap();
    settled.await;
}

#[tokio::test]
async fn classification_is_rejected_and_not_ignored() {
    let served = Served::start(config());
    let parameters = Parameters::from([("classification".to_string(), 3u64.into())]);
    let mut classified = request(&[0.; 4]);
    classified.outputs = vec![RequestedOutput { name: "output".into(), parameters }];
    let refused = served.infer(classified).await;
    assert!(matches!(&refused, Err(Refusal::Malformed { message }) if message.contains("classification")));
}

#[tokio::test]
async fn configured_place_is_announced_with_the_card() {
    let served = Served::start(Config {
        node: Some("n1".into()),
        zone: Some("z".into()),
        card: Some("GPU-1".into()),
        ..config()
    });
    let place = served.worker.server_metadata().place;
    assert_eq!(place, parm_protocol::Place::announced("n1", "z", "GPU-1"));
    assert_eq!(Served::start(config()).worker.server_metadata().place.card, None);
}
