//! The dispatcher's behaviour with coding groups, situation by situation.

use std::num::{NonZeroU8, NonZeroU16, NonZeroU32};
use std::time::Duration;

use parm_dispatch::{
    Action, Actions, Dispatcher, Event, InstanceId, InstanceSpec, PoolId, Role, Served, Site, Time,
};
use parm_encoder::Kind;
use parm_settings::{
    BatchSettings, CodingSettings, DetectionSettings, Fraction, GraceSettings, ParmPlusSettings, PolicyKind,
    PoolSettings, Unsure,
};

use super::script::Step::*;
use super::script::{Step, act, check, one_by_one, play, query};
use super::world::{POOL, World};

/// Groups of `k`, held back for 30 ms, on a shared pool.
pub(crate) fn plus(k: u8, r: u8) -> PoolSettings {
    let coding = CodingSettings {
        k: NonZeroU8::new(k).expect("positive"),
        r: NonZeroU8::new(r).expect("positive"),
        grace: GraceSettings { cold: Duration::from_millis(30), ..GraceSettings::default() },
        parm_plus: ParmPlusSettings { k_follows_load: false, ..ParmPlusSettings::default() },
        ..CodingSettings::default()
    };
    PoolSettings { policy: PolicyKind::ParmPlus, coding, ..one_by_one() }
}

fn with(settings: PoolSettings, change: impl FnOnce(&mut CodingSettings)) -> PoolSettings {
    let mut settings = settings;
    change(&mut settings.coding);
    settings
}

pub(crate) fn parm() -> PoolSettings {
    PoolSettings { policy: PolicyKind::Parm, ..plus(2, 1) }
}

const SECOND: Duration = Duration::from_secs(1);

const THREE: [Step; 3] = [Join(1), Join(2), Join(3)];

#[track_caller]
fn check_on_three(settings: PoolSettings, steps: &[Step], expect: &[&str]) {
    check(settings, &[&THREE, steps].concat(), expect);
}

#[test]
fn a_parity_goes_where_no_member_of_its_group_stands() {
    for (others, parity) in [
        (&[JoinAt(3, 1, 1), JoinAt(4, 3, 1), JoinAt(5, 4, 2)][..], "0 parity 0 on 5"),
        (&[JoinAt(3, 1, 1), JoinAt(4, 3, 1)], "0 parity 0 on 4"),
        (&[JoinAt(3, 1, 1)], "0 parity 0 on 3"),
    ] {
        let steps = [&[JoinAt(1, 1, 1), JoinAt(2, 2, 1)], others, &GROUP].concat();
        check(plus(2, 1), &steps, &["0 run 1 on 1", "0 run 2 on 2", "0 encode 1|2", parity]);
    }
}

const GROUP: [Step; 3] = [Query(1), Query(2), Encoded];
const STARTED: [&str; 4] = ["0 run 1 on 1", "0 run 2 on 2", "0 encode 1|2", "0 parity 0 on 3"];

#[track_caller]
fn check_group(settings: PoolSettings, steps: &[Step], expect: &[&str]) {
    check_on_three(settings, &[&GROUP, steps].concat(), &[&STARTED, expect].concat());
}

#[test]
fn a_reconstruction_is_given_when_the_prediction_is_late() {
    let steps = [Wait(20), Done(1), Done(3), Wait(20), Decoded(90)];
    check_group(
        plus(2, 1),
        &steps,
        &["20 answer 1 exact", "30 decode 2 from 2", "40 answer 2 reconstructed", "40 drop 2 on 2"],
    );
}

#[test]
fn a_prediction_within_the_grace_wins() {
    let steps = [Wait(20), Done(1), Done(3), Wait(5), Done(2), Wait(100)];
    check_group(plus(2, 1), &steps, &["20 answer 1 exact", "25 answer 2 exact"]);
}

#[test]
fn a_prediction_that_overtakes_the_decoder_wins() {
    let steps = [Wait(30), Done(1), Done(3), Done(2), Decoded(90)];
    check_group(plus(2, 1), &steps, &["30 answer 1 exact", "30 decode 2 from 2", "30 answer 2 exact"]);
}

