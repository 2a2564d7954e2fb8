//! Effects of an event that are executed after the lock is released.

use std::sync::Arc;

use parm_dispatch::{PoolId, Time};
use parm_protocol::fleet::Wish;
use parm_tokens::Order;
use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::coding::{Group, Work};
use super::driver::Driver;
use super::inputs::Inputs;
use super::instance::Instance;
use super::job::{self, Launch};
use super::ledger::{Call, Running, Verdict};
use super::probe;

/// Effects of one event; usually few.
pub(super) type Effects = SmallVec<[Effect; 4]>;

/// An effect outside of the lock.
pub(super) enum Effect {
    /// Send a job to its instance.
    Launch(Launch),
    /// Wake a request's handler.
    Tell(oneshot::Sender<Verdict>, Verdict),
    /// Send a token order to an instance.
    Wish(Arc<Instance>, Order<Wish>),
    /// Probe an instance with one pool's model or with all of them.
    Probe(Arc<Instance>, Option<PoolId>),
    /// Encode a group, decode a prediction or compare some.
    Code(Box<Work>),
    /// Set the alarm, in this turn.
    Wake(Time, u64),
    /// Free memory that may be large.
    Discard(#[allow(dead_code)] Garbage), // held for the sake of its drop
}

/// Values that are only dropped.
#[allow(dead_code)] // held for the sake of its drop
pub(super) enum Garbage {
    Call(Call),
    Inputs(Arc<Inputs>),
    Job(Running, SmallVec<[Arc<Inputs>; 1]>),
    Group(Box<Group>),
}

impl Effect {
    pub(super) fn act(self, driver: &Arc<Driver>) {
        match self {
            Self::Launch(launch) => job::launch(driver, launch),
            Self::Tell(told, verdict) => {
                // The client may have gone away just now; its guard cleans up.
                let _ = told.send(verdict);
            }
            Self::Code(work) => work.start(driver),
            Self::Wish(instance, order) => instance.client.tell(order),
            Self::Probe(instance, pool) => probe::send(driver, instance, pool),
            Self::Wake(..) | Self::Discard(_) => {}
        }
    }
}
