//! Tests of pods that replace others.

use std::time::Duration;

use serde_json::json;

use crate::cluster::{ending, pod};
use crate::followed::{Followed, well};
use crate::rig::{infer, ready, request};

#[tokio::test(start_paused = true)]
async fn terminating_pods_serve_until_a_new_one_does() {
    let followed = Followed::with(2).await;
    followed.network.kill(&followed.workers[2]);
    let starting = json!({"conditions": {"ready": false, "serving": false, "terminating": false}});
    let old = ["10.0.0.1", "10.0.0.2"].map(|host| pod(host, "n", ending(true)));
    let pods = |new| [old[0].clone(), old[1].clone(), pod("10.0.0.3", "n", new)];
    followed.cluster.put("w-1", &pods(starting.clone()));
    for _ in 0..10 {
        followed.works().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(ready(&followed.frontend), 2.0, "they are all that serves");
    followed.workers[2].set_ready(Ok(true));
    followed.network.start(&followed.workers[2]);
    followed.until_ready(3).await;
    followed.cluster.put("w-1", &pods(json!({})));
    followed.until_ready(1).await;
    followed.works().await;
    assert_eq!(followed.workers[2].seen.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn model_is_not_unknown_while_new_pods_start() {
    let followed = Followed::with(1).await;
    followed.network.kill(&followed.workers[1]);
    // The old pod is gone before the new one is connected.
    followed.cluster.put("w-1", &[pod("10.0.0.1", "n1", ending(false)), well(2)[1].clone()]);
    followed.until_ready(0).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let error = infer(&followed.frontend, request(&[1.0])).await.unwrap_err();
    assert!(matches!(error, parm_protocol::Error::Unavailable { .. }), "{error:?}");
    followed.workers[1].set_ready(Ok(true));
    followed.network.start(&followed.workers[1]);
    followed.until_ready(1).await;
    followed.works().await;
}
