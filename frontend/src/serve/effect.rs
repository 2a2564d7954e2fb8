//! What is left to do once the lock is let go.

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

/// What one event leads to; most lead to few.
pub(super) type Effects = SmallVec<[Effect; 4]>;

/// One thing to do outside of the lock.
pub(super) enum Effect {
    /// Send a job to its instance.
    Launch(Launch),
    /// Wake a request's handler.
    Tell(oneshot::Sender<Verdict>, Verdict),
    /// Tell an instance what is wished of its tokens.
    Wish(Arc<Instance>, Order<Wish>),
    /// Find out whether an instance works, with one pool's model or with all of them.
    Probe(Arc<Instance>, Option<PoolId>),
    /// Encode a group, decode a prediction, compare some.
    Code(Box<Work>),
    /// Set the alarm, in this turn.
    Wake(Time, u64),
    /// Free what may hold many bytes.
    Discard(#[allow(dead_code)] Garbage), // held for the sake of its drop
}

/// What is only dropped.
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
