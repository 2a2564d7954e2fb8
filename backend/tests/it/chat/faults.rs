//! Faults of the same plans as those of other workers.

use std::time::Duration;

use parm_backend::faults::{Plan, Replay, Wrong};
use parm_workload::{Fault, Faults, Targets, When};

use super::*;

const PATH: &str = "/v1/chat/completions";

fn set(scene: &Scene, plan: Plan) {
    scene.worker.faults().unwrap().set(plan).unwrap();
}

/// A replica with a fault from now on.
fn scheduled(fault: Fault) -> Plan {
    let faults = Faults(vec![fault]);
    let schedule = Replay { scenario: None, faults, seed: 1, first: 0, instances: 1, starts_in_ms: -1 };
    Plan { schedule: Some(schedule), ..Plan::default() }
}

#[tokio::test]
async fn standing_replica_continues_with_the_next_plan() {
    let on = Targets::Each;
    let hang = Fault::Hang { when: When::Always, on: on.clone() };
    // An iteration then takes a quarter of an hour.
    let slow = Fault::Slow { factor: 1e6, when: When::Always, on };
    let stall = Plan { stall: Duration::from_secs(3600), ..Plan::default() };
    for plan in [scheduled(hang), scheduled(slow), stall] {
        let scene = Scene::with(chat::Config { iteration_ms: 1.0, ..settings() }).await;
        set(&scene, plan);
        let body = chat_about("Hi", 2).to_string();
        let mut client = scene.send("POST", PATH, body.as_bytes()).await;
        scene.until("parm_chat_running", 1.0).await;
        assert_eq!(scene.count("parm_chat_output_tokens_total"), 0.0);
        assert_eq!(scene.ask("GET", "/health", b"").await.status, 200);
        set(&scene, Plan::default());
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).await.unwrap();
        assert_eq!(Answer::read(&bytes).status, 200);
    }
}

#[tokio::test]
async fn share_of_the_requests_fails_or_is_wrong() {
    let scene = Scene::new().await;
    let right = scene.post(PATH, &chat_about("Hi", 5)).await.body;
    set(&scene, Plan { error_rate: 1.0, ..Plan::default() });
    let failed = scene.post(PATH, &chat_about("Hi", 5)).await;
    assert_eq!((failed.status, &failed.json()["error"]["type"]), (500, &json!("server_error")));
    assert_eq!(scene.count("parm_chat_cancelled_total"), 0.0, "it takes no place");
    set(&scene, Plan { wrong: Some(Wrong::Random), ..Plan::default() });
    let wrong = scene.post(PATH, &chat_about("Hi", 5)).await;
    assert_eq!(wrong.status, 200);
    assert_ne!(wrong.body, right);
    set(&scene, Plan { instance: Some(1), error_rate: 1.0, ..Plan::default() });
    assert_eq!(scene.post(PATH, &chat_about("Hi", 5)).await.body, right, "the replica is number 0");
}
