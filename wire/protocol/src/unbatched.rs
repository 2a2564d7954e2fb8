//! The reason why a model's requests stay whole, a parameter of its configuration.

use crate::{ModelConfig, ModelParameter};

const NAME: &str = "parm_unbatched";

impl ModelConfig {
    /// Sets the reason why the server does not take the first dimension for a batch.
    pub fn set_unbatched(&mut self, reason: Option<&str>) {
        match reason {
            Some(reason) => {
                self.parameters.insert(NAME.into(), ModelParameter { string_value: reason.into() });
            }
            None => {
                self.parameters.remove(NAME);
            }
        }
    }

    /// The reason that the server reports.
    pub fn unbatched(&self) -> Option<&str> {
        self.parameters.get(NAME).map(|reason| reason.string_value.as_str())
    }
}
