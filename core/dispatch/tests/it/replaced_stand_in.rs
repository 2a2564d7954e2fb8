//! Evidence about a stand-in that another one replaces.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parm_dispatch::{Action, Event, JobId, Role, Time};
use parm_settings::{InForce, PoolSettings};

use super::rescue::standing;
use super::script::Step::{Checked, Cost, Join, Settings, Warm, Within};
use super::script::{act, judge, play};
use super::world::{POOL, World};

/// Serves queries for this long: three instances, 20 ms a run, 5 ms a stand-in, one query each `every` ms. Stand-ins agree
/// or not. Returns the answers of stand-ins, and the time in ms until they are withheld or given again.
fn serve(
    world: &mut World,
    next: &mut u64,
    every: u64,
    ms: u64,
    agrees: bool,
    until: Option<bool>,
) -> (usize, u64) {
    let given =
        |world: &World| world.dispatcher.status(POOL).expect("known").counters.stand_ins_served as usize;
    let before = given(world);
    let mut began: BTreeMap<JobId, Time> = Default::default();
    let mut seen = 0;
    for at in 0..ms {
        if at % every == 0 {
            *next += 1;
            act(world, &Within(*next, 60_000));
        }
        world.advance(Duration::from_millis(1));
        for (at, action) in &world.log[seen..] {
            if let Action::Run(job, _) = action {
                began.insert(job.id, *at);
            }
        }
        seen = world.log.len();
        let takes = |id: &JobId| if matches!(world.jobs[id].job.role, Role::StandIn(_)) { 5 } else { 20 };
        let is_over = |(id, at): (&JobId, &Time)| {
            (world.now.since(*at) >= Duration::from_millis(takes(id))).then_some(*id)
        };
        let ended: Vec<_> = began.iter().filter_map(is_over).collect();
        ended.iter().for_each(|job| {
            began.remove(job);
        });
        for job in ended {
            world.send(Event::JobCompleted(job));
        }
        judge(world);
        act(world, &Checked(agrees));
        if seen > 1000 && began.is_empty() {
            (seen, world.log) = (0, Vec::new());
        }
        if until.is_some_and(|until| world.dispatcher.status(POOL).expect("known").withheld == until) {
            return (given(world) - before, at);
        }
    }
    (given(world) - before, ms)
}

/// A stand-in that is always wrong replaces one that agrees.
fn wrong_answers_of_a_new_stand_in(replaces: bool, every: u64) -> (usize, u64) {
    let old = standing();
    let mut world = play(old.clone(), &[Cost([25, 50, 100, 200]), Join(1), Warm(80), Join(2), Join(3)]);
    let mut next = 10_000;
    if replaces {
        serve(&mut world, &mut next, 20, 22_000, true, None);
    }
    let mut new = old;
    new.stand_in.model = Some("new".into());
    act(&mut world, &Settings(Box::new(new)));
    serve(&mut world, &mut next, every, 5_000, false, Some(true))
}

#[test]
fn new_stand_in_that_is_wrong_is_withheld_soon() {
    let [first, second] = [false, true].map(|replaces| wrong_answers_of_a_new_stand_in(replaces, 6).0);
    assert!(second <= first + 25, "{second} wrong answers, {first} of a first stand-in");
}

#[test]
fn new_stand_in_that_agrees_is_given_soon() {
    let old = standing();
    let mut world = play(old.clone(), &[Cost([25, 50, 100, 200]), Join(1), Warm(80), Join(2), Join(3)]);
    let mut next = 10_000;
    serve(&mut world, &mut next, 20, 22_000, false, None);
    let status = world.dispatcher.status(POOL).expect("known");
    assert!(status.withheld && status.counters.compared > 1000);
    let mut new = old;
    new.stand_in.model = Some("new".into());
    act(&mut world, &Settings(Box::new(new)));
    let (_, ms) = serve(&mut world, &mut next, 20, 22_000, true, Some(false));
    assert!(ms < 2_500, "{ms} ms until it is given");
}

/// The stand-in is served from these files.
fn serve_from(world: &mut World, settings: &PoolSettings, files: &[&str]) {
    let settings = Box::new(PoolSettings { ahead: Duration::ZERO, ..settings.clone() });
    let stand_in_files: BTreeSet<String> = files.iter().map(|file| (*file).to_owned()).collect();
    let in_force = Box::new(InForce { stand_in_files, ..InForce::as_wished(&settings) });
    world.send(Event::SettingsChanged { pool: POOL, settings, in_force });
}

#[test]
fn new_file_of_a_withheld_stand_in_is_given_soon() {
    let settings = standing();
    let joins = [Cost([25, 50, 100, 200]), Join(1), Warm(80), Join(2), Join(3)];
    let mut world = play(settings.clone(), &joins);
    serve_from(&mut world, &settings, &["old"]);
    let mut next = 10_000;
    serve(&mut world, &mut next, 20, 22_000, false, None);
    serve_from(&mut world, &settings, &["old"]);
    assert!(world.dispatcher.status(POOL).expect("known").withheld, "the same file shows nothing new");
    serve_from(&mut world, &settings, &["new"]);
    let (_, ms) = serve(&mut world, &mut next, 20, 22_000, true, Some(false));
    assert!(ms < 2_500, "{ms} ms until it is given");
}

#[test]
fn restart_of_one_server_gives_no_withheld_stand_in() {
    let settings = standing();
    let joins = [Cost([25, 50, 100, 200]), Join(1), Warm(80), Join(2), Join(3)];
    let mut world = play(settings.clone(), &joins);
    // Its two servers have different files.
    serve_from(&mut world, &settings, &["a", "b"]);
    let mut next = 10_000;
    serve(&mut world, &mut next, 20, 22_000, false, None);
    let mut wrong = Vec::new();
    for _ in 0..5 {
        serve_from(&mut world, &settings, &["a"]);
        serve_from(&mut world, &settings, &["a", "b"]);
        wrong.push(serve(&mut world, &mut next, 6, 5_000, false, None).0);
    }
    assert_eq!(wrong, [0; 5], "wrong answers after each restart");
}
