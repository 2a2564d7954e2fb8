//! Times and bounds of a worker's tokens.

use std::time::Duration;

/// Times and bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A frontend gives a token back that it has not used for so long.
    pub lease: Duration,
    /// A token is not called back before it is so old: it may just be on its way, or its job on the way back.
    pub young: Duration,
    /// A token that was called back is void after this time, whether it came back or not.
    pub recall: Duration,
    /// Reservations of all frontends; more are ignored, and made again by those who still wait.
    pub most_reservations: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease: Duration::from_millis(100),
            young: Duration::from_millis(1),
            recall: Duration::from_millis(5),
            most_reservations: 1024,
        }
    }
}
