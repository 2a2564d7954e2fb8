//! Tests that the requested settings are in effect after concurrent changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parm_dispatcher::{Accept, Reject, Shape, Site};
use parm_protocol::{ModelConfig, ModelMetadata, ModelRef, TensorMetadata};
use parm_settings::PolicyKind;
use parm_transport::client;
use tokio::runtime::Runtime;

use super::{Core, Departure};
use crate::config::Config;
use crate::serve::driver::Submission;
use crate::serve::inputs::Inputs;
use crate::serve::terms::Terms;
use crate::serve::{Description, Instance, Timers};

/// Outer bound on waits. A correct frontend waits this long once in each test.
const PATIENCE: Duration = Duration::from_millis(300);

/// A function that is called between two steps.
type Hook = parking_lot::Mutex<Option<Arc<dyn Fn() + Send + Sync>>>;

fn core(runtime: &Runtime) -> Arc<Core> {
    let _inside = runtime.enter();
    Core::start(Config::default(), Timers::Runtime, None).unwrap()
}

/// Adds an instance with a model.
fn join(core: &Arc<Core>, model: &str) -> Arc<Instance> {
    let id = core.next_instance();
    let client = client::connect(&"http://127.0.0.1:1".parse().unwrap(), &client::Config::default()).unwrap();
    let name = format!("i{}", id.0);
    let instance =
        Arc::new(Instance::new((id, id.0), name.clone(), client, core.metrics.instances.of(&name)));
    assert!(core.join(&instance, Site::default(), vec![described(model, &[])], false).is_empty());
    instance
}

fn described(model: &str, inputs: &[&str]) -> Description {
    let tensor =
        |name: &&str| TensorMetadata { name: (*name).into(), datatype: "FP32".into(), shape: vec![-1, 4] };
    let inputs = inputs.iter().map(tensor).collect();
    let model = ModelRef { name: model.into(), version: None };
    Description { model, metadata: ModelMetadata { inputs, ..ModelMetadata::default() }, config: None }
}

fn wish(core: &Arc<Core>, policy: PolicyKind) {
    let change = |settings: &mut super::PoolSettingsByModel| {
        settings.default.policy = policy;
        Ok(())
    };
    core.change_settings(None, change).unwrap();
}

/// Effective policies, model by model.
fn in_force(core: &Core) -> Vec<PolicyKind> {
    core.catalog.all().iter().map(|pool| pool.standing().unwrap().in_force.policy).collect()
}

/// Stops the first thread that has read the requested settings. Returns channels that report the stop and let it
/// continue.
fn stop_first(core: &Core) -> (Receiver<()>, SyncSender<()>) {
    stop_first_at(&core.before_force)
}

/// Like `stop_first`, for the first thread that calls a hook.
fn stop_first_at(hook: &Hook) -> (Receiver<()>, SyncSender<()>) {
    let (stopped, at_rest) = sync_channel(1);
    let (go, gone) = sync_channel::<()>(1);
    let (first, gone) = (AtomicBool::new(true), std::sync::Mutex::new(gone));
    *hook.lock() = Some(Arc::new(move || {
        if first.swap(false, Ordering::SeqCst) {
            stopped.send(()).unwrap();
            gone.lock().unwrap().recv().unwrap();
        }
    }));
    (at_rest, go)
}

fn beside(runtime: &Runtime, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    let handle = runtime.handle().clone();
    thread::spawn(move || {
        let _inside = handle.enter();
        work();
    })
}

/// Lets another thread overtake the stopped one, if it can.
fn until_done(other: &JoinHandle<()>) {
    let turn = Duration::from_millis(1);
    for _ in 0..PATIENCE.as_millis() {
        if other.is_finished() {
            return;
        }
        thread::sleep(turn);
    }
}

#[test]
fn later_of_two_concurrent_changes_stays_in_force() {
    let runtime = Runtime::new().unwrap();
    let core = core(&runtime);
    let _inside = runtime.enter();
    join(&core, "m");
    let (at_rest, go) = stop_first(&core);
    let (one, two) = (core.clone(), core.clone());
    let first = beside(&runtime, move || wish(&one, PolicyKind::None));
    at_rest.recv_timeout(10 * PATIENCE).unwrap();
    let second = beside(&runtime, move || wish(&two, PolicyKind::Equal));
    until_done(&second);
    go.send(()).unwrap();
    [first, second].into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(core.settings().default.policy, PolicyKind::Equal);
    assert_eq!(in_force(&core), [PolicyKind::Equal]);
}

#[test]
fn change_reaches_a_model_that_arrives_meanwhile() {
    let runtime = Runtime::new().unwrap();
    let core = core(&runtime);
    let _inside = runtime.enter();
    join(&core, "a");
    // The new model has read the older settings when the change comes.
    let (at_rest, go) = stop_first(&core);
    let (one, two) = (core.clone(), core.clone());
    let arrival = beside(&runtime, move || drop(join(&one, "b")));
    at_rest.recv_timeout(10 * PATIENCE).unwrap();
    let change = beside(&runtime, move || wish(&two, PolicyKind::Equal));
    until_done(&change);
    go.send(()).unwrap();
    [arrival, change].into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(in_force(&core), [PolicyKind::Equal; 2]);
}

