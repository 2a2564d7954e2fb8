//! Tests of hung instances with default settings: no query misses its deadline, and no output stays.

use std::num::NonZeroU8;
use std::sync::Arc;
use std::time::Duration;

use parm_frontend::{Config, Frontend};
use parm_settings::{Fraction, PolicyKind};

use crate::fleet::{MS, over, stand_in, warm, workers_with_stand_ins};
use crate::rig::{config, get, infer, metric, request, start, with};
use crate::scripted::{Act, Scripted};

/// Workers with stand-ins that report their run times: eight rows of a stand-in take little longer than one.
fn instances(count: usize) -> Vec<Arc<Scripted>> {
    let workers = workers_with_stand_ins(count);
    for worker in &workers {
        worker.says_run_times("double", &[10 * MS]);
        worker.says_run_times("small", &[2 * MS, 2 * MS, 2 * MS, 3 * MS]);
    }
    workers
}

/// A frontend over these instances with known service times.
async fn warmed(config: Config, instances: &[Arc<Scripted>]) -> Frontend {
    let frontend = over(config, instances).await;
    warm(&frontend, &request(&[1.0])).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    frontend
}

/// Time until a query with a timeout of five seconds is answered.
async fn time_of(frontend: Frontend, value: u8) -> Duration {
    let began = tokio::time::Instant::now();
    let asked = with(request(&[f32::from(value)]), "timeout", 5_000_000u64);
    infer(&frontend, asked).await.expect("an answer");
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn burst_is_answered_in_time_when_an_instance_hangs() {
    for policy in [PolicyKind::StandIn, PolicyKind::Hedge] {
        for hung in 0..3 {
            let instances = instances(3);
            let mut config = stand_in(|_| {});
            config.dispatch.policy = policy;
            let frontend = warmed(config, &instances).await;
            let calls: Vec<_> = (0..12).map(|value| tokio::spawn(time_of(frontend.clone(), value))).collect();
            tokio::time::sleep(MS).await;
            // Jobs that the instance already runs are still answered.
            instances[hung].model_does("small", Act::Hang);
            instances[hung].model_does("double", Act::Hang);
            for call in calls {
                let took = call.await.expect("no panic");
                assert!(took < 300 * MS, "{policy:?}, i{hung} hangs: {took:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn instance_that_answers_nothing_is_listed_as_silent() {
    let instances = instances(3);
    let frontend = warmed(config(PolicyKind::Hedge), &instances).await;
    instances[1].becomes(Act::Hang);
    let before = instances[1].seen.lock().len();
    while instances[1].seen.lock().len() == before {
        time_of(frontend.clone(), 4).await;
    }
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let listed = get(&frontend, "/instances").await.1;
    let reasons = [0, 1, 2].map(|at| listed[at]["reason"].as_str());
    assert_eq!(reasons, [None, Some("silent"), None], "{listed}");
    let told = metric(&frontend, "parm_instance_condition", &["condition=\"silent\""]);
    assert_eq!((told, metric(&frontend, "parm_instance_condition", &[])), (1.0, 1.0));
}

#[tokio::test(start_paused = true)]
async fn query_is_answered_in_time_when_it_hangs_and_its_copy_fails() {
    for hung in 0..3 {
        let instances = instances(3);
        let mut config = config(PolicyKind::Hedge);
        // The one that hangs counts, too, and two copies fail.
        config.dispatch.max_attempts = NonZeroU8::new(4).unwrap();
        let frontend = warmed(config, &instances).await;
        for (number, instance) in instances.iter().enumerate() {
            let failure = parm_protocol::Error::Unavailable { message: "out of memory".into() };
            instance.then(if number == hung { Act::Hang } else { Act::Fail(MS, failure) });
        }
        let took = time_of(frontend, 4).await;
        assert!(took < 300 * MS, "i{hung} hangs: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_job_is_held_when_all_is_answered_under_stand_in() {
    for bound in [5, 50] {
        let instances = instances(6);
        let config = stand_in(|settings| settings.bound = Fraction::percent(bound));
        let frontend = over(config, &instances).await;
        for second in 0..20u32 {
            for number in 0..600u16 {
                // Every twentieth answer takes ten times as long, and a burst of such answers comes every second.
                if number % 20 == 0 || (number > 500 && number % 3 == 0) {
                    instances[usize::from(number % 6)].then(Act::Answer(100 * MS));
                }
                start(&frontend, request(&[f32::from(number % 50)]));
                tokio::time::sleep(Duration::from_micros(u64::from(1 + number % 7) * 700)).await;
            }
            if second % 5 == 4 {
                tokio::time::sleep(Duration::from_secs(20)).await;
                let held = frontend.held();
                assert_eq!(
                    [held.requests, held.queries, held.jobs],
                    [0; 3],
                    "bound {bound} %, second {second}"
                );
            }
        }
    }
}
