//! The models that are served, by name and version.
//!
//! A model appears with the first instance that serves it, and that instance's description holds for all. It stays
//! while its instances are merely gone, so that clients hear "no instance" and not "unknown model"; it goes when it was
//! unloaded from the last instance that had it. An instance whose description is another is refused as long as anybody
//! serves the known one: a version number is a promise, and a model of another shape wants another number.
//!
//! ## Which version a request gets that names none
//!
//! New versions come to one instance after another. Were the newest that is served the answer, the first instance to have
//! it would get the traffic of all, and its queue would overflow beside idle neighbours; likewise the last that still has
//! it when a version is taken back. So it is the newest version that a share of the model's instances serve, half of them
//! unless told otherwise: whatever the direction of the change, neither side ever gets everything on less than that. Only
//! if no version reaches the share, as with three of them about, it is the one that most serve.
//!
//! Instances count that take new work, each once, however many versions it has; all have equally many slots. Those that
//! the dispatcher has ejected count too: that is a matter of seconds, and no reason for clients to see versions flap. Before
//! the first instance of a second version there is nothing to weigh; when no instance is left the last choice stays.
//!
//! Rejected: a share of the slots that the former version had at its height. That must be remembered, grows stale when the
//! fleet is resized, and two frontends that started at different times would choose differently. Spreading requests over
//! versions by slots was rejected too: clients of one model would see two models' answers, alternating, for as long as an
//! update takes, rather than one switch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::RwLock;
use parm_dispatch::{InstanceId, PoolId};
use parm_protocol::{Error, ModelRef, TensorMetadata};

use super::instance::Instance;
use super::pool::{Description, Pool};
use crate::error;

/// The pools, by model and version.
#[derive(Default)]
pub(crate) struct Catalog {
    models: RwLock<BTreeMap<String, Model>>,
    next: AtomicU32,
}

#[derive(Default)]
struct Model {
    versions: BTreeMap<Version, Arc<Pool>>,
    /// Where requests go that name no version.
    chosen: Option<Version>,
}

/// Versions in order: numbers by value, before them anything else by its letters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version(Option<u64>, String);

