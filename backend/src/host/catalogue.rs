//! Loaded models, the threads that run them, and the table of models with their versions and states.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use parm_protocol::{Error as Refusal, ModelConfig, ModelIndex, ModelMetadata, ModelRef, Rows, Tensor};

use crate::Error;
use crate::engine::{Model, Signature, guarded};
use crate::instance::Payer;
use crate::metrics::Statistics;

/// Versions by model and number.
#[derive(Default)]
pub(crate) struct Catalogue {
    models: RwLock<BTreeMap<String, BTreeMap<u64, Slot>>>,
}

/// One version. During and after a failed reload of a served version the old one stays in service.
#[derive(Default)]
struct Slot {
    ready: Option<Arc<Loaded>>,
    loading: bool,
    reason: String,
}

impl Catalogue {
    /// The version for a request: the named one, otherwise the highest ready one.
    pub(crate) fn find(&self, model: &ModelRef) -> Result<Arc<Loaded>, Refusal> {
        let models = self.models.read();
        let unknown = || Refusal::UnknownModel { name: model.name.clone() };
        let versions = models.get(&model.name).ok_or_else(unknown)?;
        let Some(version) = &model.version else {
            let newest = versions.values().rev().find_map(|slot| slot.ready.clone());
            let slot = versions.values().next_back();
            return newest.ok_or_else(|| not_loaded(&model.name, slot.map_or("", |slot| &slot.reason)));
        };
        let slot = version.parse().ok().and_then(|number: u64| versions.get(&number));
        let slot = slot.ok_or_else(|| Refusal::UnknownVersion {
            name: model.name.clone(),
            version: version.clone(),
            available: ready(versions),
        })?;
        slot.ready.clone().ok_or_else(|| not_loaded(&model.name, &slot.reason))
    }

    /// All ready versions, of one model or of all.
    pub(crate) fn all_ready(&self, name: Option<&str>) -> Result<Vec<Arc<Loaded>>, Refusal> {
        let models = self.models.read();
        if let Some(name) = name
            && !models.contains_key(name)
        {
            return Err(Refusal::UnknownModel { name: name.into() });
        }
        let wanted = models.iter().filter(|(model, _)| name.is_none_or(|name| name == *model));
        Ok(wanted.flat_map(|(_, versions)| versions.values()).filter_map(|slot| slot.ready.clone()).collect())
    }

    /// Ready versions of a model.
    pub(crate) fn versions(&self, name: &str) -> Vec<String> {
        self.models.read().get(name).map(ready).unwrap_or_default()
    }

    pub(crate) fn any_ready(&self) -> bool {
        let models = self.models.read();
        models.values().flat_map(BTreeMap::values).any(|slot| slot.ready.is_some())
    }

    /// The index in the protocol's form.
    pub(crate) fn index(&self, ready_only: bool) -> Vec<ModelIndex> {
        let models = self.models.read();
        let slots = models.iter().flat_map(|(name, versions)| {
            versions.iter().map(move |(version, slot)| ModelIndex {
                name: name.clone(),
                version: version.to_string(),
                state: slot.state().into(),
                reason: slot.reason.clone(),
            })
        });
        slots.filter(|index| !ready_only || index.state == "READY").collect()
    }

    /// Versions that are not ready.
    pub(crate) fn absent(&self) -> Vec<ModelIndex> {
        self.index(false).into_iter().filter(|index| index.state != "READY").collect()
    }

    /// Numbers of all known versions of a model, ready or not.
    pub(super) fn known(&self, name: &str) -> Vec<u64> {
        self.models.read().get(name).map(|versions| versions.keys().copied().collect()).unwrap_or_default()
    }

    pub(super) fn is_ready(&self, name: &str, version: u64) -> bool {
        let models = self.models.read();
        models.get(name).and_then(|versions| versions.get(&version)).is_some_and(|slot| slot.ready.is_some())
    }

    pub(super) fn loading(&self, name: &str, version: u64) {
        let mut models = self.models.write();
        models.entry(name.into()).or_default().entry(version).or_default().loading = true;
    }

    /// Stores the result of a load; returns the version that it replaces.
    pub(super) fn put(
        &self,
        name: &str,
        version: u64,
        outcome: Result<Arc<Loaded>, Error>,
    ) -> Option<Arc<Loaded>> {
        let mut models = self.models.write();
        let slot = models.entry(name.into()).or_default().entry(version).or_default();
        slot.loading = false;
        match outcome {
            Ok(loaded) => {
                slot.reason.clear();
                slot.ready.replace(loaded)
            }
            Err(error) => {
                slot.reason = error.to_string();
                None
            }
        }
    }

    /// Takes a version out of service; it stays in the index, with the reason.
    pub(super) fn unload(&self, name: &str, version: u64, reason: &str) -> Option<Arc<Loaded>> {
        let mut models = self.models.write();
        let slot = models.get_mut(name)?.get_mut(&version)?;
        slot.reason = reason.into();
        slot.ready.take()
    }