#[test]
fn model_that_leaves_during_a_change_leaves_nothing_behind() {
    let runtime = Runtime::new().unwrap();
    let core = core(&runtime);
    let _inside = runtime.enter();
    let instance = join(&core, "m");
    let pool = core.catalog.all()[0].clone();
    // The change has listed the model before it is removed.
    let (at_rest, go) = stop_first(&core);
    let (one, two) = (core.clone(), core.clone());
    let change = beside(&runtime, move || wish(&one, PolicyKind::Equal));
    at_rest.recv_timeout(10 * PATIENCE).unwrap();
    let departure = beside(&runtime, move || two.leave(&instance, Departure::Removed));
    until_done(&departure);
    go.send(()).unwrap();
    [change, departure].into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(core.driver.held().pools, 0, "the dispatcher keeps a model without instances");
    core.apply_settings(&pool);
    assert_eq!(core.driver.held().pools, 0, "the dispatcher must not have the model again");
}

#[test]
fn replaced_model_is_not_set_up_again_for_its_stand_in() {
    let runtime = Runtime::new().unwrap();
    let core = core(&runtime);
    let _inside = runtime.enter();
    let big = join(&core, "big");
    join(&core, "small");
    // The specification of the stand-in's instance is about to be sent while another model replaces the big one.
    let (at_rest, go) = stop_first_at(&core.roster.before_settling);
    let (one, two) = (core.clone(), core.clone());
    let change = beside(&runtime, move || {
        let change = |settings: &mut super::PoolSettingsByModel| {
            settings.default.policy = PolicyKind::StandIn;
            settings.default.stand_in.model = Some("small".into());
            settings.default.stand_in.min_confidence = parm_settings::Fraction::percent(0);
            Ok(())
        };
        one.change_settings(None, change).unwrap();
    });
    at_rest.recv_timeout(10 * PATIENCE).unwrap();
    let replacement = beside(&runtime, move || {
        assert!(two.join(&big, Site::default(), vec![described("big", &["x"])], false).is_empty());
    });
    until_done(&replacement);
    go.send(()).unwrap();
    [change, replacement].into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(core.catalog.all().len(), 2);
    assert_eq!(core.driver.held().pools, 2, "the dispatcher keeps the replaced model");
}

#[test]
fn panic_of_the_dispatcher_breaks_the_frontend() {
    let runtime = Runtime::new().unwrap();
    let core = core(&runtime);
    let driver = core.driver.clone();
    let ended = beside(&runtime, move || {
        driver.with(|state| state.react(&driver, |_, _| panic!("intended by the test")));
    });
    ended.join().unwrap_err();
    assert_eq!(runtime.block_on(core.driver.lifelines.broken()), "the dispatcher");
}

#[test]
fn stand_in_that_can_never_be_sure_is_noticed() {
    let runtime = Runtime::new().unwrap();
    let core = core(&runtime);
    let _inside = runtime.enter();
    ["big", "small"].into_iter().for_each(|model| drop(join(&core, model)));
    let is_noticed = |least: u8, named: bool| {
        let change = |settings: &mut super::PoolSettingsByModel| {
            let own = &mut settings.default;
            own.policy = if named { PolicyKind::StandIn } else { PolicyKind::Hedge };
            own.stand_in.model = Some("small".into());
            own.stand_in.min_confidence = parm_settings::Fraction::percent(least);
            Ok(())
        };
        core.change_settings(None, change).unwrap();
        let pools = core.catalog.all();
        pools.iter().find(|pool| pool.model.name == "big").unwrap().never_sure.load(Ordering::Relaxed)
    };
    assert!(is_noticed(50, true), "no bundle defines the meaning of outputs");
    assert!(!is_noticed(0, true), "no confidence is required");
    assert!(is_noticed(1, true));
    assert!(!is_noticed(50, false), "another policy uses no stand-in");
}

#[test]
fn stand_in_is_known_by_its_file() {
    let runtime = Runtime::new().unwrap();
    let core = core(&runtime);
    let _inside = runtime.enter();
    let change = |settings: &mut super::PoolSettingsByModel| {
        settings.default.policy = PolicyKind::StandIn;
        settings.default.stand_in.model = Some("small".into());
        Ok(())
    };
    core.change_settings(None, change).unwrap();
    join(&core, "big");
    let small = join(&core, "small");
    let files_with = |digest: &str| {
        let config = ModelConfig { max_batch_size: 8, ..ModelConfig::default() }.with_digest(digest);
        let described = Description { config: Some(config), ..described("small", &[]) };
        assert!(core.join(&small, Site::default(), vec![described], false).is_empty());
        let pools = core.catalog.all();
        let big = pools.iter().find(|pool| pool.model.name == "big").unwrap();
        big.standing().unwrap().in_force.stand_in_files.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(files_with("AA"), ["aa"]);
    assert_eq!(files_with("bb"), ["bb"], "another file has the same name");
}

#[tokio::test(start_paused = true)]
async fn query_for_a_removed_model_is_rejected_at_once() {
    let core = Core::start(Config::default(), Timers::Runtime, None).unwrap();
    let instance = join(&core, "m");
    // The request has found its model before the last instance leaves.
    let submission = submission(&core);
    core.leave(&instance, Departure::Removed);
    let asked = tokio::time::Instant::now();
    let submitted = core.driver.submit(submission);
    assert_eq!(submitted.verdict().await.err().unwrap().why, Reject::NoInstance);
    assert_eq!(asked.elapsed(), Duration::ZERO, "its successor could have answered it");
}

/// A request of the first model.
fn submission(core: &Core) -> Submission {
    let pool = core.catalog.all()[0].clone();
    let deadline = core.driver.now() + Duration::from_secs(10);
    let terms = Terms { deadline, priority: 0, accept: Accept::Any, share: None };
    let inputs = Arc::new(Inputs::of(Vec::new(), 1));
    let shape = Shape { name: pool.shapes.alone(), size: 1 };
    Submission { pool, inputs, shape, terms, codable: false }
}