impl Catalog {
    /// The pool that a request is for: the version asked for, else the one that is chosen.
    pub(crate) fn find(&self, model: &ModelRef) -> Result<Arc<Pool>, Error> {
        let models = self.models.read();
        let Model { versions, chosen } =
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

    /// Every pool, in order of names and versions.
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

    /// Puts an instance into the pool that its model belongs to, made by `make` if it is the first. Returns whether it was
    /// made, and the pool that it replaces: one that nobody else serves does not bind newcomers.
    pub(crate) fn admit(
        &self,
        description: Description,
        instance: &Instance,
        make: impl FnOnce(PoolId, Description) -> Pool,
    ) -> Result<Admitted, error::Error> {
        let mut models = self.models.write();
        let version = Version::read(description.model.version.as_deref().unwrap_or_default());
        let versions = &mut models.entry(description.model.name.clone()).or_default().versions;
        let mut replaced = None;
        if let Some(known) = versions.get(&version) {
            match disagreement(known, &description, &instance.name) {
                None => {
                    // Under the lock, or the pool might be taken out as unserved before its new instance is in it.
                    known.join(instance.id);
                    return Ok(Admitted { pool: known.clone(), is_new: false, replaced: None });
                }
                Some(error) if known.is_served_by_others(instance.id) => return Err(error),
                Some(_) => replaced = Some(known.clone()),
            }
        }
        let id = PoolId(self.next.fetch_add(1, Ordering::Relaxed));
        let pool = Arc::new(make(id, description));
        pool.join(instance.id);
        versions.insert(version, pool.clone());
        Ok(Admitted { pool, is_new: true, replaced })
    }

    /// Takes a pool out, if nobody serves it.
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

    /// Other instances serve a model's versions now: chooses again where requests go that name none.
    pub(crate) fn weigh(&self, name: &str, share: f64) {
        let mut models = self.models.write();
        let Some(Model { versions, chosen }) = models.get_mut(name) else { return };
        let workers: Vec<_> = versions.values().map(|pool| pool.workers()).collect();
        let Some(best) = choice(&workers, share) else { return };
        let best = versions.keys().nth(best).cloned();
        if chosen.is_some() && *chosen != best {
            let version = best.as_ref().map(|version| &*version.1);
            tracing::info!(model = name, version, "requests that name no version go to another one now");
        }
        *chosen = best;
    }
}

/// Which of a model's versions, in order, is for requests that name none, by the instances that work for each; none if no
/// instance does.
fn choice(workers: &[BTreeSet<InstanceId>], share: f64) -> Option<usize> {
    let all = workers.iter().flatten().collect::<BTreeSet<_>>().len();
    // What half an instance would be takes a whole one; rounding must not take one more.
    let enough = (share * all as f64 - 1e-9).ceil().max(1.0) as usize;
    let newest = workers.iter().rposition(|own| own.len() >= enough);
    let most = || (0..workers.len()).max_by_key(|at| workers[*at].len());
    newest.or_else(most).filter(|_| all > 0)
}

/// A place in a pool.
pub(crate) struct Admitted {
    pub(crate) pool: Arc<Pool>,
    pub(crate) is_new: bool,
    pub(crate) replaced: Option<Arc<Pool>>,
}

impl Version {
    fn read(text: &str) -> Self {
        Self(text.parse().ok(), text.to_owned())
    }
}

/// What an instance's model has otherwise than the others'. The order of tensors is no matter: they go by name.
fn disagreement(pool: &Pool, description: &Description, instance: &str) -> Option<error::Error> {
    let sides = [
        ("inputs", &pool.metadata.inputs, &description.metadata.inputs),
        ("outputs", &pool.metadata.outputs, &description.metadata.outputs),
    ];
    sides.into_iter().find_map(|(what, expected, actual)| {
        let (expected, actual) = (listed(expected), listed(actual));
        (expected != actual).then(|| error::Error::Disagreement {
            model: pool.model.name.clone(),
            instance: instance.to_owned(),
            what,
            expected,
            actual,
        })
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
    use parm_dispatch::PolicyKind;
    use parm_protocol::ModelMetadata;
    use parm_transport::client;

    use super::*;
    use crate::metrics::Metrics;

    /// Whoever is admitted is in the pool already: another that leaves it at that moment cannot have it taken out.
    #[tokio::test]
    async fn a_pool_with_a_newcomer_is_not_taken_out() {
        let (catalog, metrics) = (Catalog::default(), Metrics::new());
        let model = ModelRef { name: "m".into(), version: Some("1".into()) };
        let description =
            Description { model: model.clone(), metadata: ModelMetadata::default(), config: None };
        let admit = |id: u32| {
            let client =
                client::connect(&"http://nobody:1".parse().unwrap(), &client::Config::default()).unwrap();
            let name = format!("i{id}");
            let own = metrics.instance(&name);
            let instance = Instance::new((InstanceId(id), id), name, client, own);
            let make =
                |id, description| Pool::new(id, description, metrics.pool("m", "1", PolicyKind::None), false);
            catalog.admit(description.clone(), &instance, make).unwrap().pool
        };
        let pool = admit(0);
        pool.leave(InstanceId(0));
        admit(1);
        assert!(!catalog.remove_unserved(&pool), "it was joined just before");
        assert!(Arc::ptr_eq(&catalog.find(&model).unwrap(), &pool));
        pool.leave(InstanceId(1));
        assert!(catalog.remove_unserved(&pool));
        assert!(catalog.find(&model).is_err());
    }

    #[test]
    fn the_newest_version_that_enough_instances_serve_is_chosen() {
        /// Instances of each version from the oldest on, the share, and the version that is chosen.
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
