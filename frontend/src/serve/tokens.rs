//! Forwards token messages from an instance's connection to the dispatcher.

use std::num::NonZeroU16;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use parm_dispatch::{Event, InstanceId};
use parm_protocol::fleet::{News, Watcher};
use parm_tokens::Message;

use super::driver::Driver;

/// Forwards one instance's token messages. Messages of an older connection are dropped.
pub(super) struct Tokens {
    driver: Weak<Driver>,
    instance: InstanceId,
    /// The present connection.
    connection: Mutex<Option<Present>>,
}

/// A connection, and what its server has stated, which it does not repeat.
struct Present {
    number: u64,
    slots: Option<NonZeroU16>,
    /// The jobs at a time without tokens, or that other frontends share the instance.
    shared: Option<Option<NonZeroU16>>,
}

impl Tokens {
    pub(super) fn of(driver: &Arc<Driver>, instance: InstanceId) -> Self {
        Self { driver: Arc::downgrade(driver), instance, connection: Mutex::default() }
    }

    /// Tells the dispatcher again what the server has stated: it forgot an instance that had no models for a while, whose
    /// connection stayed open.
    pub(super) fn repeat(&self) {
        let Some(driver) = self.driver.upgrade() else { return };
        let current = self.connection.lock();
        let Some(Present { slots, shared, .. }) = &*current else { return };
        driver.on(Event::TokensOffered(self.instance));
        slots.iter().for_each(|slots| driver.on(Event::SlotsStated(self.instance, *slots)));
        shared.iter().for_each(|alone| driver.on(Event::TokensShared(self.instance, *alone)));
    }
}

impl Watcher for Tokens {
    fn heard(&self, connection: u64, news: News) {
        let Some(driver) = self.driver.upgrade() else { return };
        // Held until the dispatcher is informed, which keeps the order of messages.
        let mut current = self.connection.lock();
        let is_present = |known: &Present| known.number == connection;
        let event = match news {
            News::Offered if current.as_ref().is_some_and(|known| known.number > connection) => return,
            News::Offered => {
                *current = Some(Present { number: connection, slots: None, shared: None });
                Event::TokensOffered(self.instance)
            }
            _ if !current.as_ref().is_some_and(is_present) => return,
            News::Slots(slots) => {
                current.iter_mut().for_each(|known| known.slots = Some(slots));
                Event::SlotsStated(self.instance, slots)
            }
            News::Told(Message::Granted(grant)) => Event::TokenGranted(self.instance, grant),
            News::Told(Message::Recalled(token)) => Event::TokenRecalled(self.instance, token),
            News::Told(message @ (Message::Alone(_) | Message::Shared)) => {
                let alone = if let Message::Alone(slots) = message { NonZeroU16::new(slots) } else { None };
                current.iter_mut().for_each(|known| known.shared = Some(alone));
                Event::TokensShared(self.instance, alone)
            }
            News::Ended => {
                *current = None;
                Event::TokensEnded(self.instance)
            }
        };
        driver.on(event);
    }
}
