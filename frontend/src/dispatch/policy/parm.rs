//! ParM as published: one instance of `k + 1` runs parities and nothing else; whatever comes first, the prediction or
//! its reconstruction, answers the query.
//!
//! Below about .7 of the deployed instances' capacity it hides stragglers well; above, queries queue for `k` of `k + 1`
//! instances while the rest may idle, and it is worse than no redundancy at all. `parm+` is what to use.

use super::{Along, Policy, one_of_k_plus_one};
use crate::dispatch::CodingSettings;

pub(super) struct Parm {
    k: u8,
}

impl Parm {
    pub(super) fn new(settings: &CodingSettings) -> Self {
        Self { k: settings.k.get() }
    }
}

impl Policy for Parm {
    fn along(&self, _utilisation: f64) -> Along {
        Along { group: Some(self.k), ..Along::default() }
    }

    fn dedicated(&self, instances: u32) -> u32 {
        one_of_k_plus_one(instances, self.k)
    }
}