#[test]
fn one_parity_recovers_any_number_of_slots_where_the_code_can() {
    let settings = with(plus(2, 1), |coding| coding.code = Some(Kind::Slots));
    let steps = [Wait(20), Done(3), Wait(10), Decoded(90), Decoded(90)];
    check_group(
        settings,
        &steps,
        &[
            "30 decode 1 from 1",
            "30 decode 2 from 1",
            "30 answer 1 reconstructed",
            "30 drop 1 on 1",
            "30 answer 2 reconstructed",
            "30 drop 2 on 2",
        ],
    );
}

#[test]
fn more_rows_than_sixteen_bits_count_are_decoded_at_once() {
    const ROWS: u16 = 40_000;
    let mut settings = with(plus(2, 1), |coding| coding.code = Some(Kind::Slots));
    settings.batch.max_size = NonZeroU16::new(ROWS).expect("positive").into();
    settings.queue_limit = NonZeroU32::new(2 * u32::from(ROWS)).expect("positive");
    let mut dispatcher = Dispatcher::new(parm_dispatch::Settings::uniform(settings), 7);
    let (mut now, mut actions) = (Time::ZERO, Actions::new());
    for id in 0..2 * u64::from(ROWS) {
        dispatcher.on_event(now, Event::QueryArrived(query(id, now + 900 * SECOND)), &mut actions);
    }
    for id in 1..=3 {
        let spec =
            InstanceSpec { serves: vec![Served::all(POOL)], slots: 1, site: Site::default(), learns: false };
        dispatcher.on_event(now, Event::InstanceJoined(InstanceId(id), spec), &mut actions);
    }
    let group = actions.iter().find_map(|action| match action {
        Action::Encode(group, _) => Some(*group),
        _ => None,
    });
    dispatcher.on_event(now, Event::GroupEncoded(group.expect("two batches are a group")), &mut actions);
    let parity = actions.iter().find_map(|action| match action {
        Action::Run(job, _) if matches!(job.role, Role::Parity(..)) => Some(job.id),
        _ => None,
    });
    now = now + 10 * SECOND;
    actions.clear();
    dispatcher.on_event(now, Event::JobCompleted(parity.expect("it runs")), &mut actions);
    let decoded = actions.iter().filter(|action| matches!(action, Action::Decode(_))).count();
    assert_eq!(decoded, 2 * usize::from(ROWS));
}

#[test]
fn two_parities_recover_two_slots() {
    let steps = [Join(4), Query(1), Query(2), Encoded, Quiet, Done(3), Wait(50), Done(4)];
    check_on_three(plus(2, 2), &steps, &["50 decode 1 from 2", "50 decode 2 from 2"]);
}

#[test]
fn parity_is_dropped_when_its_group_is_answered() {
    let steps = [Wait(20), Done(1), Done(2)];
    check_group(plus(2, 1), &steps, &["20 answer 1 exact", "20 answer 2 exact", "20 drop parity on 3"]);
}

#[test]
fn parities_yield_to_queries_and_are_never_sent_when_useless() {
    let steps = [Query(1), Query(2), Query(3), Encoded, Quiet, Query(4), Done(3), Done(1), Done(2)];
    // Instance 3 is the one for the parity; it is busy, and then has a query to run. When it would be free, it is
    // too late.
    check_on_three(
        plus(2, 1),
        &steps,
        &["0 answer 3 exact", "0 run 4 on 3", "0 encode 3|4", "0 answer 1 exact", "0 answer 2 exact"],
    );
}

#[test]
fn a_parity_waits_for_an_instance_without_members() {
    let steps = [Join(1), Join(2), Query(1), Query(2), Encoded, Quiet, Done(1), Wait(5), Join(3)];
    check(plus(2, 1), &steps, &["0 answer 1 exact", "5 parity 0 on 3"]);
}

#[test]
fn clients_who_want_exact_answers_get_no_reconstruction() {
    let steps = [Query(1), Exact(2), Encoded, Quiet, Done(3), Done(1), Wait(100)];
    check_on_three(plus(2, 1), &steps, &["0 answer 1 exact"]);
}

