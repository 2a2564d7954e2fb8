//! Every batch on several instances at once; the first answer wins.
//!
//! Copies wait for instances that have nothing else to do, and copies still waiting when an answer comes are dropped: so
//! replication fades out under load, where sending every copy in turn would saturate the pool at 1/n of its capacity.

use super::{Along, Policy};
use crate::ReplicateSettings;

pub(super) struct Replicate {
    copies: u8,
}

impl Replicate {
    pub(super) fn new(settings: &ReplicateSettings) -> Self {
        Self { copies: settings.copies.get() - 1 }
    }
}

impl Policy for Replicate {
    fn along(&self, _utilisation: f64) -> Along {
        Along { copies: self.copies, ..Along::default() }
    }
}
