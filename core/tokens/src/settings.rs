//! Times and bounds of a worker's tokens.

use std::time::Duration;

/// Times and bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Time after which a frontend gives back an unused token.
    pub lease: Duration,
    /// Minimum age of a token before it is recalled: it may be in transit, or its job on the way back.
    pub young: Duration,
    /// Time after which a recalled token is void, even if it was not returned.
    pub recall: Duration,
    /// Longest wait that a reservation counts for: a wrong report must not precede all others forever.
    pub longest_wait: Duration,
    /// Maximum reservations of all frontends; further ones are ignored, and repeated by frontends that still wait.
    pub most_reservations: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease: Duration::from_millis(100),
            young: Duration::from_millis(1),
            recall: Duration::from_millis(5),
            longest_wait: Duration::from_secs(10),
            most_reservations: 1024,
        }
    }
}
