//! `parm`: ParM as published. One of `k + 1` instances runs only parities; the first of prediction and
//! reconstruction answers.
//!
//! Below about 0.7 of the capacity of the deployed instances it hides stragglers well. Above, queries queue for
//! `k` of `k + 1` instances while the rest may idle, which is worse than no redundancy. Use `parm+` instead.

use super::hooks::{Along, Policy, kept_for_parities};
use crate::api::CodingSettings;

pub(crate) struct Parm {
    settings: CodingSettings,
}

impl Parm {
    pub(crate) fn new(settings: &CodingSettings) -> Self {
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
