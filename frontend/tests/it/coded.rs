//! Tests of coded serving over scripted instances.
//!
//! Their model is linear, so it is its own parity model with the code `mds`.

use std::sync::Arc;

use parm_encoder::Kind;
use parm_frontend::{Config, Error, Frontend};
use parm_protocol::{Code, InferResponse};
use parm_settings::{BatchSize, PolicyKind, PoolSettings};
use serde_json::json;

use crate::rig::{
    self, MS, call, change, coded, column, config, metric, outcome, request, start, until, wanting, with,
    workers, workers_with,
};
use crate::scripted::{Act, Scripted, doubler};

/// A frontend over these instances, after the linearity test if the code needs one.
async fn over(config: Config, instances: &[Arc<Scripted>]) -> Frontend {
    let is_tried = config.dispatch.coding.code == Some(Kind::Mds);
    let frontend = rig::over(config, instances).await;
    if is_tried {
        until("the linearity test is done", || metric(&frontend, "parm_codes", &[]) > 0.0).await;
        instances.iter().for_each(|instance| instance.seen.lock().clear());
    }
    frontend
}

#[track_caller]
fn is_near(response: &InferResponse, expected: &[f32]) {
    let had = column(response);
    let near = |(had, expected): (&f32, &f32)| (had - expected).abs() < 1e-4 * expected.abs().max(1.0);
    assert!(had.len() == expected.len() && had.iter().zip(expected).all(near), "{had:?}, not {expected:?}");
}

