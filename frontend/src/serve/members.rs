//! Instances of a pool, with their statements about the model.
//!
//! A pool has one limit of rows and one file of its model in effect. Instances may differ while they are updated, so the
//! smallest limit counts, and a model of several files is not coded: parities of one file do not fit predictions of another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use parm_protocol::Padding;

use super::instance::InstanceId;
use super::pool::Description;

/// The instances of a pool.
#[derive(Default)]
pub(crate) struct PoolMembers {
    enrolled: Mutex<BTreeMap<InstanceId, Enrolment>>,
    /// The statements that the pool's settings were last derived from.
    applied: Mutex<Statements>,
}

/// An instance of a pool.
struct Enrolment {
    /// Whether it accepts new work.
    works: bool,
    /// Whether requests stay whole there.
    whole: bool,
    /// Maximum rows of its batches, if it states one.
    most: Option<u16>,
    /// SHA-256 of its file, if it states one.
    digest: Option<String>,
    /// How it pads rows, if it states that.
    padding: Option<Padding>,
}

/// Statements of all instances of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statements {
    /// The smallest maximum of rows per batch.
    pub(crate) most: Option<u16>,
    /// Digests of the model's files.
    pub(crate) files: Files,
    /// How rows are padded, if all agree.
    pub(crate) padding: Option<Arc<Padding>>,
}

/// SHA-256 of the files of a model version; without those of servers that state none.
pub(crate) type Files = BTreeSet<String>;

impl PoolMembers {
    /// Adds an instance, or updates its statements; `whole` states that requests stay whole there.
    pub(crate) fn join(&self, instance: InstanceId, description: &Description, whole: bool) {
        let config = description.config.as_ref();
        let most = config.map(|config| config.max_batch_size).filter(|most| *most > 0);
        let most = most.map(|most| u16::try_from(most).unwrap_or(u16::MAX));
        let digest = config.and_then(|config| config.digest()).map(str::to_ascii_lowercase);
        // Another server's is what its operator wrote, and was not compared with anything.
        let padding = config.filter(|_| digest.is_some() && !whole).and_then(|config| config.padding());
        self.enrolled.lock().insert(instance, Enrolment { works: true, whole, most, digest, padding });
    }

    pub(crate) fn leave(&self, instance: InstanceId) {
        self.enrolled.lock().remove(&instance);
    }

    /// Stops new work at an instance.
    pub(crate) fn drain(&self, instance: InstanceId) {
        if let Some(member) = self.enrolled.lock().get_mut(&instance) {
            member.works = false;
        }
    }

    /// Instances that accept new work.
    pub(crate) fn workers(&self) -> BTreeSet<InstanceId> {
        self.enrolled.lock().iter().filter(|(_, member)| member.works).map(|(id, _)| *id).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.enrolled.lock().is_empty()
    }

    /// Whether there is an instance other than this one.
    pub(crate) fn has_others(&self, instance: InstanceId) -> bool {
        self.enrolled.lock().keys().any(|member| *member != instance)
    }

    /// Whether requests stay whole at an instance other than this one.
    pub(crate) fn is_whole_for_others(&self, instance: InstanceId) -> bool {
        self.enrolled.lock().iter().any(|(id, member)| *id != instance && member.whole)
    }

    /// Whether there are instances, and requests are split at all of them.
    pub(crate) fn are_split(&self) -> bool {
        let members = self.enrolled.lock();
        !members.is_empty() && members.values().all(|member| !member.whole)
    }

    /// The statements of all. Without instances they stay as they were applied.
    pub(crate) fn statements(&self) -> Statements {
        let members = self.enrolled.lock();
        if members.is_empty() {
            return self.applied.lock().clone();
        }
        let first = members.values().next().and_then(|member| member.padding.as_ref());
        let padding = first.filter(|first| members.values().all(|of| of.padding.as_ref() == Some(*first)));
        Statements {
            padding: padding.cloned().map(Arc::new),
            most: members.values().filter_map(|member| member.most).min(),
            files: members.values().filter_map(|member| member.digest.clone()).collect(),
        }
    }

    /// How rows are padded, as far as settings follow from it.
    pub(crate) fn padding(&self) -> Option<Arc<Padding>> {
        self.applied.lock().padding.clone()
    }

    /// Notes that settings are about to be derived from the statements.
    pub(crate) fn apply(&self) {
        let now = self.statements();
        *self.applied.lock() = now;
    }

    /// Whether the statements differ from those that were applied.
    pub(crate) fn have_changed(&self) -> bool {
        let now = self.statements();
        *self.applied.lock() != now
    }
}
