//! `replicate`: every batch runs on several instances; the first answer wins.
//!
//! Copies wait for idle instances and are dropped when an answer comes. So replication fades out under load.
//! Sending every copy in turn would saturate the pool at 1/n of its capacity.

use super::hooks::{Along, Policy};
use crate::api::ReplicateSettings;

pub(crate) struct Replicate {
    copies: u8,
}

impl Replicate {
    pub(crate) fn new(settings: &ReplicateSettings) -> Self {
        Self { copies: settings.copies.get() - 1 }
    }
}

impl Policy for Replicate {
    fn along(&self, _utilisation: f64) -> Along {
        Along { copies: self.copies, ..Along::default() }
    }
}
