//! Catalog of served models, by name and version.
//!
//! A model appears with its first instance, whose description holds for all. It stays while its instances are
//! temporarily lost, so that clients get "no instance" rather than "unknown model", and is removed when the last instance
//! has unloaded it, or when those that were lost have returned without it or are removed. An instance with another
//! description is rejected while any instance serves the known one, because a model with another shape must have another
//! version number.
//!
//! Instances may disagree on whether rows of a request are independent, for example while their configuration is being
//! corrected. As long as one declares that they are not (`max_batch_size` 0), requests stay whole for all of them: that is
//! right at every instance. A change replaces the pool, and the other instances join the new one.
//!
//! ## Default version
//!
//! Problem: a new version arrives at one instance after another. If the newest served version were the default, the
//! first instance with it would get all traffic, and its queue would overflow next to idle instances. The same holds
//! for the last instance of a version during a rollback.
//!
//! Choice: the default is the newest version that half of the model's instances serve (`VERSION_SHARE`). So during an update or
//! a rollback all traffic goes to half of them at least. If no version has half, for example with three versions, the
//! one that most instances serve is the default.
//!
//! An instance counts if it accepts new work, once for each of its versions; all have the same number of slots.
//! Instances that the dispatcher has ejected count too, because ejections last seconds and must not make versions flap.
//! If no instance is left the last default stays.
//!
//! Rejected: a share of the slots that the former version had at its peak. That must be remembered, is stale when the
//! fleet is resized, and differs between frontends that started at different times. Also rejected: spreading requests
//! over versions by slots, because clients would get alternating answers of two models during an update, rather than a
//! single switch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::RwLock;
use parm_protocol::{Error, ModelMetadata, ModelRef, TensorMetadata};

use super::instance::{Instance, InstanceId};
use super::pool::{Description, Pool, PoolId};
use crate::error;

/// Pools by model and version.
#[derive(Default)]
pub(crate) struct Catalog {
    models: RwLock<BTreeMap<String, Model>>,
    next: AtomicU32,
}

#[derive(Default)]
struct Model {
    versions: BTreeMap<Version, Arc<Pool>>,
    /// Default version, for requests without one.
    chosen: Option<Version>,
    /// The inputs and outputs of the default version. Its pool may be gone once another is the default.
    form: Option<Form>,
}

