//! Policies that change while queries wait: a code mixes no query that was not looked at for it.

use std::num::NonZeroU8;
use std::time::Duration;

use parm_dispatch::PolicyKind;
use parm_encoder::Kind;
use parm_frontend::Config;

use crate::rig::{change, column, config, frontend, metric, request, start, until};
use crate::scripted::{Act, Scripted};

const MS: Duration = Duration::from_millis(1);

/// Groups of two whatever the load, with the code of linear models.
fn coded() -> Config {
    let mut config = config(PolicyKind::ParmPlus);
    let coding = &mut config.dispatch.coding;
    (coding.k, coding.r) = (NonZeroU8::new(2).unwrap(), NonZeroU8::MIN);
    coding.code = Some(Kind::Mds);
    coding.parm_plus.k_follows_load = false;
    coding.parm_plus.hedge = false;
    coding.grace.cold = 30 * MS;
    config
}

/// Three busy instances, which end one after the other; the second then hangs. While two queries wait, the policy changes from one
/// without codes to one with. Returns what the second of the two is answered with, if it is.
async fn answer_beside(first: f32) -> Option<Vec<f32>> {
    let instances: Vec<_> = (0..3).map(|number| Scripted::quick(&format!("i{number}"), 10)).collect();
    let config = coded();
    let frontend = frontend(config.clone(), &instances.iter().collect::<Vec<_>>()).await;
    until("the model was tried", || metric(&frontend, "parm_codes", &[]) > 0.0).await;
    let mut plain = config.dispatch.clone();
    plain.policy = PolicyKind::None;
    change(&frontend, &plain).await;
    for (instance, ends) in instances.iter().zip([200, 205, 220]) {
        instance.then(Act::Answer(ends * MS));
    }
    instances[1].then(Act::Hang);
    let busy = [0.5; 3].map(|value| start(&frontend, request(&[value])));
    tokio::time::sleep(MS).await;
    let beside = start(&frontend, request(&[first]));
    tokio::time::sleep(MS).await;
    let asked = start(&frontend, request(&[1.0]));
    tokio::time::sleep(MS).await;
    change(&frontend, &config.dispatch).await;
    for call in busy {
        call.await.unwrap().unwrap();
    }
    // A query that comes after the change, for a group that the one beside it cannot fill.
    let later = start(&frontend, request(&[5.0]));
    assert_eq!(column(&beside.await.unwrap().unwrap()), [2.0 * first]);
    assert_eq!(column(&later.await.unwrap().unwrap()), [10.0]);
    asked.await.unwrap().ok().map(|response| column(&response))
}

#[tokio::test(start_paused = true)]
async fn huge_query_is_not_mixed_when_the_policy_changes() {
    for first in [3.0, 1e12, 1e30] {
        let answer = answer_beside(first).await;
        let near = |answer: &Vec<f32>| answer.len() == 1 && (answer[0] - 2.0).abs() < 1e-3;
        assert!(answer.as_ref().is_none_or(near), "beside {first:e}: {answer:?}");
    }
}
