//! The order of service, and rejected requests.

use std::time::Duration;

use parm_backend::Config;
use parm_protocol::{Error, InferRequest, InferResponse, InferenceService, ModelRef};
use parm_shares::{Settings, ShareSettings};

use crate::support::{LONG, Served, config, request, values, with};

type Running = tokio::task::JoinHandle<Result<InferResponse, Error>>;

/// A worker whose only instance is held by a first request, which is returned.
async fn occupied(config: Config) -> (Served, Running) {
    let served = Served::start(config);
    served.stall();
    let first = served.send(request(&[0.; 4])).await;
    served.until_pending(0.0).await;
    (served, first)
}

#[tokio::test]
async fn full_queue_rejects_with_a_retry_delay() {
    let (served, first) = occupied(Config { queue: 1.try_into().unwrap(), ..config() }).await;
    let waiting = served.send(request(&[0.; 4])).await;
    let refused = served.infer(request(&[0.; 4])).await;
    assert!(matches!(refused, Err(Error::Overloaded { retry_after, .. }) if !retry_after.is_zero()));
    served.release();
    assert!(first.await.unwrap().is_ok() && waiting.await.unwrap().is_ok());
}

#[tokio::test]
async fn cancelled_requests_free_the_queue_and_never_run() {
    let (served, first) = occupied(Config { queue: 1.try_into().unwrap(), ..config() }).await;
    let cancelled = served.send(request(&[0.; 4])).await;
    cancelled.abort();
    assert!(cancelled.await.unwrap_err().is_cancelled());
    let waiting = served.send(request(&[0.; 4])).await;
    served.release();
    assert!(first.await.unwrap().is_ok() && waiting.await.unwrap().is_ok());
    assert_eq!(served.metric("nv_inference_exec_count"), 2.0);
    assert_eq!(served.metric("parm_instance_dropped_total"), 1.0);
}

/// Shares by name, with their reserved instances.
fn shares(shares: &[(&str, u32)]) -> Config {
    let share = |reserved: u32| ShareSettings { reserved, ..ShareSettings::default() };
    let named = shares.iter().map(|(name, reserved)| ((*name).to_owned(), share(*reserved)));
    Config { shares: Settings(named.collect()), ..config() }
}

/// The first values of requests in the order of their answers, once the instance is released.
async fn order_of(served: (Served, Running), requests: Vec<InferRequest>) -> Vec<f32> {
    let (served, first) = served;
    let (done, mut order) = tokio::sync::mpsc::channel(64);
    let count = requests.len();
    for request in requests {
        let (answer, done) = (served.send(request).await, done.clone());
        tokio::spawn(async move { done.try_send(values(&answer.await.unwrap().unwrap())[0]) });
    }
    served.release();
    first.await.unwrap().unwrap();
    let mut seen = Vec::new();
    while seen.len() < count {
        seen.push(order.recv().await.unwrap());
    }
    seen
}

fn named(name: f32) -> InferRequest {
    request(&[name, 0., 0., 0.])
}

fn of_share(share: &str, priority: u64, name: f32) -> InferRequest {
    with(with(named(name), "priority", priority), "parm_share", share)
}

#[tokio::test]
async fn urgent_requests_overtake_and_equal_ones_do_not() {
    // As frontends send them: queries have no priority, late ones 1, and spare work 255.
    let spare = with(named(6.), "priority", 255u64);
    let plain = [named(2.), named(3.)];
    let others =
        [(200u64, 5.), (128, 4.), (1, 1.)].map(|(priority, name)| with(named(name), "priority", priority));
    let requests = [spare].into_iter().chain(plain).chain(others).collect();
    assert_eq!(order_of(occupied(config()).await, requests).await, [1., 2., 3., 4., 5., 6.]);
}

