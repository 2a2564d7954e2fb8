//! A query: a row of a request, with its attempts and with the approximate answer that is ready for it.

use std::ops::Deref;

use slotmap::new_key_type;
use smallvec::SmallVec;

use crate::Time;
use crate::counters::Limits;
use crate::instance::InstanceKey;
use crate::model::ModelKey;
use crate::policy::Policy;
use crate::turns::{Payer, ShareKey};

new_key_type! {
    /// The name of a query, from its submission until its reply. It is never given twice.
    pub struct QueryKey;
    /// The name of a job, a run of a model at an instance. It is never given twice.
    pub struct JobKey;
}

/// A query as the caller submits it.
#[derive(Clone, Debug)]
pub struct Submission<P> {
    /// The model that should answer.
    pub model: ModelKey,
    /// What the model runs on.
    pub payload: P,
    /// When the query ends without an answer.
    pub deadline: Time,
    /// Which answers the client takes.
    pub accept: Accept,
    /// Which other rows may share a job with it.
    pub shape: Shape,
    /// The configured share that pays for it. Without one its model pays.
    pub share: Option<ShareKey>,
    /// Its priority among the queries of its payer; the least is served first.
    pub priority: u8,
    /// Whether it uses idle instances only: comparisons, and parities that share instances with queries. Nobody waits for them.
    pub background: bool,
    /// In the background: instances that it should not fail together with, such as those of the members whose parity it is.
    pub apart_from: Vec<InstanceKey>,
}

impl<P> Submission<P> {
    /// A query of one usual row that takes any answer.
    pub fn new(model: ModelKey, payload: P, deadline: Time) -> Self {
        Self {
            model,
            payload,
            deadline,
            accept: Accept::Any,
            shape: Shape::default(),
            share: None,
            priority: 0,
            background: false,
            apart_from: Vec::new(),
        }
    }
}

/// What decides which rows may share a job, namely those of one shape, and how long a run of them takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// A name of its dimensions.
    pub name: u32,
    /// The size of the row in any unit, as far as the run takes longer for it; 1 if it does not.
    pub size: u32,
}

impl Default for Shape {
    fn default() -> Self {
        Self { name: 0, size: 1 }
    }
}

/// Which answers a client takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accept {
    /// The model's own and approximate ones.
    #[default]
    Any,
    /// The model's own.
    Exact,
    /// Any, but approximate ones for at most so many thousandths of the queries of its payer with this bound in any minute. Of
    /// a model without stand-in its own only, because reconstructions are not counted.
    AtMost(u16),
}

impl Accept {
    /// Whether only the model's own answer is taken. Reconstructions are not counted, so who bounds approximate answers gets none
    /// of them.
    pub(crate) fn is_exact(self, policy: &Policy) -> bool {
        match self {
            Accept::Any => false,
            Accept::Exact => true,
            Accept::AtMost(_) => policy.stand_in.is_none(),
        }
    }
}

/// The answer of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<O> {
    /// What it says.
    pub output: O,
    /// Who says it.
    pub by: By,
}

/// Who gives an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The model that was asked, perhaps after failed runs.
    Model,
    /// The same, in a hedge or a replica.
    Copy,
    /// The model's stand-in.
    StandIn,
    /// A decoder, from the answers of other queries and a parity.
    Reconstruction,
}

impl By {
    /// Whether the model that was asked did not give it.
    pub fn is_approximate(self) -> bool {
        matches!(self, By::StandIn | By::Reconstruction)
    }
}

/// Why a query ends without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reject {
    /// Its deadline passed.
    Deadline,
    /// An attempt failed, and no other is permitted by their number, the policy or the budget of retries.
    Failed(Failure),
    /// As many queries of its payer wait as the model's queue limit allows, and it is the last of the least urgent, or new and no more
    /// urgent than they.
    QueueFull,
    /// The deadline cannot be met: more queries wait than the model has slots, and hardly a run is left.
    Overload,
    /// No instance runs the model, or each that does is held.
    NoInstance,
    /// The request is at fault: an instance refused it, or the model failed on it at two instances, or twice where no other can be tried.
    BadQuery,
}

/// Why a job failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The connection broke or the server is gone.
    Instance,
    /// The instance did not get the job, so another may run it even if it must not run twice.
    Unsent,
    /// The server answered that the model failed. The instance is at fault if another one answers the query.
    Model,
    /// The request is at fault: no instance would answer it.
    Query,
    /// The job did not begin, because its query can no longer run again: its client has sent too much to hold.
    Withheld,
}

/// Why an attempt is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// No attempt at the model's own answer runs, waits or has failed.
    First,
    /// All earlier attempts failed.
    Retry,
    /// A copy pays, because the earlier attempts are late.
    Hedge,
    /// A cheaper model may answer: the query is late, may not be tried again, or its policy runs that model beside each query.
    StandIn,
    /// An instance that is slow and idle, or out of service, shows whether it still is. No query waits for it.
    Explore,
    /// The policy starts several runs of each query at once.
    Copy,
}

