//! Random events of instances that give tokens.

use std::num::NonZeroU16;
use std::time::Duration;

use parm_dispatch::{Action, Event, Grant, InstanceId, Order, Token};
use proptest::prelude::*;

use super::world::World;

/// An action of an instance that gives tokens.
#[derive(Clone, Debug)]
pub(crate) enum Tokens {
    Offered,
    Granted { lease: Option<Duration>, contended: bool, reserved: bool, sharers: u16, met: bool },
    Recalled(u32),
    Shared(u16),
    Slots(u16),
    Ended,
}

pub(crate) fn tokens() -> impl Strategy<Value = Tokens> {
    let lease = prop::option::of((0..200u64).prop_map(Duration::from_millis));
    let grant = (lease, any::<bool>(), prop::bool::weighted(0.2), 1..4u16, any::<bool>());
    prop_oneof![
        2 => Just(Tokens::Offered),
        8 => grant.prop_map(|(lease, contended, reserved, sharers, met)| Tokens::Granted {
            lease, contended, reserved, sharers, met
        }),
        1 => (1000..1400u32).prop_map(Tokens::Recalled),
        1 => (0..3u16).prop_map(Tokens::Shared),
        1 => (1..3u16).prop_map(Tokens::Slots),
        1 => Just(Tokens::Ended),
    ]
}

pub(crate) fn token_event(world: &World, id: InstanceId, name: u32, change: &Tokens) -> Event {
    match *change {
        Tokens::Offered => Event::TokensOffered(id),
        Tokens::Ended => Event::TokensEnded(id),
        Tokens::Recalled(token) => Event::TokenRecalled(id, Token(token)),
        Tokens::Slots(slots) => Event::SlotsStated(id, NonZeroU16::new(slots).expect("not zero")),
        Tokens::Shared(alone) => Event::TokensShared(id, NonZeroU16::new(alone)),
        Tokens::Granted { lease, contended, reserved, sharers, met } => {
            let reservation = world.log.iter().rev().find_map(|(_, action)| match action {
                Action::Tell(of, Order::Reserve(_, _, note, _)) if *of == id => Some(*note),
                _ => None,
            });
            let met = reservation.filter(|_| met).unwrap_or_default();
            Event::TokenGranted(id, Grant { token: Token(name), lease, contended, reserved, sharers, met })
        }
    }
}
