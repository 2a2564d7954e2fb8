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
    connection: Mutex<Option<u64>>,
}

impl Tokens {
    pub(super) fn of(driver: &Arc<Driver>, instance: InstanceId) -> Self {
        Self { driver: Arc::downgrade(driver), instance, connection: Mutex::default() }
    }
}

impl Watcher for Tokens {
    fn heard(&self, connection: u64, news: News) {
        let Some(driver) = self.driver.upgrade() else { return };
        // Held until the dispatcher is informed, which keeps the order of messages.
        let mut current = self.connection.lock();
        let event = match news {
            News::Offered if current.is_some_and(|known| known > connection) => return,
            News::Offered => {
                *current = Some(connection);
                Event::TokensOffered(self.instance)
            }
            _ if *current != Some(connection) => return,
            News::Slots(slots) => Event::SlotsStated(self.instance, slots),
            News::Told(Message::Granted(grant)) => Event::TokenGranted(self.instance, grant),
            News::Told(Message::Recalled(token)) => Event::TokenRecalled(self.instance, token),
            News::Told(Message::Alone(slots)) => Event::TokensShared(self.instance, NonZeroU16::new(slots)),
            News::Told(Message::Shared) => Event::TokensShared(self.instance, None),
            News::Ended => {
                *current = None;
                Event::TokensEnded(self.instance)
            }
        };
        driver.on(event);
    }
}
