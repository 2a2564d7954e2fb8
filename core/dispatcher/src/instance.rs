//! An instance: a server that runs models, with its slots, its jobs and its speed for each model.

use parm_shares::Charge;
use slotmap::new_key_type;
use smallvec::SmallVec;

use crate::Time;
use crate::asks::Want;
use crate::condition::Watch;
use crate::dispatcher::Models;
use crate::estimate::{Concurrency, Speed};
use crate::health::Health;
use crate::model::{Model, ModelKey};
use crate::query::{JobKey, QueryKey, Why};
use crate::site::Site;
use crate::turns::Payer;

new_key_type! {
    /// The name of an instance from its join until it leaves. It is never given twice.
    pub struct InstanceKey;
}

/// What an instance offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceSpec {
    /// The models that it runs.
    pub models: Vec<Offered>,
    /// The jobs that it may have at a time.
    pub slots: u16,
    /// Whether it is a server of unknown kind: `slots` are the most, and how many jobs it runs best at a time is learned.
    pub learns: bool,
    /// Where it is.
    pub site: Site,
}

/// A model that an instance runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offered {
    /// The model.
    pub model: ModelKey,
    /// The jobs of this model that it may have at a time, if these are fewer than its slots: a server that makes batches of
    /// one model itself takes many jobs of that one only.
    pub at_once: Option<u16>,
}

impl InstanceSpec {
    /// One that may have so many jobs at a time, of any of these models.
    pub fn new(models: impl IntoIterator<Item = ModelKey>, slots: u16) -> Self {
        let models = models.into_iter().map(|model| Offered { model, at_once: None }).collect();
        Self { models, slots, ..Self::default() }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Instance {
    pub(crate) serves: SmallVec<[Served; 2]>,
    /// The jobs that it may have now, and the most.
    pub(crate) slots: u16,
    pub(crate) most: u16,
    /// What decides how many it may have, if that is learned.
    pub(crate) concurrency: Option<Concurrency>,
    /// The running jobs, the oldest first.
    pub(crate) jobs: SmallVec<[JobKey; 4]>,
    pub(crate) site: Site,
    /// Its condition, as operators see it.
    pub(crate) watch: Watch,
    /// Unused grants, if several frontends use it.
    pub(crate) grants: Option<u16>,
    /// The ask that it knows.
    pub(crate) told: Option<Want>,
    /// Whether it gets no new job, because it drains or an operator holds it.
    pub(crate) held: bool,
    /// The calendar's next look at this instance.
    pub(crate) look: Time,
}

/// A model at an instance.
#[derive(Debug, Default)]
pub(crate) struct Served {
    pub(crate) model: ModelKey,
    /// Jobs of the model at a time.
    pub(crate) at_once: u16,
    pub(crate) speed: Speed,
    pub(crate) health: Health,
    /// How much slower than usual a run is expected to be here, as a logarithm: what the speed says, and for a stand-in what
    /// that of its model says. It runs seldom, and what slows the one slows the other.
    pub(crate) slower: f32,
    /// The factor that it stands for.
    pub(crate) factor: f32,
    /// Whether it is a stand-in of another model here.
    pub(crate) follows: bool,
    /// When the last run of the model began.
    pub(crate) ran_at: Time,
    /// Whether the model's set of free instances lists it.
    pub(crate) listed: bool,
}

/// A run of a model at an instance.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) model: ModelKey,
    pub(crate) instance: InstanceKey,
    /// The queries of its rows that wait for it; `None` for an exploring copy, and once a query has its answer.
    pub(crate) rows: SmallVec<[Option<QueryKey>; 1]>,
    /// Rows times the size of the largest one.
    pub(crate) work: u32,
    pub(crate) why: Why,
    pub(crate) payer: Payer,
    /// What the payer was charged, if a book is kept.
    pub(crate) charge: Option<Charge>,
    pub(crate) began: Time,
    /// The jobs at its instance when it began, itself included.
    pub(crate) beside: usize,
    /// How many times as long as alone it takes beside them.
    pub(crate) crowd: f32,
}

impl Instance {
    pub(crate) fn has_room(&self) -> bool {
        self.jobs.len() < usize::from(self.slots) && self.grants != Some(0)
    }

    pub(crate) fn models(&self) -> Models {
        self.serves.iter().map(|served| served.model).collect()
    }

    /// The jobs that it may have.
    pub(crate) fn limit(&self) -> u16 {
        self.concurrency.as_ref().map_or(self.most, |known| known.limit(self.most))
    }

    /// Takes note of how fast a model is here, for its stand-in too.
    pub(crate) fn set_slower(&mut self, key: ModelKey, model: &Model) {
        let Some(own) = self.of_mut(key) else { return };
        let slower = own.speed.slower(model.times.median, model.times.deviation);
        if !own.follows && own.slower != slower {
            (own.slower, own.factor) = (slower, slower.exp());
        }
        let (slower, factor) = (own.slower, own.factor);
        if let Some(stand_in) = model.settings.stand_in.and_then(|key| self.of_mut(key)) {
            (stand_in.slower, stand_in.factor, stand_in.follows) = (slower, factor, true);
        }
    }

    /// Whether it may get queries for a model.
    pub(crate) fn takes(&self, model: ModelKey) -> bool {
        !self.held && self.of(model).is_some_and(|served| served.health.in_service())
    }

    /// A run shows whether a model that is out of service here works again, and with it those that are out for the same silence.
    pub(crate) fn begin_trial(&mut self, now: Time, model: ModelKey) {
        let is_silent = self.of(model).is_some_and(|served| served.health.is_silent());
        for served in self.serves.iter_mut().filter(|served| !served.health.in_service()) {
            if served.model == model || (is_silent && served.health.is_silent()) {
                served.health.begin_trial(now);
            }
        }
    }

    pub(crate) fn of(&self, model: ModelKey) -> Option<&Served> {
        self.serves.iter().find(|served| served.model == model)
    }

    pub(crate) fn of_mut(&mut self, model: ModelKey) -> Option<&mut Served> {
        self.serves.iter_mut().find(|served| served.model == model)
    }
}