    /// Removes a version that is no longer in the repository.
    pub(super) fn forget(&self, name: &str, version: u64) -> Option<Arc<Loaded>> {
        let mut models = self.models.write();
        let versions = models.get_mut(name)?;
        let slot = versions.remove(&version);
        if versions.is_empty() {
            models.remove(name);
        }
        slot?.ready
    }
}

impl Slot {
    fn state(&self) -> &'static str {
        match (&self.ready, self.loading) {
            (Some(_), _) => "READY",
            (None, true) => "LOADING",
            (None, false) => "UNAVAILABLE",
        }
    }
}

fn not_loaded(model: &str, reason: &str) -> Refusal {
    match reason {
        "" => Refusal::NoInstance { model: model.into() },
        reason => Refusal::Unavailable { message: format!("model '{model}' is not loaded: {reason}") },
    }
}

fn ready(versions: &BTreeMap<u64, Slot>) -> Vec<String> {
    let ready = versions.iter().filter(|(_, slot)| slot.ready.is_some());
    ready.map(|(number, _)| number.to_string()).collect()
}

/// One version of a model, with a replica for each instance.
///
/// Jobs hold a reference, so a version that is replaced or unloaded still answers its queued jobs.
pub(crate) struct Loaded {
    pub(crate) metadata: ModelMetadata,
    pub(crate) config: ModelConfig,
    pub(crate) version: String,
    /// Whether a run returns the number of tokens of each row after the outputs.
    pub(super) counts_tokens: bool,
    /// The share of requests that name none.
    pub(crate) payer: Payer,
    /// Maximum rows of a batch; 1 if batching does not pay.
    pub(crate) batch_limit: usize,
    pub(crate) statistics: Statistics,
    /// The place for runs of one row.
    pub(super) site: Site,
    /// One replica per concurrent run, so that a run always finds a free one, usually its own instance's.
    pub(super) replicas: Vec<Mutex<Box<dyn Model>>>,
}

impl Loaded {
    /// Runs on an instance's replica.
    pub(crate) fn run(&self, instance: usize, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        let own = instance % self.replicas.len();
        let (before, after) = self.replicas.split_at(own);
        let free = after.iter().chain(before).find_map(Mutex::try_lock);
        let mut model = free.unwrap_or_else(|| self.replicas[own].lock());
        guarded(|| model.run(inputs))
    }

    /// The place for a run of this many rows.
    pub(super) fn site(&self, rows: usize) -> Site {
        if rows == 1 { self.site } else { Site::Apart }
    }

    /// The rows of a request: none if the model's first dimension is not a batch.
    pub(super) fn rows(&self) -> Rows {
        match usize::try_from(self.config.max_batch_size) {
            Ok(most) if most > 0 => Rows::UpTo(most),
            _ => Rows::Whole,
        }
    }

    /// Name and version, for metrics.
    pub(crate) fn labels(&self) -> (&str, &str) {
        (&self.metadata.name, &self.version)
    }
}

/// The longest run that may keep a thread from reading sockets.
const QUICK: Duration = Duration::from_micros(100);
/// The longest run for which a saved wake-up matters.
const BRISK: Duration = Duration::from_millis(20);

/// The thread of a run. Waking another thread takes longer than many a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Site {
    /// The thread that read the request: the run is so short and regular that it delays nothing there.
    Here,
    /// The same thread, while another one reads sockets.
    LookedAfter,
    /// An instance's thread.
    Apart,
}

impl Site {
    /// The place for runs of one row. Only models with constant run times run on the reading thread: other sizes may be
    /// slow or need compiling, and requests that share a run must meet in the queue. Without a batch the first
    /// dimension is a size like the others: a whole request counts as one row.
    /// `alone` is the run time of one row, if it is known and constant, and no other row may join it.
    pub(super) fn of(signature: &Signature, batched: bool, alone: Option<Duration>) -> Self {
        let sizes = |shape: &[i64]| shape.iter().skip(usize::from(batched)).all(|dim| *dim >= 0);
        let fixed = signature.inputs.iter().all(|input| sizes(&input.shape));
        match alone.filter(|_| fixed) {
            Some(alone) if alone <= QUICK => Site::Here,
            Some(alone) if alone <= BRISK => Site::LookedAfter,
            _ => Site::Apart,
        }
    }
}

#[cfg(test)]
mod tests {
    use parm_protocol::DataType;

    use super::*;
    use crate::engine::Declared;

    #[test]
    fn request_of_any_length_keeps_no_reading_thread() {
        let place = |shape: &[i64], batched| {
            let x = Declared { name: "x".into(), datatype: DataType::Fp32, shape: shape.into() };
            let signature = Signature { inputs: vec![x], outputs: vec![] };
            Site::of(&signature, batched, Some(Duration::from_micros(5)))
        };
        assert_eq!(place(&[-1, 8], true), Site::Here);
        assert_eq!(place(&[1, 8], false), Site::Here);
        // All of a sequence is one row of it.
        assert_eq!(place(&[-1, 8], false), Site::Apart);
        assert_eq!(place(&[-1, -1], true), Site::Apart);
    }
}
