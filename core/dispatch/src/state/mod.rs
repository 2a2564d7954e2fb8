//! State of the dispatcher: queries, jobs, groups, instances and pools.
//!
//! This layer holds data and its invariants. It decides nothing and sends nothing to the driver.
//!
//! # Live keys
//!
//! - A query keeps its pool (`unanswered`), and names only live jobs.
//! - A job keeps its pool (`running`) until it is done. Its instance may leave before it.
//! - A group keeps its pool: it is finished when the pool is removed.
//! - An instance and the pools that it serves name each other until one of them is removed.
//!
//! Keys of timers, queues, extra jobs and members of groups may outlive their values, and `get` finds nothing
//! under them.

pub(crate) mod arena;
pub(crate) mod extra;
pub(crate) mod group;
pub(crate) mod idle;
pub(crate) mod instance;
pub(crate) mod job;
pub(crate) mod keys;
pub(crate) mod names;
pub(crate) mod pool;
pub(crate) mod query;
pub(crate) mod queue;
pub(crate) mod reservations;
pub(crate) mod shelf;
pub(crate) mod stand_ins;
pub(crate) mod timers;
pub(crate) mod tokens;
pub(crate) mod versions;

use parm_shares::Book;

use crate::api::{InstanceId, Payer, PoolId, QueryId, Settings};
use crate::measure::health::Health;
use crate::state::arena::Arena;
use crate::state::group::Group;
use crate::state::instance::Instance;
use crate::state::job::Job;
use crate::state::keys::{InstanceKey, OfGroup, OfInstance, OfJob, OfPool, OfQuery, PoolKey};
use crate::state::names::Names;
use crate::state::pool::Pool;
use crate::state::query::Query;
use crate::state::shelf::Shelf;
use crate::state::timers::Timers;
use crate::state::versions::Versions;

/// The state between two events.
pub(crate) struct State {
    pub(crate) settings: Settings,
    pub(crate) queries: Arena<OfQuery, Query>,
    pub(crate) query_names: Names<QueryId, OfQuery>,
    pub(crate) jobs: Arena<OfJob, Job>,
    pub(crate) groups: Arena<OfGroup, Group>,
    pub(crate) instances: Arena<OfInstance, Instance>,
    pub(crate) instance_names: Names<InstanceId, OfInstance>,
    pub(crate) pools: Arena<OfPool, Pool>,
    pub(crate) pool_names: Names<PoolId, OfPool>,
    pub(crate) timers: Timers,
    pub(crate) shelf: Shelf,
    /// Instances that give tokens.
    pub(crate) token_givers: u32,
    /// Those of them that other frontends share, so that jobs need a token.
    pub(crate) shared_givers: u32,
    /// Instances at which other frontends hold jobs.
    pub(crate) crowded: u32,
    /// Instances whose home is another frontend.
    pub(crate) abroad: u32,
    /// Pools with reservations.
    pub(crate) asking: Vec<PoolKey>,
    pub(crate) versions: Versions,
    /// Pools whose instances changed or may hold more: their waiting work may find room.
    pub(crate) unplaced: Vec<PoolKey>,
    /// Accounts of the instances' time by payer.
    pub(crate) book: Book<Payer, PoolId>,
    /// The number of the last reservation.
    pub(crate) noted: u32,
    /// Queries are traced.
    pub(crate) traced: bool,
    /// State of the random numbers.
    random: u64,
}

impl State {
    pub(crate) fn new(settings: Settings, seed: u64) -> Self {
        let mut book = Book::default();
        settings.shares.iter().for_each(|(share, terms)| book.promise(&Payer::Share(*share), *terms));
        Self {
            settings,
            queries: Arena::new(),
            query_names: Names::new(),
            jobs: Arena::new(),
            groups: Arena::new(),
            instances: Arena::new(),
            instance_names: Names::new(),
            pools: Arena::new(),
            pool_names: Names::new(),
            timers: Timers::new(),
            shelf: Shelf::default(),
            token_givers: 0,
            shared_givers: 0,
            crowded: 0,
            abroad: 0,
            asking: Vec::new(),
            versions: Versions::default(),
            unplaced: Vec::new(),
            book,
            noted: 0,
            traced: false,
            random: seed,
        }
    }

    /// The instance of this name.
    pub(crate) fn instance(&self, id: InstanceId) -> Option<&Instance> {
        self.instances.get(self.instance_names.get(id)?)
    }

    /// The record of an instance, or of a pool's model on it.
    pub(crate) fn health_mut(&mut self, key: InstanceKey, of: Option<PoolKey>) -> Option<&mut Health> {
        let instance = self.instances.get_mut(key)?;
        let Some(pool) = of else { return Some(&mut instance.health) };
        instance.serves.iter_mut().find(|serves| serves.pool == pool).map(|serves| &mut serves.health)
    }

    /// A random number in 0..1 (SplitMix64).
    pub(crate) fn random(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.random ^ self.random >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ mixed >> 31) >> 11) as f64 / (1u64 << 53) as f64
    }
}