#[tokio::test(start_paused = true)]
async fn poisoned_query_does_not_change_other_members() {
    let instances = workers(4, 10);
    let frontend = over(coded(PolicyKind::ParmPlus, 2, 1), &instances).await;
    for bad in [f32::NAN, f32::INFINITY, 1e30] {
        instances[0].then(Act::Hang);
        // Two good queries and a bad one at once: whichever hangs, the good ones must be right.
        let poisoned = start(&frontend, with(request(&[bad]), "timeout", 200_000u64));
        let good =
            [3.0, 4.0].map(|value| (value, start(&frontend, with(request(&[value]), "timeout", 200_000u64))));
        for (value, good) in good {
            let response = good.await.unwrap().unwrap();
            is_near(&response, &[2.0 * value]);
        }
        let served = poisoned.await.unwrap();
        assert!(
            served.is_err() || outcome(&served.unwrap()) == "exact",
            "a poisoned query must not be reconstructed"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn requests_for_outputs_that_codes_cannot_add_up_are_not_coded() {
    let mut model = doubler("double");
    model.outputs[1].datatype = "INT64".into();
    for (wanted, groups) in [(&["y"][..], 1.0), (&["y", "z"], 0.0), (&[], 0.0)] {
        let instances = workers_with(3, std::slice::from_ref(&model));
        let frontend = over(coded(PolicyKind::ParmPlus, 2, 1), &instances).await;
        let asked = [1.0, 5.0].map(|value| start(&frontend, wanting(request(&[value]), wanted)));
        for asked in asked {
            assert_eq!(outcome(&asked.await.unwrap().unwrap()), "exact", "{wanted:?}");
        }
        assert_eq!(metric(&frontend, "parm_groups_total", &["kind=\"full\""]), groups, "{wanted:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nan_from_a_parity_is_not_served() {
    let instances = workers(3, 10);
    let frontend = over(coded(PolicyKind::Parm, 2, 1), &instances).await;
    // The instance that joined last runs parities.
    instances[2].then(Act::NAN);
    instances[0].then(Act::Hang);
    let asked = [1.0, 2.0].map(|value| start(&frontend, with(request(&[value]), "timeout", 300_000u64)));
    let mut failed = 0;
    for asked in asked {
        match asked.await.unwrap() {
            Ok(response) => assert_eq!(outcome(&response), "exact"),
            Err(error) => failed += usize::from(error.code() == Code::DeadlineExceeded),
        }
    }
    assert_eq!(failed, 1);
    assert_eq!(metric(&frontend, "parm_coding_failures_total", &["stage=\"decode\""]), 1.0);
}

#[test]
fn policies_without_what_they_need_are_rejected_at_start() {
    for (policy, word) in [
        (PolicyKind::ParmPlus, "bundles"),
        (PolicyKind::Parm, "mds"),
        (PolicyKind::ApproximateBackup, "backup_model"),
        (PolicyKind::StandIn, "stand_in.model"),
    ] {
        let error = Frontend::check(&config(policy)).unwrap_err();
        assert!(matches!(&error, Error::BadSettings { reason } if reason.contains(word)), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn missing_code_is_rejected_at_run_time() {
    let frontend = over(coded(PolicyKind::ParmPlus, 2, 1), &workers(3, 10)).await;
    for (kind, word) in [(Kind::Berrut, "approximate"), (Kind::Sum, "bundle")] {
        let mut settings = coded(PolicyKind::ParmPlus, 2, 1).dispatch;
        settings.coding.code = Some(kind);
        is_refused(&frontend, &settings, word).await;
    }
    until("the old settings are in effect", || metric(&frontend, "parm_codes", &[]) == 3.0).await;
}

async fn is_refused(frontend: &Frontend, settings: &PoolSettings, why: &str) {
    let (status, answer) = call(frontend, "PATCH", "/settings/double", json!(settings)).await;
    assert!(status == 400 && answer.to_string().contains(why), "{status} {answer}");
}

#[tokio::test(start_paused = true)]
async fn linearity_test_is_retried_when_it_had_no_answer() {
    let broke = parm_protocol::Error::Internal { message: "engine failure".into() };
    for act in [Act::Hang, Act::Fail(MS, broke)] {
        let instances = workers(3, 10);
        instances.iter().for_each(|instance| instance.then(act.clone()));
        // Completes only once the model is coded, which takes a second test.
        let frontend = over(coded(PolicyKind::ParmPlus, 2, 1), &instances).await;
        assert!(metric(&frontend, "parm_codes", &[]) > 0.0, "{act:?}");
    }
}

/// Runs three busy instances that finish one after the other, the second of which then hangs. While two queries wait, the
/// policy changes from one without codes to one with. Returns the answer to the second query, if it has one.
async fn answer_after(first: f32) -> Option<Vec<f32>> {
    let instances = workers(3, 10);
    let mut config = coded(PolicyKind::ParmPlus, 2, 1);
    config.dispatch.batch.max_size = BatchSize::ONE;
    let frontend = over(config.clone(), &instances).await;
    let mut plain = config.dispatch.clone();
    plain.policy = PolicyKind::None;
    change(&frontend, &plain).await;
    for (instance, ends) in instances.iter().zip([200, 205, 220]) {
        instance.then(Act::Answer(ends * MS));
    }
    instances[1].then(Act::Hang);
    let busy = [0.5; 3].map(|value| start(&frontend, request(&[value])));
    tokio::time::sleep(MS).await;
    let other = start(&frontend, request(&[first]));
    tokio::time::sleep(MS).await;
    let asked = start(&frontend, request(&[1.0]));
    tokio::time::sleep(MS).await;
    change(&frontend, &config.dispatch).await;
    for call in busy {
        call.await.unwrap().unwrap();
    }
    // A query after the change, for a group that the other waiting query cannot fill.
    let later = start(&frontend, request(&[5.0]));
    assert_eq!(column(&other.await.unwrap().unwrap()), [2.0 * first]);
    assert_eq!(column(&later.await.unwrap().unwrap()), [10.0]);
    asked.await.unwrap().ok().map(|response| column(&response))
}

#[tokio::test(start_paused = true)]
async fn huge_query_is_not_mixed_when_the_policy_changes() {
    for first in [3.0, 1e12, 1e30] {
        let answer = answer_after(first).await;
        let near = |answer: &Vec<f32>| answer.len() == 1 && (answer[0] - 2.0).abs() < 1e-3;
        assert!(answer.as_ref().is_none_or(near), "next to {first:e}: {answer:?}");
    }
}