/// A query in the dispatcher's books: what was submitted, and what became of it.
#[derive(Debug)]
pub(crate) struct Query<P, O> {
    pub(crate) asked: Submission<P>,
    pub(crate) payer: Payer,
    pub(crate) arrived: Time,
    /// Whether it shares no job any more, because a job that it shared failed.
    pub(crate) alone: bool,
    /// What has kept it back so far.
    pub(crate) limits: Limits,
    pub(crate) attempts: SmallVec<[Attempt; 2]>,
    /// An approximate answer that is held back for a moment, because the exact one may still come.
    pub(crate) offer: Option<Answer<O>>,
    /// The calendar's next look at this query.
    pub(crate) look: Time,
    /// The earliest entry of the calendar for it.
    pub(crate) noted: Time,
    /// Whether the loop will ask for its next step.
    pub(crate) marked: bool,
}

/// A query's place in a job, or its wish for one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) model: ModelKey,
    pub(crate) why: Why,
    pub(crate) state: AttemptState,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum AttemptState {
    /// Waits for an instance.
    Wanted,
    /// Was sent to an instance, where it runs or waits in the instance's own queue.
    Running { job: JobKey, instance: InstanceKey, began: Time },
    /// Failed at an instance. An attempt that succeeds ends the query or becomes its offer.
    Failed { instance: InstanceKey, at: Time, failure: Failure },
    /// Ended in another way: it was withdrawn, its answer became the offer, or its batch failed and the query runs again alone.
    Over,
}

/// What decides the place of a query in line: its payer, its priority, and whether it is background.
pub(crate) type InLine = (Payer, u8, bool);

impl<P, O> Deref for Query<P, O> {
    type Target = Submission<P>;

    fn deref(&self) -> &Submission<P> {
        &self.asked
    }
}

impl<P, O> Query<P, O> {
    pub(crate) fn new(asked: Submission<P>, arrived: Time) -> Self {
        Self {
            payer: asked.share.map_or(Payer::Model(asked.model), Payer::Share),
            asked,
            arrived,
            alone: false,
            limits: Limits::default(),
            attempts: SmallVec::new(),
            offer: None,
            look: Time::MAX,
            noted: Time::MAX,
            marked: false,
        }
    }

    pub(crate) fn in_line(&self) -> InLine {
        (self.payer, self.priority, self.background)
    }

    /// Whether nothing answers it but an attempt that has not begun.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.offer.is_none() && self.attempts.iter().filter(|own| own.is_live()).count() == 1
    }

    /// The attempts that run on the model that the client asked.
    pub(crate) fn exact(&self) -> impl Iterator<Item = &Attempt> {
        self.attempts.iter().filter(|attempt| attempt.model == self.model)
    }

    /// The attempt that waits for an instance with this model.
    pub(crate) fn wanted(&self, model: ModelKey) -> Option<usize> {
        self.attempts.iter().position(|attempt| attempt.model == model && attempt.is_wanted())
    }

    /// Whether one of its attempts runs at an instance.
    pub(crate) fn is_at(&self, instance: InstanceKey) -> bool {
        self.attempts.iter().filter_map(Attempt::running).any(|(_, at, _)| at == instance)
    }

    /// The instances at which the model failed on this query, each as often as it did.
    pub(crate) fn model_failures(&self) -> SmallVec<[InstanceKey; 4]> {
        let at = self.exact().filter_map(|attempt| match attempt.state {
            AttemptState::Failed { instance, failure: Failure::Model, .. } => Some(instance),
            _ => None,
        });
        at.collect()
    }

    /// When an attempt failed at an instance.
    pub(crate) fn failed_at(&self, instance: InstanceKey) -> Option<Time> {
        self.attempts.iter().rev().find_map(|attempt| match attempt.state {
            AttemptState::Failed { instance: at, at: when, .. } if at == instance => Some(when),
            _ => None,
        })
    }
}

impl Attempt {
    pub(crate) fn is_wanted(&self) -> bool {
        matches!(self.state, AttemptState::Wanted)
    }

    pub(crate) fn is_live(&self) -> bool {
        matches!(self.state, AttemptState::Wanted | AttemptState::Running { .. })
    }

    pub(crate) fn running(&self) -> Option<(JobKey, InstanceKey, Time)> {
        match self.state {
            AttemptState::Running { job, instance, began } => Some((job, instance, began)),
            _ => None,
        }
    }

    pub(crate) fn failure(&self) -> Option<Failure> {
        match self.state {
            AttemptState::Failed { failure, .. } => Some(failure),
            _ => None,
        }
    }
}
