//! What comes of an instance's tokens, on its way from the connection to the dispatcher.

use std::num::NonZeroU16;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use parm_dispatch::{Event, InstanceId};
use parm_protocol::fleet::{News, Watcher};
use parm_tokens::Message;

use super::driver::Driver;

/// Tells the dispatcher of one instance's tokens. What comes of a connection that another has followed is void.
pub(super) struct Tokens {
    driver: Weak<Driver>,
    instance: InstanceId,
    /// The connection on which tokens are given now.
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
        // Held until the dispatcher knows, so that it hears in the order in which it came.
        let mut current = self.connection.lock();
        let event = match news {
            News::Offered if current.is_some_and(|known| known > connection) => return,
            News::Offered => {
                *current = Some(connection);
                Event::TokensOffered(self.instance)
            }
            _ if *current != Some(connection) => return,
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
