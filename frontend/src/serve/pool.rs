//! Pool of the instances of one model version.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, RwLock};
use parm_protocol::validate::has_batch_dimension;
use parm_protocol::{
    BatchStatistics, Code, DurationStatistics, Error, ModelConfig, ModelMetadata, ModelRef, ModelStatistics,
    NamedTensor, RequestStatistics, RequestedOutput, Rows, TensorMetadata,
};
use parm_settings::{BatchSize, PolicyKind, PoolSettings};
use parm_transport::client::ROUTE;
use tokio::time::Instant;

use super::coding::{self, Codes, Linearity, Standing};
use super::inputs::{Inputs, Shapes};
use super::instance::InstanceId;
use super::outputs::is_wanted;
use crate::console::Sums;
use crate::metrics::{self, Sum};

/// The assumed largest batch of a server that states none, and the largest that counts.
const UNSTATED: u16 = 8;
const LARGEST_OF_SERVER: u16 = 64;

/// Time after the last failed request during which a model counts as failing.
const RECENT: Duration = Duration::from_secs(15);

/// The name of a pool, which is never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PoolId(pub(crate) u32);

/// An instance's description of a model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Description {
    /// The model, with its version if it has one.
    pub(crate) model: ModelRef,
    pub(crate) metadata: ModelMetadata,
    /// Its configuration, if the server has that endpoint.
    pub(crate) config: Option<ModelConfig>,
}

/// The instances of one model version.
pub(crate) struct Pool {
    pub(crate) id: PoolId,
    /// The model as requested from instances.
    pub(crate) model: Arc<ModelRef>,
    /// The version in responses; empty if the instances have none.
    pub(crate) version: String,
    pub(crate) metadata: ModelMetadata,
    config: Mutex<ModelConfig>,
    /// Whether it is a route of upstream servers.
    pub(crate) is_route: bool,
    /// Whether its policy sends each query once.
    once: AtomicBool,
    /// Attempts at a query that its settings allow.
    attempts: AtomicU8,
    /// Whether rows of different requests may share a batch.
    pub(crate) batched: bool,
    pub(crate) shapes: Shapes,
    pub(crate) metrics: metrics::PoolMetrics,
    pub(crate) sums: Sums,
    /// Whether its stand-in's answers have no confidence although the settings require one.
    pub(crate) never_sure: AtomicBool,
    /// Whether the log said which of its outputs codes cannot reconstruct.
    pub(crate) not_decodable: AtomicBool,
    /// How often no instance of it answered, and its stand-in did.
    pub(crate) outages: AtomicU64,
    /// Inputs of an answered query, for probes.
    pub(crate) sample: OnceLock<Arc<Inputs>>,
    /// Whether a code may mix its queries, so that their values matter.
    pub(crate) coded: AtomicBool,
    /// Whether its model may run its own parities.
    pub(crate) linearity: Linearity,
    codes: RwLock<Arc<Codes>>,
    standing: Mutex<Option<Standing>>,
    pub(crate) members: PoolMembers,
    /// Numbers in the fleet of instances that were lost with it and may return with it.
    lost: Mutex<BTreeSet<u32>>,
    tally: Tally,
}

/// Statistics that the metrics lack.
#[derive(Default)]
struct Tally {
    last_ms: AtomicU64,
    failed: AtomicU64,
    /// Requests that failed by no fault of the client, and the last error with its time.
    troubles: Mutex<(u64, Option<(Instant, LastError)>)>,
    failed_ns: AtomicU64,
    queries: AtomicU64,
    by_size: Mutex<BTreeMap<u64, DurationStatistics>>,
}

/// The error of a failed request, for operators.
#[derive(Clone, Debug)]
pub(crate) struct LastError {
    pub(crate) error: String,
    /// Its class, as in metrics.
    pub(crate) reason: &'static str,
}

