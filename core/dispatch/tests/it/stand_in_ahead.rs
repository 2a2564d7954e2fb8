//! Stand-ins that wait behind other jobs at an instance.

use std::collections::VecDeque;
use std::time::Duration;

use parm_dispatch::{Action, Event, InstanceId, InstanceSpec, JobId, Role, Served, Settings, Site};
use parm_settings::{EjectionSettings, PolicyKind, PoolSettings};

use super::script::Step::{Checked, Cost, Query};
use super::script::{act, judge, one_by_one};
use super::world::{POOL, World};

/// Bursts at a model of 200 us: late stand-ins wait behind other jobs, and no instance is slow.
#[test]
fn stand_in_that_waits_behind_others_makes_no_instance_slow() {
    let ejection = EjectionSettings { slow_start: Duration::ZERO, ..EjectionSettings::default() };
    let ahead = Duration::from_millis(2);
    let settings = PoolSettings { policy: PolicyKind::StandIn, ejection, ahead, ..one_by_one() };
    let mut world = World::new(Settings::uniform(settings), 7).given_ahead();
    for id in 1..=4 {
        let spec =
            InstanceSpec { serves: vec![Served::all(POOL)], slots: 1, site: Site::default(), learns: false };
        world.send(Event::InstanceJoined(InstanceId(id), spec));
    }
    act(&mut world, &Cost([25, 50, 100, 200]));
    let mut next = 0;
    // Time until each instance ends its first job, in units of 50 us.
    let mut left = [0u32; 5];
    let mut lines: [VecDeque<JobId>; 5] = Default::default();
    let mut verdicts = 0;
    let mut tick = |world: &mut World, left: &mut [u32; 5]| {
        for at in 1..=4u32 {
            // In the order of sending.
            for (_, action) in world.log.drain(..) {
                verdicts += u32::from(matches!(action, Action::Ejected(..) | Action::Kept(..)));
                if let Action::Run(job, _) = action {
                    lines[job.instance.0 as usize].push_back(job.id);
                }
            }
            let Some(id) = lines[at as usize].front().copied() else { continue };
            let role = world.jobs[&id].job.role;
            let left = &mut left[at as usize];
            if *left == 0 {
                *left = if matches!(role, Role::StandIn(_)) { 1 } else { 4 };
            }
            *left -= 1;
            if *left == 0 {
                lines[at as usize].pop_front();
                world.send(Event::JobCompleted(id));
            }
        }
        world.advance(Duration::from_micros(50));
        judge(world);
        act(world, &Checked(true));
    };
    for _ in 0..200 {
        next += 1;
        act(&mut world, &Query(next));
        (0..5).for_each(|_| tick(&mut world, &mut left));
    }
    for _ in 0..40 {
        for _ in 0..30 {
            next += 1;
            act(&mut world, &Query(next));
        }
        (0..200).for_each(|_| tick(&mut world, &mut left));
    }
    let status = world.dispatcher.status(POOL).expect("known");
    assert_eq!(verdicts, 0, "stand-ins {:?}", status.counters);
}
