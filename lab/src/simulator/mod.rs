//! Predicts the tail latency of a policy without a cluster: a [`Run`] in the virtual [`world`] becomes a [`Tally`].
//! A run of a rival, with several frontends, or with messages that take time, is a run of [`rivals`](crate::world::rivals).
//!
//! Choosing runs and interpreting tallies is left to `experiments` and `tuner`.

mod tally;

use std::num::NonZeroU16;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parm_dispatcher::{Action, By, ModelKey, Reject, Time, Why};
use parm_settings::{Cost, InForce, ModelRole, PolicyKind, PoolSettings};
use parm_workload::Faults;
pub use parm_workload::Outcome;
use parm_workload::arrivals::Arrivals;
use parm_workload::service::Service;
pub use tally::Tally;

use crate::Error;
pub use crate::world::Lengths;
use crate::world::rivals::{Ended, Rival, Setup, Simulated};
use crate::world::{self, Coded, Event, Plan, Reply, World};

/// Everything that determines a run: equal runs have equal results.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Seed of arrivals, service times and faults.
    pub seed: u64,
    /// Queries that arrive.
    pub queries: u64,
    /// The first queries, which are not counted.
    pub warm_up: u64,
    /// When they arrive.
    pub arrivals: Arrivals,
    /// The faults.
    pub faults: Faults,
    /// The service times of instances.
    pub service: Service,
    /// The backup model's time as a share of the deployed model's.
    pub backup_share: f64,
    /// A parity model's time for a group, as the same share.
    pub parity_share: f64,
    /// The time of a stand-in's jobs, as a share of a query's time on the deployed model.
    pub stand_in: Cost,
    /// The instances. The policy keeps as many of the last ones for parities or backups as it needs.
    pub instances: u32,
    /// Jobs that an instance holds: one runs, the others wait there.
    pub slots: u16,
    /// The policy and all other settings of the dispatcher.
    pub settings: PoolSettings,
    /// What distributes the queries instead of parm.
    pub rival: Option<Rival>,
    /// Frontends of parm, or clients of a rival. Each gets queries at random.
    pub frontends: u32,
    /// What is between them and the instances.
    pub simulated: Simulated,
    /// How long a query may wait for its answer.
    pub deadline: Duration,
    /// How batches treat queries of unequal lengths.
    pub lengths: Lengths,
}

impl Run {
    /// A run of a hundred thousand queries, whose models take as long as the paper's where they do not say otherwise.
    pub fn new(arrivals: Arrivals, faults: Faults, instances: u32, settings: PoolSettings) -> Self {
        Self {
            seed: 1,
            queries: 100_000,
            warm_up: 0,
            arrivals,
            faults,
            service: Service::default(),
            backup_share: 0.5,
            parity_share: 1.0,
            stand_in: Cost::linear(0.25),
            instances,
            slots: 1,
            settings,
            rival: None,
            frontends: 1,
            simulated: Simulated::default(),
            deadline: Duration::from_secs(10),
            lengths: Lengths::default(),
        }
    }

    /// Simulates the run.
    pub fn simulate(&self, progress: &dyn Progress) -> Result<Tally, Error> {
        self.watched(progress, &mut |_| {})
    }

    /// The same, with the end of each query.
    pub fn watched(&self, progress: &dyn Progress, sees: &mut dyn FnMut(Answered)) -> Result<Tally, Error> {
        if self.warm_up >= self.queries {
            return Err(Error::AllWarmUp { warm_up: self.warm_up, queries: self.queries });
        }
        if self.has_clients() { self.among_clients(progress, sees) } else { self.in_world(progress, sees) }
    }

    /// Whether the virtual world of the tests is too simple for it.
    pub(crate) fn has_clients(&self) -> bool {
        self.rival.is_some() || self.frontends > 1 || self.simulated != Simulated::default()
    }