#[test]
fn query_served_alone_is_never_grouped() {
    let steps = [Alone(1), Query(2), Alone(3), Query(4)];
    check_on_three(plus(2, 1), &steps, &["0 run 1 on 1", "0 run 2 on 2", "0 run 3 on 3"]);
}

#[test]
fn an_old_group_is_coded_with_blank_slots() {
    let steps = [Query(1), Query(2), Wait(20)];
    check_on_three(plus(4, 1), &steps, &["0 run 1 on 1", "0 run 2 on 2", "20 encode 1|2||"]);
}

#[test]
fn an_old_group_of_one_is_let_go() {
    check_on_three(plus(4, 1), &[Query(1), Wait(20), Query(2)], &["0 run 1 on 1", "20 run 2 on 2"]);
}

#[test]
fn an_unsure_reconstruction_leads_to_a_hedge_or_to_patience() {
    let settings = with(plus(2, 1), |coding| coding.min_confidence = Fraction::percent(80));
    let steps = [Wait(30), Done(1), Done(3), Decoded(70)];
    let decode = ["30 answer 1 exact", "30 decode 2 from 2"];
    check_group(settings.clone(), &steps, &[&decode[..], &["30 copy 2 on 3"]].concat());
    check_group(with(settings, |coding| coding.unsure = Unsure::Wait), &steps, &decode);
}

#[test]
fn a_lost_parity_lets_the_group_go() {
    check_group(plus(2, 1), &[Fail(3), Done(1), Wait(100)], &["0 answer 1 exact"]);
}

#[test]
fn parm_keeps_a_parity_instance_and_takes_the_first_answer() {
    let steps = [Query(1), Query(2), Query(3), Encoded, Done(3), Done(1), Decoded(0)];
    check_on_three(
        parm(),
        &steps,
        &[
            "0 run 1 on 1",
            "0 run 2 on 2",
            "0 encode 1|2",
            "0 parity 0 on 3",
            "0 answer 1 exact",
            "0 decode 2 from 2",
            "0 run 3 on 1",
            "0 answer 2 reconstructed",
            "0 drop 2 on 2",
        ],
    );
}

#[test]
fn the_backup_answers_what_is_late() {
    let settings = PoolSettings { policy: PolicyKind::ApproximateBackup, ..plus(2, 1) };
    let steps = [Query(1), Query(2), Wait(5), Done(3), Done(3), Wait(10), Done(1), Wait(30)];
    check_on_three(
        settings,
        &steps,
        &[
            "0 run 1 on 1",
            "0 backup 1 on 3",
            "0 run 2 on 2",
            "5 backup 2 on 3",
            "15 answer 1 exact",
            "30 answer 2 backup",
            "30 drop 2 on 2",
        ],
    );
}

#[test]
fn a_group_survives_a_change_of_policy() {
    let off = PoolSettings { policy: PolicyKind::None, ..one_by_one() };
    let steps = [Settings(Box::new(off)), Wait(30), Done(1), Done(3), Decoded(90)];
    check_group(
        plus(2, 1),
        &steps,
        &["30 answer 1 exact", "30 decode 2 from 2", "30 answer 2 reconstructed", "30 drop 2 on 2"],
    );
}

#[test]
fn at_low_load_a_copy_is_sent_instead_of_a_parity() {
    let settings = with(plus(2, 1), |coding| coding.parm_plus.k_follows_load = true);
    check_on_three(settings, &[Query(1), Query(2)], &["0 run 1 on 1", "0 copy 1 on 2", "0 run 2 on 3"]);
}

#[test]
fn a_parity_leaves_instances_idle_for_queries() {
    let settings = with(plus(2, 1), |coding| coding.headroom = Fraction::percent(34));
    let steps = [Query(1), Query(2), Encoded, Quiet, Wait(1), Join(4)];
    // One of three instances must stay idle in addition to the parity's, and one of four.
    check_on_three(settings, &steps, &["1 parity 0 on 4"]);
}

/// Groups of two whose outputs are compared, with an eye on instances that are never right.
fn watched() -> PoolSettings {
    with(plus(2, 1), |coding| {
        coding.code = Some(Kind::Slots);
        coding.detection = DetectionSettings {
            enabled: true,
            eject: true,
            min_samples: std::num::NonZeroU32::MIN,
            significance: Fraction::percent(20),
            ..DetectionSettings::default()
        };
    })
}

