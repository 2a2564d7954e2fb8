//! The metrics page: one test holds its names, which dashboards rely on.

use parm_dispatch::PolicyKind;

use crate::rig::{config, frontend, infer, request};
use crate::scripted::Scripted;

#[tokio::test(start_paused = true)]
async fn the_page_has_the_names_that_dashboards_rely_on() {
    let instance = Scripted::quick("a", 1);
    let frontend = frontend(config(PolicyKind::Hedge), &[&instance]).await;
    infer(&frontend, request(&[1.0, 2.0])).await.unwrap();
    let page = frontend.metrics();
    for line in [
        "nv_inference_request_success{model=\"double\",version=\"1\"} 1",
        "nv_inference_count{model=\"double\",version=\"1\"} 2",
        "nv_inference_exec_count{model=\"double\",version=\"1\"} 2",
        "nv_inference_pending_request_count{model=\"double\",version=\"1\"} 0",
        "parm_dispatch_total{event=\"arrived\",model=\"double\",version=\"1\"} 2",
        "parm_hedges_total{model=\"double\",version=\"1\"} 0",
        "parm_hedges_refused_total{model=\"double\",version=\"1\"} 0",
        "parm_ejections_total{model=\"double\",reason=\"slow\",version=\"1\"} 0",
        "parm_retries_total{model=\"double\",version=\"1\"} 0",
        "parm_queue_depth{model=\"double\",version=\"1\"} 0",
        "parm_usable_instances{model=\"double\",version=\"1\"} 1",
        "parm_codes{model=\"double\",version=\"1\"} 0",
        "parm_groups_total{kind=\"full\",model=\"double\",version=\"1\"} 0",
        "parm_parities_total{event=\"sent\",model=\"double\",version=\"1\"} 0",
        "parm_reconstructions_total{event=\"served\",model=\"double\",version=\"1\"} 0",
        "parm_backups_served_total{model=\"double\",version=\"1\"} 0",
        "parm_coding_failures_total{model=\"double\",stage=\"encode\",version=\"1\"} 0",
        "parm_encode_seconds_count{model=\"double\",version=\"1\"} 0",
        "parm_decode_seconds_count{model=\"double\",version=\"1\"} 0",
        "parm_reconstruction_confidence_count{model=\"double\",version=\"1\"} 0",
        "parm_instance_inflight{instance=\"embedded:0\"} 0",
        "parm_instance_service_seconds_count{instance=\"embedded:0\"} 2",
        "parm_instances{state=\"ready\"} 1",
    ] {
        assert!(page.lines().any(|had| had == line), "{line}\n{page}");
    }
}
