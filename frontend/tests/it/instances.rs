//! Tests of the models that instances report.

use std::time::Duration;

use parm_protocol::{Code, Error, InferenceService, ModelIndex, ModelRef};
use parm_settings::PolicyKind;
use serde_json::Value;

use crate::rig::{
    call, column, config, connected, frontend, infer, metric, ready, request, start, started, until, with,
};
use crate::scripted::{Scripted, doubler};

#[tokio::test(start_paused = true)]
async fn order_of_tensors_and_platform_may_differ() {
    let first = Scripted::quick("a", 10);
    let second = Scripted::quick("b", 10);
    let mut model = doubler("double");
    model.outputs.reverse();
    model.platform = "another".into();
    second.serve(&[model]);
    let frontend = frontend(config(PolicyKind::None), &[&first, &second]).await;
    let response = infer(&frontend, request(&[1.0, 2.0])).await.unwrap();
    assert_eq!(column(&response), [2.0, 4.0]);
    assert!(!second.seen.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn model_is_unknown_only_once_a_worker_has_listed_some() {
    let frontend = started(config(PolicyKind::None)).unwrap();
    let model = ModelRef::latest("nothing");
    let mut unknown = request(&[1.0]);
    unknown.model = model.clone();
    let error = infer(&frontend, unknown.clone()).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable, "{error}");
    assert!(error.to_string().contains("no worker has listed its models"), "{error}");
    assert_eq!(frontend.model_metadata(&model).unwrap_err().code(), Code::Unavailable);
    assert_eq!(frontend.is_model_ready(&model), Ok(false));
    let worker = Scripted::quick("a", 1);
    frontend.embed(worker, None).unwrap();
    until("it joined", || ready(&frontend) == 1.0).await;
    assert_eq!(infer(&frontend, unknown).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(frontend.model_metadata(&model).unwrap_err().code(), Code::NotFound);
    assert!(frontend.is_model_ready(&model).is_err());
}

#[tokio::test(start_paused = true)]
async fn loading_and_unloading_reach_every_instance() {
    let instances = [Scripted::quick("a", 1), Scripted::quick("b", 1)];
    let frontend = frontend(config(PolicyKind::None), &instances.each_ref()).await;
    frontend.load_model("more").await.unwrap();
    assert_eq!(
        frontend.is_model_ready(&ModelRef::latest("more")),
        Ok(true),
        "a loaded model must be ready at once"
    );
    let mut more = request(&[1.0]);
    more.model = ModelRef::latest("more");
    infer(&frontend, more).await.unwrap();
    frontend.unload_model("double").await.unwrap();
    assert!(frontend.is_model_ready(&ModelRef::latest("double")).is_err());
    let index = frontend.repository_index(false).unwrap();
    let listed: Vec<_> = index.iter().map(|model| (&*model.name, &*model.state, &*model.reason)).collect();
    assert_eq!(listed, [("more", "READY", ""), ("double", "UNAVAILABLE", "unloaded by request")]);
    assert_eq!(frontend.repository_index(true).unwrap().len(), 1);
    assert_eq!(infer(&frontend, request(&[1.0])).await.unwrap_err().code(), Code::NotFound);
    for instance in &instances {
        assert_eq!(*instance.orders.lock(), ["load more", "unload double"]);
    }
}

#[tokio::test(start_paused = true)]
async fn load_fails_when_no_instance_serves_the_model() {
    let instance = Scripted::quick("a", 1);
    let frontend = frontend(config(PolicyKind::None), &[&instance]).await;
    // The instance accepts the order, but never serves the model.
    let error = frontend.load_model("ghost").await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.to_string().contains("'ghost' was loaded but is not usable"), "{error}");
    // An instance that takes too long to answer is not awaited for ever.
    instance.thinks_for(std::time::Duration::from_secs(3600));
    let error = frontend.load_model("other").await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn requests_stay_whole_while_one_instance_declares_it() {
    let instances = [Scripted::quick("a", 1), Scripted::quick("b", 1)];
    instances.iter().for_each(|instance| instance.says_max_batch(64));
    let frontend = frontend(config(PolicyKind::None), &instances.each_ref()).await;
    let most = || frontend.model_config(&ModelRef::latest("double")).unwrap().max_batch_size;
    let accepted = config(PolicyKind::None).requests.max_rows.get() as i32;
    for (stated, expected) in
        [([64, 64], accepted), ([64, 0], 0), ([0, 0], 0), ([0, 64], 0), ([8, 64], accepted)]
    {
        instances.iter().zip(stated).for_each(|(instance, most)| instance.says_max_batch(most));
        until("the change is known", || most() == expected).await;
        // All instances are described again meanwhile, so that the last one would undo it.
        tokio::time::sleep(config(PolicyKind::None).instances.models_interval * 2).await;
        assert_eq!((most(), ready(&frontend)), (expected, 2.0), "{stated:?}");
        let seen = || instances.iter().map(|instance| instance.batches().len()).sum::<usize>();
        let before = seen();
        assert_eq!(column(&infer(&frontend, request(&[1.0, 2.0])).await.unwrap()), [2.0, 4.0]);
        assert_eq!(seen() - before, if expected == 0 { 1 } else { 2 }, "{stated:?}");
    }
    instances[0].says_max_batch(0);
    until("the change is known", || most() == 0).await;
    instances[0].serve(&[]);
    until("the only instance that declares it has left", || most() == accepted).await;
}

#[tokio::test(start_paused = true)]
async fn drained_instance_gets_no_query_when_its_models_change() {
    let servers = ["test://a:1", "test://b:1"].map(|name| Scripted::quick(name, 200));
    let frontend = connected(config(PolicyKind::None), &servers.each_ref()).await;
    let draining = || metric(&frontend, "parm_instances", &["state=\"draining\""]) == 1.0;
    assert_eq!(call(&frontend, "POST", "/instances/1/drain", Value::Null).await.0, 202);
    until("one drains", draining).await;
    let long = |value: u8| with(request(&[f32::from(value)]), "timeout", 60_000_000u64);
    let waiting: Vec<_> = (0..100).map(|value| start(&frontend, long(value))).collect();
    servers[0].serve(&[doubler("double"), doubler("more")]);
    until("the new model is known", || frontend.repository_index(false).unwrap().len() == 2).await;
    for waiting in waiting {
        waiting.await.unwrap().unwrap();
    }
    assert!(draining());
    assert_eq!(servers[0].seen.lock().len(), 0, "a drained instance must get no work");
}

#[tokio::test(start_paused = true)]
async fn model_without_state_is_not_served_among_stated_ones() {
    let instance = Scripted::quick("a", 1);
    // As Triton lists a model that was never loaded.
    let unloaded = ModelIndex { name: "never loaded".into(), ..ModelIndex::default() };
    instance.unloaded.lock().push(unloaded);
    let frontend = frontend(config(PolicyKind::None), &[&instance]).await;
    let index = frontend.repository_index(true).unwrap();
    assert_eq!(index.iter().map(|model| &*model.name).collect::<Vec<_>>(), ["double"]);
    assert_eq!(frontend.repository_index(false).unwrap().len(), 2, "it can be loaded by this name");
}

#[tokio::test(start_paused = true)]
async fn checks_that_cannot_connect_in_time_count_as_timeouts() {
    let instance = Scripted::quick("a", 2500);
    let frontend = frontend(config(PolicyKind::None), &[&instance]).await;
    let held = start(&frontend, request(&[1.0]));
    let silent = Error::Remote { code: Code::DeadlineExceeded, message: "no connection in 1s".into() };
    instance.set_ready(Err(silent.clone()));
    tokio::time::sleep(Duration::from_millis(2100)).await;
    assert_eq!(ready(&frontend), 1.0, "two checks may be a pause");
    instance.set_ready(Ok(true));
    assert_eq!(column(&held.await.unwrap().unwrap()), [2.0]);
    assert_eq!(instance.seen.lock().len(), 1, "the job must not be given up");
    tokio::time::sleep(Duration::from_millis(1100)).await;
    instance.set_ready(Err(silent));
    tokio::time::sleep(Duration::from_millis(3100)).await;
    assert_eq!(ready(&frontend), 0.0);
}
