//! Asks and grants between this frontend and workers of ours (see the crate `grants`): what they say, and what they are told.
//!
//! The dispatcher decides both. Here messages of an earlier connection are ignored, because its grants are void, and an ask that
//! another thread has overtaken is not sent, because each states what holds from now on.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use parm_grants::{Order, Told};
use parm_protocol::fleet::{News, Watcher};

use super::crash;
use super::driver::Driver;
use super::instance::Instance;
use super::state::{Effects, State};

/// Hears one instance.
pub(super) struct Listener {
    driver: Weak<Driver>,
    instance: Weak<Instance>,
}

impl Listener {
    pub(super) fn of(driver: &Arc<Driver>, instance: &Arc<Instance>) -> Self {
        Self { driver: Arc::downgrade(driver), instance: Arc::downgrade(instance) }
    }
}

impl Watcher for Listener {
    fn heard(&self, connection: u64, news: News) {
        let Some((driver, instance)) = self.driver.upgrade().zip(self.instance.upgrade()) else { return };
        match news {
            News::Slots(slots) => instance.set_stated_slots(slots),
            News::Told(told) => driver.heard(&instance, connection, told),
            News::Ended => driver.heard(&instance, connection, Told::Shared(false)),
        }
    }
}

impl State {
    /// Tells the dispatcher what an instance says on one of its connections.
    pub(super) fn heard(
        &mut self,
        driver: &Driver,
        instance: &Instance,
        (connection, told): (u64, Told),
        effects: &mut Effects,
    ) {
        // Only changed here, under the lock.
        if instance.connection.fetch_max(connection, Ordering::Relaxed) > connection {
            return;
        }
        if let Told::Shared(shared) = told {
            instance.set_shared(shared);
        }
        let Some(key) = self.keys.get(&instance.id).copied() else { return };
        self.react(driver, crash::Told::Heard(key, told), effects, |state, now| match told {
            Told::Granted => state.dispatcher.granted(now, key),
            Told::Recalled => state.dispatcher.recalled(now, key),
            Told::Shared(shared) => state.dispatcher.shared(now, key, shared),
        });
    }
}

impl Instance {
    /// Tells it the order of this number, unless it is an ask that a later one has overtaken.
    pub(super) fn order(&self, number: u64, order: Order) {
        let mut latest_ask = self.latest_ask.lock();
        if matches!(order, Order::Ask(_)) {
            if number < *latest_ask {
                return;
            }
            *latest_ask = number;
        }
        self.client.tell(order);
    }

    /// An attempt that was to run there is not sent: its grant goes back.
    pub(super) fn not_sent(&self) {
        if self.is_shared() {
            self.client.tell(Order::Return);
        }
    }
}
