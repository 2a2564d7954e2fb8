//! ParM as published: one instance of `k + 1` runs parities and nothing else; whatever comes first, the prediction or
//! its reconstruction, answers the query.
//!
//! Below about .7 of the deployed instances' capacity it hides stragglers well; above, queries queue for `k` of `k + 1`
//! instances while the rest may idle, and it is worse than no redundancy at all. `parm+` is what to use.

use super::{Along, Policy, kept_for_parities};
use crate::CodingSettings;

pub(super) struct Parm {
    settings: CodingSettings,
}

impl Parm {
    pub(super) fn new(settings: &CodingSettings) -> Self {
        Self { settings: settings.clone() }
    }
}

impl Policy for Parm {
    fn along(&self, _utilisation: f64) -> Along {
        Along { group: Some(self.settings.k.get()), ..Along::default() }
    }

    fn dedicated(&self, instances: u32) -> u32 {
        kept_for_parities(instances, &self.settings)
    }
}
