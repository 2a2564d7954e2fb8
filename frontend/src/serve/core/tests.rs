//! Tests of the parts together.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use parm_dispatcher::{Accept, Reject, Shape, Site};
use parm_protocol::{ModelConfig, ModelMetadata, ModelRef};
use parm_settings::{Fraction, PolicyKind, PoolSettings};
use parm_transport::client;
use tokio::runtime::Runtime;

use super::{Core, Departure};
use crate::config::Config;
use crate::serve::driver::Submission;
use crate::serve::inputs::Inputs;
use crate::serve::terms::Terms;
use crate::serve::{Description, Instance, Timers};

fn core() -> Arc<Core> {
    Core::start(Config::default(), Timers::Runtime, None).unwrap()
}

/// Adds an instance with a model.
fn join(core: &Arc<Core>, model: &str) -> Arc<Instance> {
    let id = core.next_instance();
    let client = client::connect(&"http://127.0.0.1:1".parse().unwrap(), &client::Config::default()).unwrap();
    let name = format!("i{}", id.0);
    let instance =
        Arc::new(Instance::new((id, id.0), name.clone(), client, core.metrics.instances.of(&name)));
    assert!(core.join(&instance, Site::default(), vec![described(model)], false).is_empty());
    instance
}

fn described(model: &str) -> Description {
    let model = ModelRef { name: model.into(), version: None };
    Description { model, metadata: ModelMetadata::default(), config: None }
}

/// Changes the settings of all models.
fn wish(core: &Arc<Core>, change: impl FnOnce(&mut PoolSettings)) {
    let changed = core.change_settings(None, |settings| {
        change(&mut settings.default);
        Ok(())
    });
    changed.unwrap();
}

#[test]
fn last_of_concurrent_changes_is_in_force_for_the_models_that_are_left() {
    let runtime = Runtime::new().unwrap();
    let _inside = runtime.enter();
    let core = &core();
    join(core, "stays");
    let handle = runtime.handle();
    thread::scope(|scope| {
        for policy in [PolicyKind::None, PolicyKind::Equal] {
            scope.spawn(move || (0..50).for_each(|_| wish(core, |own| own.policy = policy)));
        }
        scope.spawn(move || {
            let _inside = handle.enter();
            for _ in 0..50 {
                core.leave(&join(core, "goes"), Departure::Removed);
            }
        });
    });
    let pools = core.catalog.all();
    let in_force: Vec<_> = pools.iter().map(|pool| pool.standing().unwrap().in_force.policy).collect();
    assert_eq!(in_force, [core.settings().default.policy]);
    assert_eq!(core.driver.held().pools, 1, "the dispatcher keeps a model without instances");
}

#[test]
fn panic_of_the_dispatcher_breaks_the_frontend() {
    let runtime = Runtime::new().unwrap();
    let _inside = runtime.enter();
    let core = core();
    let breaks = || {
        core.driver.with(|state| state.react(&core.driver, |_, _| panic!("intended by the test")));
    };
    catch_unwind(AssertUnwindSafe(breaks)).unwrap_err();
    assert_eq!(runtime.block_on(core.driver.lifelines.broken()), "the dispatcher");
}

#[test]
fn stand_in_that_can_never_be_sure_is_noticed() {
    let runtime = Runtime::new().unwrap();
    let _inside = runtime.enter();
    let core = core();
    ["big", "small"].into_iter().for_each(|model| drop(join(&core, model)));
    let is_noticed = |least: u8, named: bool| {
        wish(&core, |own| {
            own.policy = if named { PolicyKind::StandIn } else { PolicyKind::Hedge };
            own.stand_in.model = Some("small".into());
            own.stand_in.min_confidence = Fraction::percent(least);
        });
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
    let _inside = runtime.enter();
    let core = core();
    wish(&core, |own| {
        own.policy = PolicyKind::StandIn;
        own.stand_in.model = Some("small".into());
    });
    join(&core, "big");
    let small = join(&core, "small");
    let files_with = |digest: &str| {
        let config = ModelConfig { max_batch_size: 8, ..ModelConfig::default() }.with_digest(digest);
        let described = Description { config: Some(config), ..described("small") };
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
    let core = core();
    let instance = join(&core, "m");
    // The request has found its model before the last instance leaves.
    let pool = core.catalog.all()[0].clone();
    let deadline = core.driver.now() + Duration::from_secs(10);
    let terms = Terms { deadline, priority: 0, accept: Accept::Any, share: None };
    let inputs = Arc::new(Inputs::of(Vec::new(), 1));
    let shape = Shape { name: pool.shapes.alone(), size: 1 };
    core.leave(&instance, Departure::Removed);
    let asked = tokio::time::Instant::now();
    let submitted = core.driver.submit(Submission { pool, inputs, shape, terms, codable: false });
    assert_eq!(submitted.verdict().await.err().unwrap().why, Reject::NoInstance);
    assert_eq!(asked.elapsed(), Duration::ZERO, "its successor could have answered it");
}