    fn in_world(&self, progress: &dyn Progress, sees: &mut dyn FnMut(Answered)) -> Result<Tally, Error> {
        let mut world = self.world()?;
        let mut tally = Tally::new(self.queries - self.warm_up, self.deadline);
        let mut arrived = 0_u64;
        while world.advance() {
            for event in world.log.drain(..) {
                match event {
                    Event::Arrived(_, query) if query.model == world.model => {
                        arrived += 1;
                        if arrived.is_multiple_of(REPORT_EVERY) {
                            progress.advanced(REPORT_EVERY);
                        }
                    }
                    Event::Asks(Action::Run { model, why, rows, .. }) => {
                        let is_necessary = model == world.model && matches!(why, Why::First | Why::Retry);
                        let share = world.costs.get(&model).map_or(1.0, |cost| cost(rows.len()));
                        tally.started(is_necessary, share);
                    }
                    _ => {}
                }
            }
            for reply in world.replies.drain(..) {
                let answered = self.answered(&reply);
                self.count(answered, &mut tally);
                sees(answered);
            }
        }
        progress.advanced(arrived % REPORT_EVERY);
        tally.finish(world.busy, u64::from(self.instances) * world.now.as_nanos());
        Ok(tally)
    }

    fn among_clients(&self, progress: &dyn Progress, sees: &mut dyn FnMut(Answered)) -> Result<Tally, Error> {
        let role = ModelRole::StandIn { max_rows: NonZeroU16::MAX };
        let of_stand_in = self.settings.model_settings(&InForce::as_wished(&self.settings), role);
        let setup = Setup {
            rival: self.rival,
            stand_in: (of_stand_in, self.stand_in),
            simulated: self.simulated,
            clients: self.frontends,
            grants: self.frontends > 1,
            ..Setup::new(self.plan())
        };
        let report = setup.run()?;
        let mut tally = Tally::new(self.queries - self.warm_up, self.deadline);
        for (number, Ended { arrived, latency, outcome }) in (0..).zip(report.queries) {
            let counted = number >= self.warm_up;
            let answered = Answered { number, counted, arrived, latency, outcome, members: 0, wrong: false };
            self.count(answered, &mut tally);
            sees(answered);
        }
        tally.started(true, report.needed);
        tally.started(false, report.extra);
        let lanes = u64::from(self.simulated.lanes.get());
        let length = report.end.since(Time::ZERO).as_nanos() as u64;
        tally.finish(report.busy, u64::from(self.instances) * lanes * length);
        progress.advanced(self.queries);
        Ok(tally)
    }

    fn count(&self, answered: Answered, tally: &mut Tally) {
        let Answered { number, counted, latency, outcome, wrong, .. } = answered;
        if counted {
            tally.ended(number - self.warm_up, latency, outcome, wrong);
        }
    }

    fn answered(&self, reply: &Reply) -> Answered {
        let Reply { query, arrived, at, result, members } = reply;
        let outcome = match result {
            Ok(answer) => match answer.by {
                By::Model => Outcome::Exact,
                By::Copy => Outcome::Hedged,
                By::Reconstruction => Outcome::Reconstructed,
                By::StandIn if self.settings.policy == PolicyKind::ApproximateBackup => Outcome::Backup,
                By::StandIn => Outcome::StandIn,
            },
            Err(Reject::Deadline | Reject::Overload) if self.settings.default_answer => Outcome::Default,
            Err(_) => Outcome::Failed,
        };
        let number = query.payload;
        Answered {
            number,
            counted: number >= self.warm_up,
            arrived: *arrived,
            latency: at.since(*arrived).as_nanos() as u64,
            outcome,
            members: if outcome == Outcome::Reconstructed { *members as u8 } else { 0 },
            wrong: result.is_ok_and(|answer| answer.output != number),
        }
    }

    /// Its plan, with a stand-in whose settings and cost are still those of the model.
    fn plan(&self) -> Plan {
        let in_force = InForce::as_wished(&self.settings);
        let settings = self.settings.model_settings(&in_force, ModelRole::Deployed { stand_in: None });
        Plan {
            seed: self.seed,
            queries: self.queries,
            warm_up: self.warm_up,
            arrivals: self.arrivals.clone(),
            faults: self.faults.clone(),
            service: self.service.clone(),
            instances: self.instances,
            slots: self.slots,
            settings,
            second: None,
            stand_in_cost: settings.policy.stand_in.map(|_| 1.0),
            coding: self.settings.coding_settings(&in_force),
            apart: self.settings.dedicated_instances(&in_force, self.instances as usize) as u32,
            deadline: self.deadline,
        }
    }

