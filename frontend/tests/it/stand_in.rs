//! Tests of stand-ins over scripted instances that have both models.

use std::sync::Arc;

use parm_frontend::{Config, Frontend};
use parm_protocol::{ModelMetadata, TensorMetadata};
use parm_settings::{Fraction, StandInSettings};

use crate::rig::{
    self, MS, column, infer, metric, outcome, over, request, start, until, warm, workers_with_stand_ins,
};
use crate::scripted::{Act, Scripted, doubler};

/// The stand-in `small` without copies beside it.
fn stand_in(change: impl FnOnce(&mut StandInSettings)) -> Config {
    rig::stand_in(|settings| {
        settings.hedge = false;
        settings.bound = Fraction::percent(50);
        change(settings);
    })
}

/// Lets any instance that receives a query do this.
fn all_then(instances: &[Arc<Scripted>], act: &Act) {
    instances.iter().for_each(|instance| instance.then(act.clone()));
}

fn stand_ins(frontend: &Frontend, event: &str) -> f64 {
    metric(frontend, "parm_stand_ins_total", &[&format!("event=\"{event}\""), "model=\"double\""])
}

/// A frontend over these instances that knows how long a run takes.
async fn warmed(config: Config, instances: &[Arc<Scripted>]) -> Frontend {
    let frontend = over(config, instances).await;
    warm(&frontend, &request(&[1.0])).await;
    frontend
}

/// Sends queries one by one, `apart` milliseconds apart on average; with constant gaps the same instance would always
/// run the stand-in of another. Each third run is late, and each of the `wrong` instance is wrong.
async fn ask(
    frontend: &Frontend,
    instances: &[Arc<Scripted>],
    wrong: Option<usize>,
    (count, apart): (u16, u32),
) {
    for number in 0..count {
        if number % 3 == 0 {
            let at = usize::from(number / 3) % instances.len();
            instances[at].then(if wrong == Some(at) { Act::wrong(40 * MS) } else { Act::Answer(40 * MS) });
        }
        start(frontend, request(&[f32::from(number % 50)]));
        let gap = 1 + u32::from(number).pow(2) % 31 * 2 * apart / 31;
        tokio::time::sleep(gap * MS).await;
    }
    tokio::time::sleep(100 * MS).await;
}

#[tokio::test(start_paused = true)]
async fn exact_answer_wins_over_its_stand_in_and_is_compared_with_it() {
    let instances = workers_with_stand_ins(3);
    let frontend = warmed(stand_in(|_| {}), &instances).await;
    assert_eq!(stand_ins(&frontend, "late"), 0.0, "no usual query has one");
    all_then(&instances, &Act::Answer(20 * MS));
    instances.iter().for_each(|instance| instance.model_takes("small", 30 * MS));
    let response = infer(&frontend, request(&[4.0])).await.unwrap();
    assert_eq!((column(&response), outcome(&response)), (vec![8.0], "exact"));
    let compared = || metric(&frontend, "parm_comparisons_total", &["event=\"compared\""]);
    until("they are compared", || compared() == 1.0).await;
    assert_eq!(metric(&frontend, "parm_comparisons_total", &["event=\"disagreed\""]), 0.0);
    assert_eq!(["late", "served", "wasted"].map(|event| stand_ins(&frontend, event)), [1.0, 0.0, 1.0]);
}

#[tokio::test(start_paused = true)]
async fn nan_from_a_stand_in_is_not_served() {
    let instances = workers_with_stand_ins(3);
    instances.iter().for_each(|instance| instance.model_does("small", Act::NAN));
    let frontend = warmed(stand_in(|_| {}), &instances).await;
    all_then(&instances, &Act::Answer(200 * MS));
    let response = infer(&frontend, request(&[4.0])).await.unwrap();
    assert_eq!((column(&response), outcome(&response)), (vec![8.0], "exact"));
    assert_eq!((stand_ins(&frontend, "unsure"), stand_ins(&frontend, "served")), (1.0, 0.0));
}

