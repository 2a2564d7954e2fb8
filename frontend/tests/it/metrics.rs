//! Tests of the metrics page, whose names dashboards rely on.

use std::num::NonZeroU8;

use parm_settings::PolicyKind;

use parm_encoder::Kind;
use parm_protocol::{InferenceService, ModelMetadata, ModelRef};

use crate::rig::{change, config, frontend, infer, metric, request, until, wanting};
use crate::scripted::{Scripted, doubler};

#[tokio::test(start_paused = true)]
async fn counts_of_codes_stay_when_the_policy_changes() {
    let instances = ["a", "b", "c"].map(|name| Scripted::quick(name, 1));
    let mut config = config(PolicyKind::ParmPlus);
    config.dispatch.coding.code = Some(Kind::Mds);
    (config.dispatch.coding.k, config.dispatch.coding.parm_plus.k_follows_load) =
        (NonZeroU8::new(2).unwrap(), false);
    let frontend = frontend(config.clone(), &instances.each_ref()).await;
    until("the model is known to be linear", || metric(&frontend, "parm_codes", &[]) > 0.0).await;
    infer(&frontend, request(&[1.0, 2.0])).await.unwrap();
    let page = frontend.metrics();
    config.dispatch.policy = PolicyKind::None;
    change(&frontend, &config.dispatch).await;
    let counts =
        ["parm_groups_total", "parm_parities_total", "parm_dispatch_total", "parm_encode_seconds_count"];
    for (name, line) in counts.iter().flat_map(|name| page.lines().map(move |line| (name, line))) {
        let is_gone = line.starts_with(name) && !frontend.metrics().lines().any(|now| now == line);
        assert!(!is_gone, "without codes the count goes on: {line}");
    }
    assert!(page.contains("parm_parities_total{event=\"sent\",model=\"double\",version=\"1\"} 1"), "{page}");
}

#[tokio::test(start_paused = true)]
async fn series_of_a_version_end_with_it() {
    let instance = Scripted::quick("a", 1);
    let frontend = frontend(config(PolicyKind::Hedge), &[&instance]).await;
    let samples = |page: &str| page.lines().filter(|line| line.contains("model=\"double\"")).count();
    let mut first = None;
    for number in 1..=5u32 {
        let version = number.to_string();
        instance.serve(&[ModelMetadata { versions: vec![version.clone()], ..doubler("double") }]);
        let model = ModelRef { version: Some(version), ..ModelRef::latest("double") };
        until("the version is served", || frontend.is_model_ready(&model) == Ok(true)).await;
        infer(&frontend, request(&[1.0])).await.unwrap();
        let bad = wanting(request(&[1.0]), &["nothing"]);
        infer(&frontend, bad).await.unwrap_err();
        let page = frontend.metrics();
        let count = samples(&page);
        assert_eq!(count, *first.get_or_insert(count), "version {number}\n{page}");
    }
}