    /// The world of the run at its beginning, to look at what happens there.
    pub fn world(&self) -> Result<World, Error> {
        let in_force = InForce::as_wished(&self.settings);
        let mut world = World::new(&self.plan())?;
        let of_model = |share: f64| {
            let service = self.service.clone();
            Box::new(move |rows| share * service.rows(rows)) as world::Cost
        };
        if let Some(model) = world.stand_in {
            let (role, cost) = (ModelRole::StandIn { max_rows: NonZeroU16::MAX }, self.stand_in);
            world.dispatcher.configure(Time::ZERO, model, self.settings.model_settings(&in_force, role));
            let is_backup = in_force.policy == PolicyKind::ApproximateBackup;
            let cost =
                if is_backup { of_model(self.backup_share) } else { Box::new(move |rows| cost.of(rows)) };
            world.costs.insert(model, cost);
        }
        if let Some(coded) = &mut world.coded {
            (coded.encode, coded.decode) = (ENCODE, DECODE);
        }
        world.lengths = self.lengths;
        let parities: Vec<ModelKey> = world.coded.iter().flat_map(Coded::models).collect();
        world.costs.extend(parities.into_iter().map(|model| (model, of_model(self.parity_share))));
        Ok(world)
    }
}

/// Arrivals between two reports of progress.
const REPORT_EVERY: u64 = 1 << 14;

/// The paper's medians for a group of two queries of 224x224x3 and for one prediction, off the dispatch path.
const ENCODE: Duration = Duration::from_micros(93);
const DECODE: Duration = Duration::from_micros(8);

/// A query's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Its number, counted from 0 with the warm-up.
    pub number: u64,
    /// Whether it is counted, because it is not of the warm-up.
    pub counted: bool,
    /// When it arrived.
    pub arrived: Time,
    /// Nanoseconds from its arrival.
    pub latency: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// Members of the group of a reconstruction; otherwise 0.
    pub members: u8,
    /// Whether the answer is wrong because of the fault schedule.
    pub wrong: bool,
}

/// Receives the progress of runs from several threads.
pub trait Progress: Send + Sync {
    /// Reports that this many more queries have arrived.
    fn advanced(&self, queries: u64);
}

/// Ignores progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Progress for Quiet {
    fn advanced(&self, _queries: u64) {}
}

/// Returns what `work` gives for each number below `count`, in order, from this many threads: the result does not depend on
/// their number. After an error no further work begins, and the error of the least number is returned.
pub(crate) fn parallel<T: Send, E: Send>(
    count: usize,
    threads: usize,
    work: impl Fn(usize) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let next = AtomicUsize::new(0);
    let one = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return done;
            }
            let result = work(index);
            if result.is_err() {
                next.store(count, Ordering::Relaxed);
            }
            done.push((index, result));
        }
    };
    let mut all: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.clamp(1, count.max(1))).map(|_| scope.spawn(one)).collect();
        let done =
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        done.flatten().collect()
    });
    all.sort_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use parm_workload::{Pattern, Scenario};

    use super::*;

    #[test]
    fn parm_is_the_same_in_both_simulations() {
        for (policy, profile) in [
            (PolicyKind::Equal, "sick"),
            (PolicyKind::Hedge, "A+hang"),
            (PolicyKind::StandIn, "B"),
            (PolicyKind::StandIn, "sick+lengths"),
        ] {
            let scenario = Scenario::named(profile).unwrap();
            let settings = PoolSettings { policy, ..PoolSettings::default() };
            let arrivals = scenario.at(Pattern::Poisson, 420.0);
            let run = Run { queries: 20_000, ..Run::new(arrivals, scenario.faults.clone(), 12, settings) };
            let (mut one, mut other) = (Vec::new(), Vec::new());
            run.in_world(&Quiet, &mut |answered| one.push(answered)).unwrap();
            run.among_clients(&Quiet, &mut |answered| other.push(answered)).unwrap();
            one.sort_by_key(|answered| answered.number);
            // There, a query without an answer is as late as its deadline.
            let late = |it: &Answered| {
                it.latency.max(if it.outcome == Outcome::Failed { 10_000_000_000 } else { 0 })
            };
            let latencies = |of: &[Answered]| of.iter().map(late).collect::<Vec<_>>();
            assert_eq!(latencies(&one), latencies(&other), "{profile}");
        }
    }
}
