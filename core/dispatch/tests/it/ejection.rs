//! Ejection when most instances become slow, or this process is away.

use std::time::Duration;

use parm_dispatch::{Action, Event, InstanceId, Role};
use parm_settings::{EjectionSettings, Placement, PolicyKind, PoolSettings};

use super::script::one_by_one;
use super::servers::{Servers, ms};
use super::world::POOL;

fn hedging() -> PoolSettings {
    let ejection = EjectionSettings { slow_start: Duration::ZERO, ..EjectionSettings::default() };
    PoolSettings { policy: PolicyKind::Hedge, ejection, ..one_by_one() }
}

#[test]
fn three_of_ten_stay_in_service_when_most_become_slow() {
    let settings = PoolSettings { placement: Placement::Turns, ahead: Duration::ZERO, ..hedging() };
    let mut servers = Servers::new(settings, &[20; 10]);
    servers.load(1, ms(10), ms(4000));
    (2..=10).for_each(|number| servers.takes(number, 100));
    let mut least = 10;
    for _ in 0..40 {
        servers.query();
        for _ in 0..60 {
            servers.pass(ms(1));
            let serves = |number: &u32| servers.world.dispatcher.in_service(InstanceId(*number));
            least = least.min((1..=10).filter(serves).count());
        }
    }
    assert!(least >= 3, "{least} of ten stay in service");
}

/// The number of instances that are ejected because this process is away for 300 ms while each of six runs so many jobs of
/// 20 ms.
fn ejected_by_pause(slots: u16, each: u32) -> usize {
    let mut servers = Servers::without(hedging());
    (1..=6).for_each(|number| servers.join(number, slots, &[POOL], 20));
    servers.load(1, ms(5), ms(3000));
    servers.pass(ms(50));
    servers.queries(6 * each);
    servers.pass(ms(10));
    let world = &mut servers.world;
    let before = world.log.len();
    world.now = world.now + ms(300);
    (world.paused, world.wake) = (true, None);
    world.send(Event::TimerFired);
    let own = world.running().filter(|(_, held)| held.job.role == Role::Deployed);
    let own: Vec<_> = own.map(|(id, _)| *id).collect();
    own.into_iter().for_each(|job| world.send(Event::JobCompleted(job)));
    world.log[before..].iter().filter(|(_, action)| matches!(action, Action::Ejected(..))).count()
}

#[test]
fn pause_of_the_process_ejects_no_instance() {
    let ejected = [(1, 1), (4, 2), (4, 3)].map(|(slots, each)| ejected_by_pause(slots, each));
    assert_eq!(ejected, [0; 3], "of six");
}
