//! Waits that reservations report to workers.

use std::time::Duration;

use parm_dispatch::{Action, Class, Event, Grant, InstanceId, Order, Token};
use parm_tokens::Note;

use super::script::one_by_one;
use super::servers::{Servers, ms};

/// Instances that other frontends use too.
fn shared(count: u32) -> Servers {
    let mut servers = Servers::new(one_by_one(), &vec![20; count as usize]);
    (1..=count).for_each(|number| servers.send(Event::TokensOffered(InstanceId(number))));
    servers
}

/// The waits that were reported since so many actions, by instance.
fn reported(servers: &Servers, from: usize) -> Vec<(u32, Duration)> {
    let reserved = |action: &Action| match action {
        Action::Tell(id, Order::Reserve(_, Class::Query, _, waited)) => Some((id.0, *waited)),
        _ => None,
    };
    let mut waits: Vec<_> =
        servers.world.log[from..].iter().filter_map(|(_, action)| reserved(action)).collect();
    waits.sort_unstable();
    waits
}

fn grant(servers: &mut Servers, number: u32) {
    let (token, met) = (Token(number), Note::default());
    let grant = Grant { token, lease: None, contended: true, reserved: false, sharers: 2, met };
    servers.send(Event::TokenGranted(InstanceId(number), grant));
}

#[test]
fn reservations_report_the_next_query_once_the_first_runs() {
    let mut servers = shared(3);
    servers.query();
    servers.pass(ms(5));
    servers.query();
    servers.pass(ms(7));
    assert_eq!(reported(&servers, 0), [1, 2, 3].map(|number| (number, Duration::ZERO)));
    let from = servers.world.log.len();
    grant(&mut servers, 1);
    assert_eq!(reported(&servers, from), [1, 2, 3].map(|number| (number, ms(7))));
    let from = servers.world.log.len();
    grant(&mut servers, 2);
    assert_eq!(reported(&servers, from), [], "no query waits");
}

#[test]
fn repeated_reservation_reports_the_whole_wait() {
    let mut servers = shared(1);
    servers.query();
    servers.pass(ms(120));
    let waits: Vec<_> = reported(&servers, 0).into_iter().map(|(_, waited)| waited).collect();
    assert!(waits.len() > 1 && *waits.last().unwrap() >= ms(50), "{waits:?}");
}