/// The inputs and the outputs of a model in words.
type Form = [(&'static str, String); 2];

/// Versions in order: others by their text, then numbers by value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version(Option<u64>, String);

impl Catalog {
    /// The pool of a request: its version, otherwise the default version.
    pub(crate) fn find(&self, model: &ModelRef) -> Result<Arc<Pool>, Error> {
        let models = self.models.read();
        let Model { versions, chosen, .. } =
            models.get(&model.name).ok_or_else(|| Error::UnknownModel { name: model.name.clone() })?;
        let found = match &model.version {
            Some(version) => versions.get(&Version::read(version)),
            None => {
                let chosen = chosen.as_ref().and_then(|chosen| versions.get(chosen));
                chosen.or_else(|| versions.values().next_back())
            }
        };
        found.cloned().ok_or_else(|| Error::UnknownVersion {
            name: model.name.clone(),
            version: model.version.clone().unwrap_or_default(),
            available: versions.keys().map(|version| version.1.clone()).collect(),
        })
    }

    /// All pools, in order of names and versions.
    pub(crate) fn all(&self) -> Vec<Arc<Pool>> {
        self.models.read().values().flat_map(|model| model.versions.values()).cloned().collect()
    }

    /// All versions of a model.
    pub(crate) fn versions(&self, name: &str) -> Vec<Arc<Pool>> {
        self.models
            .read()
            .get(name)
            .map(|model| model.versions.values().cloned().collect())
            .unwrap_or_default()
    }

    /// Adds an instance to the pool of its model, which `make` creates for the first instance. Returns whether the pool
    /// was created, and the pool that it replaces: a pool without instances does not bind new ones. `whole` states that the
    /// first dimension is not a batch at this instance.
    pub(crate) fn admit(
        &self,
        description: Description,
        whole: bool,
        instance: &Instance,
        make: impl FnOnce(PoolId, Description, bool) -> Pool,
    ) -> Result<Admitted, error::Error> {
        let mut models = self.models.write();
        let version = Version::read(description.model.version.as_deref().unwrap_or_default());
        let versions = &mut models.entry(description.model.name.clone()).or_default().versions;
        let mut replaced = None;
        let mut stays_whole = whole;
        if let Some(known) = versions.get(&version) {
            match disagreement(known, &description, &instance.name) {
                None => {
                    stays_whole |= known.members.is_whole_for_others(instance.id);
                    if known.batched != stays_whole {
                        known.members.join(instance.id, &description, whole);
                        known.describe(&description);
                        return Ok(Admitted { pool: known.clone(), is_new: false, replaced: None });
                    }
                    replaced = Some(known.clone());
                }
                Some(error) if known.members.has_others(instance.id) => return Err(error),
                Some(_) => replaced = Some(known.clone()),
            }
        }
        let id = PoolId(self.next.fetch_add(1, Ordering::Relaxed));
        let pool = Arc::new(make(id, description.clone(), stays_whole));
        pool.members.join(instance.id, &description, whole);
        versions.insert(version, pool.clone());
        Ok(Admitted { pool, is_new: true, replaced })
    }

    /// Removes a pool if it has no instance.
    pub(crate) fn remove_unserved(&self, pool: &Pool) -> bool {
        let mut models = self.models.write();
        let Some(Model { versions, .. }) = models.get_mut(&pool.model.name) else { return false };
        let version = Version::read(&pool.version);
        if versions.get(&version).is_none_or(|known| known.id != pool.id || known.is_served()) {
            return false;
        }
        versions.remove(&version);
        if versions.is_empty() {
            models.remove(&pool.model.name);
        }
        true
    }

    /// Recomputes a model's default version after its instances changed.
    pub(crate) fn weigh(&self, name: &str, share: f64) {
        let mut models = self.models.write();
        let Some(Model { versions, chosen, form }) = models.get_mut(name) else { return };
        let workers: Vec<_> = versions.values().map(|pool| pool.members.workers()).collect();
        let Some(best) = choice(&workers, share) else { return };
        let Some((best, pool)) = versions.iter().nth(best) else { return };
        let (version, now) = (&*best.1, form_of(&pool.metadata));
        let difference = form.as_ref().and_then(|before| difference(before, &now));
        if let Some(difference) = difference {
            tracing::warn!(
                model = name,
                version,
                "requests without a version go to a model of another form: {difference}: change its clients, or serve it under \
                 another name"
            );
        } else if chosen.as_ref().is_some_and(|chosen| chosen != best) {
            tracing::info!(model = name, version, "default version changed");
        }
        (*chosen, *form) = (Some(best.clone()), Some(now));
    }
}

/// Index of the default version among a model's versions, in order, by the instances that accept work for each; `None`
/// without instances.
fn choice(workers: &[BTreeSet<InstanceId>], share: f64) -> Option<usize> {
    let all = workers.iter().flatten().collect::<BTreeSet<_>>().len();
    // Half an instance counts as a whole one; rounding errors must not add another.
    let enough = (share * all as f64 - 1e-9).ceil().max(1.0) as usize;
    let newest = workers.iter().rposition(|own| own.len() >= enough);
    let most = || (0..workers.len()).max_by_key(|at| workers[*at].len());
    newest.or_else(most).filter(|_| all > 0)
}

/// An instance's admission to a pool.
pub(crate) struct Admitted {
    pub(crate) pool: Arc<Pool>,
    pub(crate) is_new: bool,
    pub(crate) replaced: Option<Arc<Pool>>,
}

fn form_of(metadata: &ModelMetadata) -> Form {
    [("inputs", listed(&metadata.inputs)), ("outputs", listed(&metadata.outputs))]
}

/// The difference of a form to a later one in words.
fn difference(before: &Form, now: &Form) -> Option<String> {
    let changed = before.iter().zip(now).filter(|(before, now)| before != now);
    let changed: Vec<_> =
        changed.map(|((what, before), (_, now))| format!("{what} {before} became {now}")).collect();
    (!changed.is_empty()).then(|| changed.join(", "))
}

impl Version {
    fn read(text: &str) -> Self {
        Self(text.parse().ok(), text.to_owned())
    }
}

/// The difference between an instance's model and that of other instances. Tensors are compared by name, in any order.
fn disagreement(pool: &Pool, description: &Description, instance: &str) -> Option<error::Error> {
    let mut sides = form_of(&pool.metadata).into_iter().zip(form_of(&description.metadata));
    let ((what, expected), (_, actual)) = sides.find(|(expected, actual)| expected != actual)?;
    Some(error::Error::Disagreement {
        model: pool.model.name.clone(),
        instance: instance.to_owned(),
        what,
        expected,
        actual,
    })
}

fn listed(tensors: &[TensorMetadata]) -> String {
    let mut all: Vec<String> = tensors
        .iter()
        .map(|tensor| format!("{} {}{:?}", tensor.name, tensor.datatype, tensor.shape))
        .collect();
    all.sort();
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_is_newest_version_with_enough_instances() {
        /// Instances by version from the oldest on, the share, and the default version.
        type Case<'a> = (&'a [&'a [u32]], f64, Option<usize>);
        let cases: [Case<'_>; 12] = [
            (&[&[0, 1, 2]], 0.5, Some(0)),
            (&[&[1, 2, 3, 4, 5], &[0]], 0.5, Some(0)),
            (&[&[2, 3, 4, 5], &[0, 1]], 0.5, Some(0)),
            (&[&[3, 4, 5], &[0, 1, 2]], 0.5, Some(1)),
            (&[&[], &[0]], 0.5, Some(1)),
            (&[&[1, 2, 3, 4, 5], &[0]], 0.0, Some(1)),
            (&[&[5], &[0, 1, 2, 3, 4]], 1.0, Some(1)),
            (&[&[0, 1, 2, 3], &[0, 1]], 0.5, Some(1)),
            (&[&[0, 1, 2, 3], &[0]], 0.5, Some(0)),
            (&[&[0, 1, 2], &[3, 4], &[5, 6]], 0.5, Some(0)),
            (&[&[0, 1, 2, 3, 4, 5, 6], &[7, 8, 9]], 0.3, Some(1)),
            (&[&[], &[]], 0.5, None),
        ];
        let of = |ids: &[u32]| ids.iter().copied().map(InstanceId).collect::<BTreeSet<_>>();
        for (workers, share, chosen) in cases {
            let workers: Vec<_> = workers.iter().map(|ids| of(ids)).collect();
            assert_eq!(choice(&workers, share), chosen, "{workers:?} {share}");
        }
    }
}