impl Pool {
    /// `whole` states that the first dimension is not a batch dimension.
    pub(crate) fn new(
        id: PoolId,
        description: Description,
        metrics: metrics::PoolMetrics,
        whole: bool,
    ) -> Self {
        let Description { model, metadata, config } = description;
        let batched = !whole && has_batch_dimension(&metadata);
        Self {
            id,
            version: model.version.clone().unwrap_or_default(),
            config: Mutex::new(stated(&metadata, config, batched)),
            is_route: metadata.platform == ROUTE,
            once: AtomicBool::new(false),
            attempts: AtomicU8::new(u8::MAX),
            batched,
            shapes: Shapes::of(&metadata, batched),
            metrics,
            sums: Sums::default(),
            never_sure: AtomicBool::new(false),
            not_decodable: AtomicBool::new(false),
            outages: AtomicU64::new(0),
            sample: OnceLock::new(),
            coded: AtomicBool::new(false),
            linearity: Linearity::default(),
            codes: RwLock::default(),
            standing: Mutex::default(),
            members: PoolMembers::default(),
            lost: Mutex::default(),
            tally: Tally::default(),
            model: model.into(),
            metadata,
        }
    }

    /// The model as its instances describe it.
    pub(crate) fn description(&self) -> Description {
        let (model, metadata) = ((*self.model).clone(), self.metadata.clone());
        Description { model, metadata, config: Some(self.config()) }
    }

    /// Its configuration, as the last instance stated it, with the limit of rows that all accept.
    pub(crate) fn config(&self) -> ModelConfig {
        let mut config = self.config.lock().clone();
        if let Some(most) = self.max_batch().filter(|_| self.batched) {
            config.max_batch_size = most.into();
        }
        config
    }

    /// Takes the configuration of an instance that was described anew.
    pub(crate) fn describe(&self, description: &Description) {
        *self.config.lock() = stated(&self.metadata, description.config.clone(), self.batched);
    }

    /// Number of rows that a request may have.
    pub(crate) fn rows(&self, limit: NonZeroUsize) -> Rows {
        if self.batched { Rows::UpTo(limit.get()) } else { Rows::Whole }
    }

    /// Maximum rows per batch, if the instances state one: each takes the smallest.
    pub(crate) fn max_batch(&self) -> Option<u16> {
        if self.batched { self.members.statements().most } else { Some(1) }
    }

    /// Its codes and other fallbacks.
    pub(crate) fn codes(&self) -> Arc<Codes> {
        self.codes.read().clone()
    }

    /// Replaces the codes; encoded groups keep theirs.
    pub(crate) fn set_codes(&self, mut codes: Codes) {
        self.coded.store(codes.guards.is_some(), Ordering::Relaxed);
        let mut known = self.codes.write();
        codes.turn = known.turn + 1;
        *known = Arc::new(codes);
    }

    /// Its effective settings, once they are known.
    pub(crate) fn standing(&self) -> Option<Standing> {
        self.standing.lock().clone()
    }

    /// Whether its policy sends each query once.
    pub(crate) fn is_once(&self) -> bool {
        self.once.load(Ordering::Relaxed)
    }

    /// Whether a query that failed after so many attempts was not tried at all instances that may have the model, because no
    /// retry was allowed or left: a new description of the instances does not help it.
    pub(crate) fn gives_up_early(&self, attempts: u8) -> bool {
        let (allowed, workers) = (self.attempts.load(Ordering::Relaxed), self.members.workers().len());
        let is_early = allowed == 1 || usize::from(attempts) < workers.min(allowed.into());
        self.is_once() || (is_early && workers > 1)
    }

    /// Sets its effective settings; `wished` are those that it was given.
    pub(crate) fn set_standing(&self, standing: Standing, wished: &PoolSettings) {
        let pays = wished.retry.burst > 0 || wished.retry.ratio.get() >= 1.0;
        self.attempts.store(if pays { wished.max_attempts.get() } else { 1 }, Ordering::Relaxed);
        self.once.store(standing.in_force.policy == PolicyKind::Once, Ordering::Relaxed);
        *self.standing.lock() = Some(standing);
    }

