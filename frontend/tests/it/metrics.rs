//! Tests of the metrics page, whose names dashboards rely on.

use std::num::NonZeroU8;

use parm_dispatch::PolicyKind;

use parm_encoder::Kind;
use parm_protocol::ModelRef;

use crate::rig::{config, frontend, infer, metric, request, until};
use crate::scripted::{Scripted, doubler};

#[tokio::test(start_paused = true)]
async fn page_has_the_names_that_dashboards_use() {
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
        "parm_instance_inflight{instance=\"embedded:0\"} 0",
        "parm_instance_service_seconds_count{instance=\"embedded:0\"} 2",
        "parm_instances{state=\"ready\"} 1",
    ] {
        assert!(page.lines().any(|had| had == line), "{line}\n{page}");
    }
}

#[tokio::test(start_paused = true)]
async fn coded_model_has_metrics_of_codes() {
    let instances = ["a", "b", "c"].map(|name| Scripted::quick(name, 1));
    let mut config = config(PolicyKind::ParmPlus);
    config.dispatch.coding.code = Some(Kind::Mds);
    (config.dispatch.coding.k, config.dispatch.coding.parm_plus.k_follows_load) =
        (NonZeroU8::new(2).unwrap(), false);
    let frontend = frontend(config, &instances.each_ref()).await;
    until("the model is known to be linear", || metric(&frontend, "parm_codes", &[]) > 0.0).await;
    infer(&frontend, request(&[1.0, 2.0])).await.unwrap();
    let page = frontend.metrics();
    for line in [
        "parm_codes{model=\"double\",version=\"1\"} 3",
        "parm_groups_total{kind=\"full\",model=\"double\",version=\"1\"} 1",
        "parm_groups_total{kind=\"partial\",model=\"double\",version=\"1\"} 0",
        "parm_parities_total{event=\"sent\",model=\"double\",version=\"1\"} 1",
        "parm_reconstructions_total{event=\"served\",model=\"double\",version=\"1\"} 0",
        "parm_backups_served_total{model=\"double\",version=\"1\"} 0",
        "parm_coding_failures_total{model=\"double\",stage=\"encode\",version=\"1\"} 0",
        "parm_encode_seconds_count{model=\"double\",version=\"1\"} 1",
    ] {
        assert!(page.lines().any(|had| had == line), "{line}\n{page}");
    }
}

#[tokio::test(start_paused = true)]
async fn unused_models_have_one_series_each() {
    let instance = Scripted::quick("a", 1);
    let models: Vec<_> = (0..7).map(|number| doubler(&format!("m{number}"))).collect();
    instance.serve(&models);
    let frontend = frontend(config(PolicyKind::Hedge), &[&instance]).await;
    let samples = |page: &str| page.lines().filter(|line| line.contains("model=")).count();
    let page = frontend.metrics();
    assert_eq!(samples(&page), 7, "{page}");
    assert_eq!(metric(&frontend, "parm_usable_instances", &[]), 7.0);
    let mut one = request(&[1.0]);
    one.model = ModelRef::latest("m3");
    infer(&frontend, one).await.unwrap();
    let page = frontend.metrics();
    assert!(page.lines().filter(|line| line.contains("model=\"m4\"")).count() == 1, "{page}");
    assert!(samples(&page) < 7 + 100, "{page}");
}
