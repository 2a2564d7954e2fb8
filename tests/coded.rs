//! Tests coded serving with real processes.
//!
//! The test model is affine, so it is its own parity model under the code `mds`, and a reconstruction equals the prediction.

use std::fs;
use std::sync::Arc;

use parm_protocol::InferResponse;
use parm_protocol::client::{CallContext, Client};

use crate::support::files::model;
use crate::support::load::connect;
use crate::support::process::{succeeds, told};
use crate::support::{Parm, affine};

const CODED: [&str; 6] = [
    "--set",
    "frontend.dispatch.coding.code=mds",
    "--set",
    "frontend.dispatch.coding.parm_plus.k_follows_load=false",
    "--set",
    "frontend.dispatch.coding.parm_plus.hedge=false",
];

fn outcome(response: &InferResponse) -> &str {
    response.parameters["parm_outcome"].as_str().unwrap()
}

/// Sends three requests at a time until a response is a reconstruction, at most twenty times. Panics if any answer is wrong.
async fn reconstructed(through: &Arc<dyn Client>, seed: u64) -> Option<InferResponse> {
    for round in 0..20 {
        let mut asked = tokio::task::JoinSet::new();
        for one in 0..3 {
            let (through, rows) = (through.clone(), affine::rows(1, seed + 3 * round + one));
            asked.spawn(async move {
                let response = through.infer(affine::request(&rows), CallContext::default()).await.unwrap();
                assert!(affine::is_answer(&response, &rows), "{response:?}");
                response
            });
        }
        let responses = asked.join_all().await;
        let found = responses.into_iter().find(|response| outcome(response) == "reconstructed");
        if found.is_some() {
            return found;
        }
    }
    None
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reconstructions_are_exact_when_a_worker_is_stopped() {
    for policy in ["parm", "parm+"] {
        let workers: Vec<Parm> = (0..4).map(|_| Parm::worker(&[])).collect();
        let arguments = [&["--policy", policy][..], &CODED].concat();
        let frontend = Parm::frontend(&workers.iter().collect::<Vec<_>>(), &arguments);
        for (seed, url) in
            [(1, format!("http://{}", frontend.http)), (1000, format!("grpc://{}", frontend.grpc))]
        {
            let through = connect(&url);
            // Under `parm` one of them runs parities only, and any may have been slow to return.
            let mut stopped = workers.iter().cycle().take(40);
            let response = loop {
                let worker = stopped.next().expect("some query is reconstructed");
                frontend.until("all instances are idle", |parm| {
                    parm.metric("parm_instances", &["state=\"ready\""]) == 4.0
                        && parm.metric("parm_jobs_running", &[]) == 0.0
                });
                worker.signal("STOP");
                let found = reconstructed(&through, seed).await;
                worker.signal("CONT");
                if let Some(response) = found {
                    break response;
                }
            };
            assert_eq!(response.outputs[0].tensor.shape(), [1, 2]);
        }
        assert!(frontend.metric("parm_reconstructions_total", &["event=\"served\""]) >= 2.0);
    }
}

#[test]
fn verify_fails_when_a_bundle_has_problems() {
    let verify = ["models", "verify", "--models"];
    let table = succeeds(&[&verify[..], &["models"]].concat());
    assert!(table.contains("slots k=2 r=1") && table.contains("ok"), "{table}");
    let json = succeeds(&[&verify[..], &["models", "fashion-lenet", "--output", "json"]].concat());
    let reports: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(reports[0]["parities"][0]["problems"], serde_json::json!([]));
    let other = tempfile::TempDir::new().unwrap();
    model(other.path(), "fashion-lenet", &fs::read("models/fashion-linear/1/model.onnx").unwrap());
    fs::copy("models/fashion-lenet/parm.toml", other.path().join("fashion-lenet/parm.toml")).unwrap();
    let empty = tempfile::TempDir::new().unwrap();
    for (folder, words) in [(other, ["does not fit", "fashion-lenet"]), (empty, ["parm models list"; 2])] {
        let (status, said) = told(&[&verify[..], &[folder.path().to_str().unwrap()]].concat());
        assert!(status != Some(0) && words.iter().all(|words| said.contains(words)), "{said}");
    }
}
