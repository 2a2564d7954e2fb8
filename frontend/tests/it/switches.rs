//! Tests of policies that change while queries wait: a code mixes only queries that its guards accepted.

use parm_settings::{BatchSize, PolicyKind};

use crate::fleet::{MS, coded, over, workers};
use crate::rig::{change, column, metric, request, start, until};
use crate::scripted::Act;

/// Runs three busy instances that finish one after the other, the second of which then hangs. While two queries wait, the
/// policy changes from one without codes to one with. Returns the answer to the second query, if it has one.
async fn answer_after(first: f32) -> Option<Vec<f32>> {
    let instances = workers(3, 10);
    let mut config = coded(PolicyKind::ParmPlus, 2, 1);
    config.dispatch.batch.max_size = BatchSize::ONE;
    let frontend = over(config.clone(), &instances).await;
    until("the linearity test is done", || metric(&frontend, "parm_codes", &[]) > 0.0).await;
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
