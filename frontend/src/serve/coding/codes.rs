//! Fallbacks of a pool: codes by group size, a backup model, a stand-in and a default answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use parm_protocol::ModelRef;

use super::coder::Coder;
use super::default_answer::DefaultAnswer;
use super::{Guards, StandIn};
use crate::serve::pool::Description;

/// Codes and other fallbacks of a pool.
#[derive(Debug, Default)]
pub(crate) struct Codes {
    /// Number of these codes among those of the pool, starting at 1.
    pub(crate) turn: u64,
    pub(super) coders: BTreeMap<usize, Arc<Coder>>,
    /// Checks of queries; `None` if nothing is mixed.
    pub(crate) guards: Option<Guards>,
    /// The backup model.
    pub(crate) backup: Option<ModelRef>,
    /// The stand-in for late predictions.
    pub(crate) stand_in: Option<Arc<StandIn>>,
    pub(crate) default_answer: Option<DefaultAnswer>,
}

impl Codes {
    /// The code for groups of `k`.
    pub(crate) fn coder(&self, k: usize) -> Option<&Arc<Coder>> {
        self.coders.get(&k)
    }

    /// Number of codes.
    pub(crate) fn len(&self) -> usize {
        self.coders.len()
    }

    /// Whether an instance with these models can run every parity; `deployed` states whether it has the deployed model.
    pub(crate) fn parity_at(&self, models: &[Description], deployed: bool) -> Result<bool, String> {
        if self.coders.is_empty() {
            return Ok(false);
        }
        for coder in self.coders.values() {
            if coder.models.is_empty() && !deployed {
                return Ok(false);
            }
            for (place, wanted) in coder.models.iter().enumerate() {
                let Some(served) = models.iter().find(|served| is(wanted, served)) else { return Ok(false) };
                if let Some(problem) = coder.misfit(place, served) {
                    return Err(problem);
                }
            }
        }
        Ok(true)
    }

    /// Whether an instance with these models can run the backup model.
    pub(crate) fn backup_at(&self, models: &[Description]) -> bool {
        self.backup.as_ref().is_some_and(|wanted| models.iter().any(|served| is(wanted, served)))
    }

    /// The pool's stand-in, if it is among these models.
    pub(crate) fn stand_in_at<'a>(&self, models: &'a [Description]) -> Option<(&StandIn, &'a Description)> {
        let stand_in = self.stand_in.as_deref()?;
        Some((stand_in, models.iter().find(|served| is(&stand_in.model, served))?))
    }
}

/// A server without versions has the expected one.
fn is(wanted: &ModelRef, served: &Description) -> bool {
    wanted.name == served.model.name
        && (wanted.version.is_none()
            || served.model.version.is_none()
            || wanted.version == served.model.version)
}
