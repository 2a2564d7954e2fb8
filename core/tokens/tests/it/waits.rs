//! Waits of reservations.

use std::time::Duration;

use parm_tokens::{Class, Desk, Frontend, Message, Note, Order, Reservation, Settings};

const ONE: Frontend = Frontend(1);
const TWO: Frontend = Frontend(2);
const MS: Duration = Duration::from_millis(1);

/// A desk whose only instance is busy, with two frontends.
fn busy() -> Desk<&'static str> {
    let mut desk = Desk::new(1, Settings::default());
    [ONE, TWO].into_iter().for_each(|frontend| desk.join(frontend));
    desk.begin(false, MS);
    desk.mail();
    desk
}

fn reserve(desk: &mut Desk<&'static str>, frontend: Frontend, waited: Duration, now: Duration) {
    let order = Order::Reserve("m", Class::Query, Note::default(), waited);
    desk.told(frontend, order, now.as_nanos() as u64);
}

/// Ends the job. Returns the frontend that gets the instance, and runs its job there.
fn next(desk: &mut Desk<&'static str>, now: Duration) -> Frontend {
    desk.end();
    desk.settle(now, None, |known: &Reservation<&'static str>| known.number);
    let mail = desk.mail();
    let [(frontend, Message::Granted(grant))] = mail[..] else { panic!("no token: {mail:?}") };
    assert!(desk.redeem(frontend, grant.token));
    desk.begin(true, now);
    frontend
}

#[test]
fn oldest_query_gets_the_token_whoever_reserved_first() {
    let mut desk = busy();
    reserve(&mut desk, ONE, 2 * MS, 10 * MS);
    reserve(&mut desk, TWO, 5 * MS, 11 * MS);
    assert_eq!(next(&mut desk, 12 * MS), TWO);
    // Its next query is younger than the one that still waits.
    reserve(&mut desk, TWO, MS, 12 * MS);
    assert_eq!(next(&mut desk, 13 * MS), ONE);
}

#[test]
fn frontend_with_many_models_keeps_no_other_out() {
    let mut desk = Desk::new(1, Settings { most_reservations: 8, ..Settings::default() });
    [ONE, TWO].into_iter().for_each(|frontend| desk.join(frontend));
    desk.begin(false, MS);
    let mut reserve = |frontend, models: std::ops::Range<u64>| {
        for model in models {
            let order = Order::Reserve(model, Class::Query, Note::default(), Duration::ZERO);
            desk.told(frontend, order, model);
        }
        let of = |frontend| desk.reservations().iter().filter(|known| known.frontend == frontend).count();
        [of(ONE), of(TWO)]
    };
    assert_eq!(reserve(ONE, 0..20), [8, 0], "no other frontend waits");
    assert_eq!(reserve(TWO, 0..1), [7, 1]);
    assert_eq!(reserve(ONE, 0..20), [7, 1], "repeated, and full");
    assert_eq!(reserve(TWO, 0..20), [4, 4]);
}

#[test]
fn repeated_reservation_counts_its_latest_wait_within_limit() {
    let mut desk = busy();
    let mut number = |waited| {
        reserve(&mut desk, ONE, waited, 30_000 * MS);
        Duration::from_nanos(desk.reservations()[0].number)
    };
    assert_eq!(number(40 * MS), 29_960 * MS);
    assert_eq!(number(10 * MS), 29_990 * MS);
    assert_eq!(number(Duration::ZERO), 29_990 * MS, "a frontend that reports no waits keeps its place");
    assert_eq!(number(Duration::MAX), 20_000 * MS);
}