    /// Returns the turn of the codes that may mix a query with these inputs with others, 0 if nothing is mixed, or `None` if
    /// the query must not be mixed.
    pub(crate) fn mixes(&self, inputs: &[NamedTensor]) -> Option<u64> {
        // Without codes the check of values is skipped.
        if !self.coded.load(Ordering::Relaxed) {
            return Some(0);
        }
        let codes = self.codes();
        match &codes.guards {
            Some(guards) => guards.pass(inputs).then_some(codes.turn),
            None => Some(0),
        }
    }

    /// Whether codes, if it has any, reconstruct all of these outputs; an empty list means all of the model's.
    pub(crate) fn reconstructs(&self, wanted: &[RequestedOutput]) -> bool {
        let fits = |output: &TensorMetadata| coding::is_decodable(output) || !is_wanted(wanted, &output.name);
        !self.coded.load(Ordering::Relaxed) || self.metadata.outputs.iter().all(fits)
    }

    /// Whether requests stay whole although no instance requires it now.
    pub(crate) fn is_whole_in_vain(&self) -> bool {
        !self.batched && self.members.are_split()
    }

    /// Queries that each instance gets at a time for its own batches, if it batches itself.
    pub(crate) fn server_batches(&self) -> Option<u16> {
        let size = self.standing.lock().as_ref()?.in_force.batch.max_size;
        // One of the largest batches runs while the next is collected.
        let most = || self.max_batch().unwrap_or(UNSTATED).min(LARGEST_OF_SERVER) * 2;
        (size == BatchSize::Server && self.batched).then(most)
    }

    /// Notes that the instance with this number in the fleet was lost with it.
    pub(crate) fn lose(&self, number: u32) {
        self.lost.lock().insert(number);
    }

    /// Notes that this instance is no longer lost. Returns whether it was the last one that could bring it back.
    pub(crate) fn give_up(&self, number: u32) -> bool {
        let mut lost = self.lost.lock();
        lost.remove(&number) && lost.is_empty()
    }

    /// Whether an instance serves it now.
    pub(crate) fn is_served(&self) -> bool {
        !self.members.is_empty()
    }

    /// Counts a failed request.
    pub(crate) fn failed(&self, error: &Error, took: Duration) {
        self.tally.failed.fetch_add(1, Ordering::Relaxed);
        self.tally.failed_ns.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        // Those that failed by no fault of the client.
        if matches!(error.code(), Code::Internal | Code::Unavailable) {
            let mut troubles = self.tally.troubles.lock();
            troubles.0 += 1;
            troubles.1 =
                Some((Instant::now(), LastError { error: error.to_string(), reason: error.reason() }));
        }
    }

    /// Number of such requests, and the last error with its time.
    pub(crate) fn troubles(&self) -> (u64, Option<(Instant, LastError)>) {
        self.tally.troubles.lock().clone()
    }

    /// Why its requests fail now, if they do.
    pub(crate) fn failing(&self) -> Option<LastError> {
        self.troubles().1.filter(|(at, _)| at.elapsed() < RECENT).map(|(_, last)| last)
    }

    /// Counts a query that was sent to an instance.
    pub(crate) fn dequeued(&self, waited: Duration) {
        self.tally.queries.fetch_add(1, Ordering::Relaxed);
        self.metrics.add(Sum::QueueTime, waited.as_micros() as u64);
    }

