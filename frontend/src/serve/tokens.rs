//! What a worker of ours says about its slots.

use std::num::NonZeroU16;
use std::sync::{Arc, Weak};

use parm_protocol::fleet::{News, Watcher};
use parm_tokens::Message;

use super::instance::Instance;

/// Hears one instance.
pub(super) struct Tokens(pub(super) Weak<Instance>);

impl Tokens {
    pub(super) fn of(instance: &Arc<Instance>) -> Self {
        Self(Arc::downgrade(instance))
    }
}

impl Watcher for Tokens {
    fn heard(&self, _connection: u64, news: News) {
        let Some(instance) = self.0.upgrade() else { return };
        match news {
            News::Slots(slots) => instance.set_stated_slots(slots),
            News::Told(Message::Shared) => instance.set_shared(true),
            News::Told(Message::Alone(slots)) => {
                instance.set_shared(false);
                NonZeroU16::new(slots).into_iter().for_each(|slots| instance.set_stated_slots(slots));
            }
            _ => {}
        }
    }
}
