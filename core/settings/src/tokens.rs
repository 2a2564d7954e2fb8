//! Settings for instances that several frontends use.

use std::num::NonZeroU8;
use std::time::Duration;

/// Use of instances that other frontends use as well, if these give tokens. Only tests choose other values.
///
/// The times fit networks of up to a few milliseconds; a wrong one costs messages and no query.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenSettings {
    /// Instances at which a waiting query reserves. Three nearly always include one that is soon idle; each more costs a
    /// message.
    pub reservations: NonZeroU8,
    /// Time after which a pool whose work still waits reserves at as many more instances.
    pub widen: Duration,
    /// Time after which a reservation without a result is repeated, as its message may be lost.
    pub renew: Duration,
}

impl Default for TokenSettings {
    fn default() -> Self {
        Self {
            reservations: const { NonZeroU8::new(3).unwrap() },
            widen: Duration::from_micros(500),
            renew: Duration::from_millis(50),
        }
    }
}