    /// Counts a batch that an instance answered.
    pub(crate) fn executed(&self, rows: usize, took: Duration) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.tally.last_ms.store(now.as_millis() as u64, Ordering::Relaxed);
        self.metrics.add(Sum::Executions, 1);
        self.metrics.add(Sum::ComputeTime, took.as_micros() as u64);
        let mut by_size = self.tally.by_size.lock();
        let size = by_size.entry(rows as u64).or_default();
        size.count += 1;
        size.ns += took.as_nanos() as u64;
    }

    pub(crate) fn statistics(&self) -> ModelStatistics {
        let microseconds = |total: u64, count: u64| DurationStatistics { count, ns: total * 1000 };
        let (metrics, tally) = (&self.metrics, &self.tally);
        let [answered, request_time] = [Sum::Success, Sum::RequestTime].map(|what| metrics.sum(what));
        let batch = |(&batch_size, &compute_infer): (&u64, &DurationStatistics)| BatchStatistics {
            batch_size,
            compute_infer,
            ..BatchStatistics::default()
        };
        ModelStatistics {
            name: self.model.name.clone(),
            version: self.version.clone(),
            last_inference_ms: tally.last_ms.load(Ordering::Relaxed),
            inference_count: metrics.sum(Sum::Inferences),
            execution_count: metrics.sum(Sum::Executions),
            inference_stats: RequestStatistics {
                success: microseconds(request_time, answered),
                fail: DurationStatistics {
                    count: tally.failed.load(Ordering::Relaxed),
                    ns: tally.failed_ns.load(Ordering::Relaxed),
                },
                queue: microseconds(metrics.sum(Sum::QueueTime), tally.queries.load(Ordering::Relaxed)),
                compute_infer: microseconds(metrics.sum(Sum::ComputeTime), metrics.sum(Sum::Executions)),
                ..RequestStatistics::default()
            },
            batch_stats: tally.by_size.lock().iter().map(batch).collect(),
        }
    }
}

/// Whether the first dimension is a batch of rows. A variable first dimension need not be: if a server states that its
/// model does not support batches (`max_batch_size` 0), it is a length, and other rows would change the answer.
pub(crate) fn takes_batches(metadata: &ModelMetadata, config: Option<&ModelConfig>) -> bool {
    has_batch_dimension(metadata) && config.is_none_or(|config| config.max_batch_size > 0)
}

/// The configuration for clients. If batches are disabled here, they must not send them, even if the server supports them.
fn stated(metadata: &ModelMetadata, config: Option<ModelConfig>, batched: bool) -> ModelConfig {
    let config = config.filter(|config| batched == (config.max_batch_size > 0));
    config.unwrap_or_else(|| configuration(metadata, batched))
}

/// The configuration for a server without that endpoint.
fn configuration(metadata: &ModelMetadata, batched: bool) -> ModelConfig {
    let tensor = |tensor: &parm_protocol::TensorMetadata| parm_protocol::ModelConfigTensor {
        name: tensor.name.clone(),
        data_type: match tensor.datatype.as_str() {
            "BYTES" => "TYPE_STRING".into(),
            other => format!("TYPE_{other}"),
        },
        dims: tensor.shape.iter().skip(usize::from(batched)).copied().collect(),
    };
    ModelConfig {
        name: metadata.name.clone(),
        platform: metadata.platform.clone(),
        // Without a stated bound any batch size is accepted; Triton's clients need a positive number to send batches.
        max_batch_size: if batched { i32::from(u16::MAX) } else { 0 },
        input: metadata.inputs.iter().map(tensor).collect(),
        output: metadata.outputs.iter().map(tensor).collect(),
        ..ModelConfig::default()
    }
}

/// The instances of a pool, with their statements about the model.
///
/// A pool has one limit of rows and one file of its model in effect. Instances may differ while they are updated, so the
/// smallest limit counts, and a model of several files is not coded: parities of one file do not fit predictions of another.
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
}

/// Statements of all instances of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statements {
    /// The smallest maximum of rows per batch.
    pub(crate) most: Option<u16>,
    /// Digests of the model's files.
    pub(crate) files: Files,
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
        self.enrolled.lock().insert(instance, Enrolment { works: true, whole, most, digest });
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
        Statements {
            most: members.values().filter_map(|member| member.most).min(),
            files: members.values().filter_map(|member| member.digest.clone()).collect(),
        }
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
