//! Stress test with many clients on real threads and timers, for data races.

use std::sync::Arc;
use std::time::Duration;

use parm_frontend::{Frontend, Timers};
use parm_protocol::Error;
use parm_settings::{Fraction, PolicyKind};

use crate::rig::{Network, column, config, infer, metric, request, start};
use crate::scripted::{Act, Scripted};

const INSTANCES: usize = 4;
const CLIENTS: usize = 32;
const REQUESTS: usize = 60;

/// Deterministic, uneven reactions of an instance to its `n`-th request. Only one instance fails requests: a query that
/// fails on two is at fault itself.
fn act(seed: usize, n: usize) -> Act {
    let mixed = (seed * 7919 + n).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    match mixed % 16 {
        0 | 4 if seed == 0 => Act::Fail(Duration::ZERO, Error::Internal { message: "broken".into() }),
        1 => Act::Answer(Duration::from_millis(8)),
        2 | 3 => Act::Answer(Duration::ZERO),
        _ => Act::Answer(Duration::from_millis(1)),
    }
}

async fn fleet() -> (Frontend, Vec<Arc<Scripted>>) {
    let mut config = config(PolicyKind::Hedge);
    config.dispatch.batch.max_size = std::num::NonZeroU16::new(3).unwrap().into();
    config.dispatch.max_attempts = 20.try_into().unwrap();
    config.dispatch.retry.ratio = Fraction::percent(100);
    let frontend = Frontend::start(config, Network::with(&[]), Timers::Precise).unwrap();
    let instances: Vec<_> = (0..INSTANCES).map(|seed| Scripted::quick(&seed.to_string(), 1)).collect();
    for (seed, instance) in instances.iter().enumerate() {
        (0..CLIENTS * REQUESTS).for_each(|n| instance.then(act(seed, n)));
        frontend.embed(instance.clone(), None).unwrap();
    }
    while metric(&frontend, "parm_usable_instances", &[]) < INSTANCES as f64 {
        tokio::task::yield_now().await;
    }
    (frontend, instances)
}

/// Sends requests of one to three rows, and cancels some of them.
async fn client(frontend: Frontend, number: usize) -> usize {
    let mut answered = 0;
    for n in 0..REQUESTS {
        let first = (number * REQUESTS + n) as f32;
        let values: Vec<f32> = (0..1 + n % 3).map(|row| first + row as f32 * 0.25).collect();
        if n % 7 == 3 {
            let leaving = start(&frontend, request(&values));
            tokio::task::yield_now().await;
            leaving.abort();
            continue;
        }
        let response = infer(&frontend, request(&values)).await.unwrap();
        assert_eq!(column(&response), values.iter().map(|value| value * 2.0).collect::<Vec<_>>());
        answered += 1;
    }
    answered
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn clients_get_their_own_rows_and_no_state_is_left() {
    let (frontend, _instances) = fleet().await;
    let clients: Vec<_> = (0..CLIENTS).map(|number| tokio::spawn(client(frontend.clone(), number))).collect();
    let mut answered = 0;
    for client in clients {
        answered += client.await.unwrap();
    }
    assert!(metric(&frontend, "nv_inference_request_success", &[]) >= answered as f64);
    let left = |name| metric(&frontend, name, &[]);
    while left("parm_instance_inflight") > 0.0 {
        tokio::task::yield_now().await;
    }
    assert_eq!((left("nv_inference_pending_request_count"), left("parm_jobs_running")), (0.0, 0.0));
}