#[tokio::test]
async fn requests_of_one_model_are_served_by_named_share() {
    let flood = (1..=10).map(|name| of_share("gold", 0, name as f32));
    let requests = flood.chain([of_share("silver", 0, 100.), of_share("unknown", 0, 200.)]).collect();
    let seen = order_of(occupied(shares(&[("gold", 0), ("silver", 0)])).await, requests).await;
    // Unknown names count as the model's own share, which had the first, long request.
    let place = |name| seen.iter().position(|seen| *seen == name).unwrap();
    assert!(place(100.) < 2 && place(200.) > 1, "{seen:?}");
    let of_gold: Vec<_> = seen.iter().filter(|name| **name <= 10.).collect();
    assert!(of_gold.is_sorted(), "requests of one share must keep their order: {seen:?}");
}

#[tokio::test]
async fn reserved_instances_precede_late_queries_until_used() {
    let requests = [("gold", 0, 3.), ("gold", 1, 2.), ("kept", 0, 1.), ("kept", 255, 4.)];
    let requests = requests.map(|(share, priority, name)| of_share(share, priority, name)).into();
    let seen = order_of(occupied(shares(&[("gold", 0), ("kept", 1)])).await, requests).await;
    assert_eq!(seen, [1., 2., 3., 4.], "spare work must not use reserved instances");
}

#[tokio::test]
async fn full_queue_admits_a_share_below_its_part() {
    let full = Config { queue: 4.try_into().unwrap(), ..shares(&[("gold", 0), ("silver", 0)]) };
    let (served, first) = occupied(full).await;
    let mut waiting = Vec::new();
    let of = |share: &str| with(request(&[0.; 4]), "parm_share", share);
    for _ in 0..4 {
        waiting.push(served.send(of("gold")).await);
    }
    let refused = served.infer(of("gold")).await;
    assert!(matches!(refused, Err(Error::Overloaded { .. })), "the share has the whole queue");
    for _ in 0..2 {
        waiting.push(served.send(of("silver")).await);
    }
    let refused = served.infer(of("silver")).await;
    assert!(matches!(refused, Err(Error::Overloaded { .. })), "the share has half of the queue");
    served.release();
    assert!(first.await.unwrap().is_ok());
    for answer in waiting {
        assert!(answer.await.unwrap().is_ok());
    }
}

#[tokio::test]
async fn run_times_of_several_rows_are_published() {
    let served = Served::start(config());
    let told = served.worker.model_config(&ModelRef::latest("m")).unwrap().run_times();
    assert_eq!(told.len(), 4, "{told:?}");
    let quick = Served::start(Config { measure: Duration::ZERO, ..config() });
    let told = quick.worker.model_config(&ModelRef::latest("m")).unwrap().run_times();
    assert_eq!(told.len(), 1, "{told:?}");
}

#[tokio::test]
async fn drain_answers_all_current_requests() {
    let (served, first) = occupied(config()).await;
    let waiting = served.send(request(&[0.; 4])).await;
    let worker = served.worker.clone();
    let drained = tokio::spawn(async move { worker.drain(LONG).await });
    served.release();
    assert_eq!(drained.await.unwrap(), Ok(()));
    assert!(first.is_finished() || first.await.unwrap().is_ok());
    assert!(waiting.await.unwrap().is_ok());
}

#[tokio::test]
async fn idle_instance_takes_the_requests_of_a_stalled_one() {
    let served = Served::start(Config { instances: 2.try_into().unwrap(), ..config() });
    let only_the_first = parm_backend::faults::Plan {
        instance: Some(0),
        stall: Duration::from_secs(3600),
        ..Default::default()
    };
    served.worker.faults().unwrap().set(only_the_first).unwrap();
    // In any assignment at most one request hangs, and the others are answered.
    let mut answers = Vec::new();
    for _ in 0..4 {
        answers.push(served.send(request(&[0.; 4])).await);
    }
    while answers.iter().filter(|answer| answer.is_finished()).count() < 3 {
        tokio::task::yield_now().await;
    }
    served.release();
    for answer in answers {
        assert!(answer.await.unwrap().is_ok());
    }
}