#[test]
fn watched_group_is_kept_until_predictions_are_compared() {
    let steps = [Wait(20), Done(1), Done(2), Wait(5), Done(3), Compared(None)];
    check_group(watched(), &steps, &["20 answer 1 exact", "20 answer 2 exact", "25 compare 3"]);
    let steps = [Wait(20), Done(1), Done(2), Wait(2000), Done(3)];
    check_group(watched(), &steps, &["20 answer 1 exact", "20 answer 2 exact", "1000 drop parity on 3"]);
}

#[test]
fn one_parity_of_a_code_that_reads_predictions_tells_nothing() {
    let settings = with(watched(), |coding| coding.code = None);
    let steps = [Wait(20), Done(1), Done(2), Done(3)];
    check_group(settings, &steps, &["20 answer 1 exact", "20 answer 2 exact", "20 drop parity on 3"]);
}

#[test]
fn evidence_outlives_a_change_of_the_models_of_an_instance() {
    let group = |id| [Query(id), Query(id + 1), Encoded, Done(1), Done(2), Done(3), Compared(Some(2))];
    let suspected = |between: &[super::script::Step], groups: u64| {
        let steps = (0..groups).flat_map(|n| [&group(10 * n), between].concat());
        let steps: Vec<_> = THREE.into_iter().chain(steps).collect();
        let words = super::script::words(&super::script::play(watched(), &steps));
        words.iter().any(|word| word.contains("suspect 2"))
    };
    let first = (1..60).find(|groups| suspected(&[], *groups)).expect("an instance is suspected");
    assert!(suspected(&[Join(2)], first), "it joined again after each of {first} groups");
}

#[test]
fn instance_that_often_disagrees_alone_is_ejected() {
    let group = |id| [Query(id), Query(id + 1), Encoded, Done(1), Done(2), Done(3), Compared(Some(2))];
    let suspect = |groups: u64| {
        let steps: Vec<_> = THREE.into_iter().chain((0..groups).flat_map(|n| group(10 * n))).collect();
        let words = super::script::words(&super::script::play(watched(), &steps));
        words.into_iter().find(|word| word.contains("suspect"))
    };
    let first = (1..60).find_map(|groups| Some((groups, suspect(groups)?)));
    let (groups, word) = first.expect("an instance is suspected");
    assert!(groups > 5 && word.ends_with("suspect 2"), "{word} after {groups} groups");
    let mut steps: Vec<_> = THREE.into_iter().chain((0..groups).flat_map(|n| group(10 * n))).collect();
    steps.extend([Quiet, Query(9001), Query(9002), Query(9003)]);
    let words = super::script::words(&super::script::play(watched(), &steps));
    assert!(words.iter().all(|word| !word.ends_with("on 2")), "it is out of service: {words:?}");
}

#[test]
fn wrong_instance_leaves_although_it_alone_serves_another_model() {
    let group = |id| [Query(id), Query(id + 1), Encoded, Done(1), Done(2), Done(3), Compared(Some(2))];
    for alone in [false, true] {
        let mut world = play(watched(), &[Join(1)]);
        let mut serves = vec![Served::all(POOL)];
        serves.extend(alone.then(|| Served::deployed(PoolId(1))));
        let spec = InstanceSpec { serves, slots: 1, site: Site::default(), learns: false };
        world.send(Event::InstanceJoined(InstanceId(2), spec));
        act(&mut world, &Join(3));
        let suspected =
            |world: &World| super::script::words(world).iter().any(|word| word.contains("suspect 2"));
        for n in 0..60 {
            group(10 * n).iter().for_each(|step| act(&mut world, step));
            if suspected(&world) {
                break;
            }
        }
        assert!(suspected(&world));
        assert!(!world.dispatcher.takes(InstanceId(2), POOL), "with another model: {alone}");
    }
}