#[tokio::test(start_paused = true)]
async fn disagreeing_stand_ins_are_withheld() {
    let instances = workers_with_stand_ins(4);
    instances.iter().for_each(|instance| instance.model_does("small", Act::wrong(2 * MS)));
    let frontend = warmed(stand_in(|_| {}), &instances).await;
    let withheld = || metric(&frontend, "parm_stand_ins_withheld", &["model=\"double\""]);
    ask(&frontend, &instances, None, (100, 12)).await;
    assert_eq!(withheld(), 1.0);
    let served = stand_ins(&frontend, "served");
    all_then(&instances, &Act::Answer(200 * MS));
    let response = infer(&frontend, request(&[4.0])).await.unwrap();
    assert_eq!((column(&response), outcome(&response)), (vec![8.0], "exact"));
    assert_eq!(stand_ins(&frontend, "served"), served);
    assert!(metric(&frontend, "parm_stand_in_agreement", &["model=\"double\""]) < 0.2);
}

#[tokio::test(start_paused = true)]
async fn wrong_instance_is_found_by_stand_ins_and_ejected() {
    for ejects in [true, false] {
        let instances = workers_with_stand_ins(6);
        let mut config = stand_in(|settings| settings.agreement.eject = ejects);
        config.dispatch.ejection.enabled = true;
        let frontend = warmed(config, &instances).await;
        ask(&frontend, &instances, None, (600, 6)).await;
        let suspects =
            |event: &str| metric(&frontend, "parm_suspects_total", &[&format!("event=\"{event}\"")]);
        assert_eq!(suspects("suspected"), 0.0);
        instances[3].becomes(Act::wrong(10 * MS));
        ask(&frontend, &instances, Some(3), (600, 6)).await;
        assert!(suspects("suspected") > 0.0, "eject: {ejects}");
        assert_eq!(suspects("ejected"), f64::from(u8::from(ejects)));
        let usable = metric(&frontend, "parm_usable_instances", &["model=\"double\""]);
        assert_eq!(usable, if ejects { 5.0 } else { 6.0 });
    }
}

#[tokio::test(start_paused = true)]
async fn job_has_priority_for_servers() {
    let instances = workers_with_stand_ins(2);
    let frontend = warmed(stand_in(|_| {}), &instances).await;
    all_then(&instances, &Act::Hang);
    infer(&frontend, request(&[4.0])).await.unwrap();
    let priorities = || -> Vec<(String, Option<u64>)> {
        let all = instances.iter().flat_map(|instance| instance.seen.lock().clone());
        all.map(|seen| (seen.model.name, seen.parameters.get("priority").and_then(|p| p.as_u64()))).collect()
    };
    let seen = priorities();
    assert!(seen.contains(&("double".into(), None)), "{seen:?}");
    assert!(seen.contains(&("small".into(), Some(1))), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn model_with_other_tensors_is_rejected_as_stand_in() {
    let odd = TensorMetadata { name: "y".into(), datatype: "FP32".into(), shape: vec![-1, 3] };
    let small = ModelMetadata { outputs: vec![odd, doubler("small").outputs[1].clone()], ..doubler("small") };
    let instances = workers_with_stand_ins(2);
    instances.iter().for_each(|instance| instance.serve(&[doubler("double"), small.clone()]));
    let frontend = over(stand_in(|_| {}), &instances).await;
    let (status, shown) = crate::rig::get(&frontend, "/settings/double").await;
    let why = shown["in_force"]["1"]["not_coded"].as_str().unwrap_or_default().to_owned();
    assert!(status == 200 && why.contains("output 'y' of model 'small' is FP32[-1, 3]"), "{shown}");
    let response = infer(&frontend, request(&[4.0])).await.unwrap();
    assert_eq!(outcome(&response), "exact");
    assert_eq!(stand_ins(&frontend, "late"), 0.0);
}
