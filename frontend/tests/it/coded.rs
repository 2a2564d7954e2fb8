//! Tests of coded serving over scripted instances.
//!
//! Their model is linear, so it is its own parity model with the code `mds`.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use parm_encoder::Kind;
use parm_frontend::{Config, Error, Frontend, Timers};
use parm_protocol::{Code, InferResponse};
use parm_settings::{PolicyKind, PoolSettings};

use crate::fleet::{self, MS, coded, workers, workers_with};
use crate::rig::{Network, column, config, infer, metric, outcome, request, start, until, wanting, with};
use crate::scripted::{Act, Scripted, doubler};

/// A frontend over these instances, after the linearity test if the code needs one.
async fn over(config: Config, instances: &[Arc<Scripted>]) -> Frontend {
    let is_tried = config.dispatch.coding.code == Some(Kind::Mds);
    let frontend = fleet::over(config, instances).await;
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
async fn missing_prediction_is_reconstructed() {
    for policy in [PolicyKind::Parm, PolicyKind::ParmPlus] {
        let instances = workers(3, 10);
        let frontend = over(coded(policy, 2, 1), &instances).await;
        instances[0].then(Act::Hang);
        let asked = [start(&frontend, request(&[1.0])), start(&frontend, request(&[5.0]))];
        let mut outcomes = Vec::new();
        for (asked, expected) in asked.into_iter().zip([2.0, 10.0]) {
            let response = asked.await.unwrap().unwrap();
            is_near(&response, &[expected]);
            let other = response.outputs.iter().find(|output| output.name == "z").unwrap();
            assert!((other.tensor.as_f32().unwrap()[0] + expected / 2.0).abs() < 1e-4);
            assert_eq!(other.tensor.shape(), [1, 2]);
            outcomes.push(outcome(&response).to_owned());
        }
        outcomes.sort();
        assert_eq!(outcomes, ["exact", "reconstructed"], "{policy:?}");
        assert_eq!(metric(&frontend, "parm_groups_total", &["kind=\"full\""]), 1.0);
        assert_eq!(metric(&frontend, "parm_parities_total", &["event=\"sent\""]), 1.0);
        assert_eq!(metric(&frontend, "parm_reconstructions_total", &["event=\"served\""]), 1.0);
        assert_eq!(metric(&frontend, "parm_encode_seconds_count", &[]), 1.0);
        assert_eq!(metric(&frontend, "parm_decode_seconds_count", &[]), 1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn two_lost_of_four_are_reconstructed_from_two_parities() {
    let instances = workers(6, 10);
    let frontend = over(coded(PolicyKind::ParmPlus, 4, 2), &instances).await;
    instances[0].then(Act::Hang);
    instances[1].then(Act::Hang);
    let values = [1.0, -3.0, 0.25, 40.0];
    let asked = values.map(|value| start(&frontend, request(&[value])));
    let mut reconstructed = 0;
    for (asked, value) in asked.into_iter().zip(values) {
        let response = asked.await.unwrap().unwrap();
        is_near(&response, &[2.0 * value]);
        reconstructed += usize::from(outcome(&response) == "reconstructed");
    }
    assert_eq!(reconstructed, 2);
}

#[tokio::test(start_paused = true)]
async fn coded_answers_of_healthy_instances_are_exact() {
    let instances = workers(4, 10);
    let frontend = over(coded(PolicyKind::ParmPlus, 2, 1), &instances).await;
    for value in 0..50u8 {
        let asked = [f32::from(value), 0.5].map(|value| (value, start(&frontend, request(&[value, -value]))));
        for (value, asked) in asked {
            let response = asked.await.unwrap().unwrap();
            assert_eq!(column(&response), [2.0 * value, -2.0 * value], "answers must be bit-identical");
            assert_eq!(outcome(&response), "exact");
        }
    }
    assert!(metric(&frontend, "parm_groups_total", &["kind=\"full\""]) > 0.0);
}

#[tokio::test(start_paused = true)]
async fn rows_of_one_request_are_coded_one_by_one() {
    let instances = workers(4, 10);
    let frontend = over(coded(PolicyKind::ParmPlus, 3, 1), &instances).await;
    instances[0].then(Act::Hang);
    let response = infer(&frontend, request(&[1.0, 2.0, 3.0])).await.unwrap();
    is_near(&response, &[2.0, 4.0, 6.0]);
    assert_eq!(outcome(&response), "reconstructed");
    let outcomes = response.parameters["parm_outcomes"].as_str().unwrap();
    assert_eq!(outcomes.matches("exact").count(), 2, "{outcomes}");
    assert!(response.parameters.contains_key("parm_group"));
}

#[tokio::test(start_paused = true)]
async fn batches_are_coded_row_by_row() {
    let mut config = coded(PolicyKind::ParmPlus, 2, 1);
    config.dispatch.batch.max_size = NonZeroU16::new(3).unwrap().into();
    let instances = workers(3, 10);
    let frontend = over(config, &instances).await;
    instances[0].then(Act::Hang);
    let rows = [1.0, 2.0, 3.0, 4.0, 5.0];
    let response = infer(&frontend, request(&rows)).await.unwrap();
    is_near(&response, &rows.map(|value| 2.0 * value));
    assert_eq!(outcome(&response), "reconstructed");
}

#[tokio::test(start_paused = true)]
async fn incomplete_group_is_coded_at_its_maximum_age() {
    let instances = workers(4, 50);
    let frontend = over(coded(PolicyKind::ParmPlus, 4, 1), &instances).await;
    instances[0].then(Act::Hang);
    let response = infer(&frontend, request(&[7.0, 8.0])).await.unwrap();
    is_near(&response, &[14.0, 16.0]);
    assert_eq!(outcome(&response), "reconstructed");
    assert_eq!(metric(&frontend, "parm_groups_total", &["kind=\"partial\""]), 1.0);
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
async fn clients_of_exact_answers_get_no_reconstruction() {
    let instances = workers(4, 10);
    let frontend = over(coded(PolicyKind::ParmPlus, 2, 1), &instances).await;
    instances.iter().take(2).for_each(|instance| instance.then(Act::Answer(200 * MS)));
    let exact = [1.0, 2.0].map(|value| start(&frontend, with(request(&[value]), "parm_accept", "exact")));
    for (exact, expected) in exact.into_iter().zip([2.0, 4.0]) {
        let response = exact.await.unwrap().unwrap();
        assert_eq!((column(&response), outcome(&response)), (vec![expected], "exact"));
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
async fn group_members_with_different_outputs_reconstruct() {
    let instances = workers(3, 10);
    let frontend = over(coded(PolicyKind::ParmPlus, 2, 1), &instances).await;
    instances[0].then(Act::Hang);
    let asked = [["y"], ["z"]].map(|output| start(&frontend, wanting(request(&[6.0]), &output)));
    for (asked, (name, expected)) in asked.into_iter().zip([("y", 12.0), ("z", -6.0)]) {
        let response = asked.await.unwrap().unwrap();
        assert_eq!(response.outputs.len(), 1);
        assert_eq!(response.outputs[0].name, name);
        assert!((response.outputs[0].tensor.as_f32().unwrap()[0] - expected).abs() < 1e-4);
    }
}

#[tokio::test(start_paused = true)]
async fn nan_from_a_parity_is_not_served() {
    let instances = workers(3, 10);
    let frontend = over(coded(PolicyKind::Parm, 2, 1), &instances).await;
    // The instance that joined last runs parities.
    instances[2].then(Act::Nan);
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

#[tokio::test(start_paused = true)]
async fn backup_model_answers_late_queries() {
    let mut config = config(PolicyKind::ApproximateBackup);
    config.dispatch.backup_model = Some("small".into());
    let instances = workers(3, 10);
    let both = [crate::scripted::doubler("double"), crate::scripted::doubler("small")];
    instances.iter().for_each(|instance| instance.serve(&both));
    let frontend = over(config, &instances).await;
    instances[0].then(Act::Hang);
    instances[1].then(Act::Hang);
    let response = infer(&frontend, request(&[4.0])).await.unwrap();
    assert_eq!((column(&response), outcome(&response)), (vec![8.0], "backup"));
    assert_eq!(metric(&frontend, "parm_backups_served_total", &["model=\"double\""]), 1.0);
}

#[tokio::test(start_paused = true)]
async fn no_query_is_lost_when_settings_change_under_load() {
    let instances = workers(6, 10);
    let mut config = coded(PolicyKind::ParmPlus, 2, 1);
    config.dispatch.coding.parm_plus.hedge = true;
    let frontend = over(config, &instances).await;
    let changes = [
        (PolicyKind::ParmPlus, 4, 1),
        (PolicyKind::Parm, 2, 1),
        (PolicyKind::None, 2, 1),
        (PolicyKind::ParmPlus, 3, 2),
        (PolicyKind::Hedge, 2, 1),
        (PolicyKind::ParmPlus, 2, 2),
    ];
    let mut asked = Vec::new();
    for round in 0..300u16 {
        let change = changes[usize::from(round) % changes.len()];
        if round % 10 == 0 {
            let settings = coded(change.0, change.1, change.2).dispatch;
            crate::rig::change(&frontend, &settings).await;
            instances[usize::from(round / 10) % 6].then(Act::Answer(80 * MS));
        }
        asked.push((f32::from(round), start(&frontend, request(&[f32::from(round)]))));
        tokio::time::sleep(3 * MS).await;
    }
    for (value, asked) in asked {
        is_near(&asked.await.unwrap().unwrap(), &[2.0 * value]);
    }
    assert_eq!(metric(&frontend, "nv_inference_pending_request_count", &[]), 0.0);
}

#[tokio::test(start_paused = true)]
async fn impossible_code_is_rejected_at_start() {
    let refused = |dispatch: PoolSettings| {
        let config = Config { dispatch, ..Config::default() };
        match Frontend::start(config, Network::with(&[]), Timers::Runtime) {
            Err(Error::BadSettings { reason }) => reason,
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("it started"),
        }
    };
    let policy = |policy| PoolSettings { policy, ..PoolSettings::default() };
    assert!(refused(policy(PolicyKind::ParmPlus)).contains("bundles"));
    assert!(refused(policy(PolicyKind::Parm)).contains("mds"));
    assert!(refused(policy(PolicyKind::ApproximateBackup)).contains("backup_model"));
}

#[tokio::test(start_paused = true)]
async fn missing_code_is_rejected_at_run_time() {
    let frontend = over(coded(PolicyKind::ParmPlus, 2, 1), &workers(3, 10)).await;
    for (kind, word) in [(Kind::Berrut, "approximate"), (Kind::Sum, "bundle")] {
        let mut settings = coded(PolicyKind::ParmPlus, 2, 1).dispatch;
        settings.coding.code = Some(kind);
        let (status, answer) = crate::rig::patch(&frontend, "/settings/double", &settings).await;
        assert_eq!(status, 400, "{answer}");
        assert!(answer.to_string().contains(word), "{answer}");
    }
    until("the old settings are in effect", || metric(&frontend, "parm_codes", &[]) == 3.0).await;
}

#[tokio::test(start_paused = true)]
async fn nonlinear_model_is_not_coded_by_mds() {
    let bent = workers(3, 10);
    bent.iter().for_each(|instance| instance.becomes(Act::Bent(10 * MS)));
    let frontend = fleet::over(coded(PolicyKind::ParmPlus, 2, 1), &bent).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let tried: usize = bent.iter().map(|instance| instance.seen.lock().len()).sum();
    assert!((1..=8).contains(&tried), "it must be tested once: {tried} requests");
    for value in [1.0, 5.0, -3.0, 2.0] {
        let response = infer(&frontend, request(&[value, 7.0])).await.unwrap();
        assert_eq!(outcome(&response), "exact");
    }
    assert_eq!(metric(&frontend, "parm_groups_total", &[]), 0.0);
    let (status, answer) =
        crate::rig::patch(&frontend, "/settings/double", &coded(PolicyKind::Parm, 2, 1).dispatch).await;
    assert_eq!(status, 400, "{answer}");
    assert!(answer.to_string().contains("is not linear"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn linearity_test_is_retried_when_no_instance_answers() {
    let instances = workers(3, 10);
    instances.iter().for_each(|instance| instance.then(Act::Hang));
    let frontend = over(coded(PolicyKind::ParmPlus, 2, 1), &instances).await;
    instances.iter().for_each(|instance| instance.forget());
    instances[1].then(Act::Hang);
    let asked = [1.0, 5.0].map(|value| start(&frontend, request(&[value])));
    for (asked, expected) in asked.into_iter().zip([2.0, 10.0]) {
        is_near(&asked.await.unwrap().unwrap(), &[expected]);
    }
    assert_eq!(metric(&frontend, "parm_groups_total", &["kind=\"full\""]), 1.0);
}

#[tokio::test(start_paused = true)]
async fn linearity_test_is_retried_after_engine_failure() {
    let instances = workers(3, 10);
    let broke = parm_protocol::Error::Internal { message: "engine failure".into() };
    instances.iter().for_each(|instance| instance.then(Act::Fail(MS, broke.clone())));
    // Completes only once the model is coded, which takes a second test.
    let frontend = over(coded(PolicyKind::ParmPlus, 2, 1), &instances).await;
    assert!(metric(&frontend, "parm_codes", &[]) > 0.0);
}