#[test]
fn job_counts_once_as_evidence_when_all_its_rows_disagree() {
    let mut settings = with(watched(), |coding| coding.detection.significance = Fraction::percent(1));
    settings.batch.max_size = std::num::NonZeroU16::new(8).expect("positive").into();
    settings.batch.max_delay = std::time::Duration::from_millis(2);
    let mut world = play(settings, &THREE);
    for group in 0..12u64 {
        let queries = (1..=16).map(|id| Query(100 * group + id));
        let steps = queries.chain([Encoded, Done(1), Done(2), Done(3)]);
        steps.for_each(|step| super::script::act(&mut world, &step));
        // Other groups agree; in the last one instance 2 gets all eight rows of its job wrong.
        let wrong = (group == 11).then_some(2);
        super::script::compare_all(&mut world, wrong);
    }
    let words = super::script::words(&world);
    assert!(words.iter().all(|word| !word.contains("suspect")), "{words:?}");
    assert_eq!(words.iter().filter(|word| word.contains("compare")).count(), 12, "{words:?}");
}

#[test]
fn a_model_is_unloaded_while_its_groups_wait_to_be_compared() {
    let settings = with(plus(2, 2), |coding| coding.detection.enabled = true);
    // Its parities find no instance without a member of the group, so the comparison never happens.
    let answered = [Join(1), Join(2), Query(1), Query(2), Encoded, Done(1), Done(2), Unload, Wait(5000)];
    let mut world = play(settings.clone(), &answered);
    world.finish();
    assert_eq!(world.dispatcher.status(POOL), None);
    let not_encoded = [Join(1), Join(2), Query(1), Query(2), Done(1), Done(2), Unload, Encoded, Wait(5000)];
    play(settings, &not_encoded).finish();
}

#[test]
fn a_model_is_unloaded_while_its_groups_are_compared() {
    let answered = [Query(1), Query(2), Encoded, Done(1), Done(2), Done(3), Unload, Compared(None)];
    let mut world = play(watched(), &[&THREE[..], &answered].concat());
    world.finish();
    assert_eq!(world.dispatcher.status(POOL), None);
}

#[test]
fn reconstruction_without_confidence_fails_a_minimum() {
    let steps = [Done(1), Done(3), Wait(30), DecodedValues, Wait(10), Done(2)];
    let started = ["0 answer 1 exact", "30 decode 2 from 2"];
    check_group(
        plus(2, 1),
        &steps[..4],
        &[&started[..], &["30 answer 2 reconstructed", "30 drop 2 on 2"]].concat(),
    );
    let least = |coding: &mut CodingSettings| {
        (coding.min_confidence, coding.unsure) = (Fraction::percent(1), Unsure::Wait);
    };
    check_group(with(plus(2, 1), least), &steps, &[&started[..], &["40 answer 2 exact"]].concat());
}

#[test]
fn parity_instance_takes_parities_when_it_has_another_home() {
    let steps = [&[Elsewhere(3, 0, false)][..], &GROUP].concat();
    check_on_three(parm(), &steps, &STARTED);
}

#[test]
fn parity_of_batches_is_not_slow_next_to_single_rows() {
    // A row alone takes 10 ms, and eight rows take 40, as does their parity.
    let max_size = NonZeroU16::new(8).expect("positive");
    let batch = BatchSettings { max_size: max_size.into(), max_delay: Duration::from_millis(5) };
    let mut world = play(PoolSettings { batch, ..parm() }, &THREE);
    let mut next = 0;
    for round in 0..70 {
        let (count, time) = if round < 12 { (1, 10) } else { (16, 40) };
        (0..count).for_each(|row| act(&mut world, &Query(next + row)));
        next += count;
        act(&mut world, &Wait(5));
        if count > 1 {
            act(&mut world, &Encoded);
        }
        act(&mut world, &Wait(time));
        // The members end first, so nothing is reconstructed.
        for instance in 1..=3 {
            if world.running().any(|(_, held)| held.job.instance.0 == instance) {
                act(&mut world, &Done(instance));
            }
        }
        act(&mut world, &Wait(20));
    }
    assert!(world.log.iter().any(|(_, action)| matches!(action, Action::Run(job, _) if job.instance.0 == 3)));
    let ejected = world.log.iter().find(|(_, action)| matches!(action, Action::Ejected(..)));
    assert_eq!(ejected, None, "each run takes as long as always");
}
