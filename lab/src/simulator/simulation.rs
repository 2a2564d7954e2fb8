//! A run in the virtual world: what happens there becomes a tally, and a watcher sees it.

use std::mem;
use std::num::NonZeroU16;
use std::time::Duration;

use crate::world::{Coded, Cost, Event, Plan, Reply, World};
use parm_dispatcher::{Action, By, ModelKey, Reject, Time, Why};
use parm_settings::{InForce, ModelRole, PolicyKind};
use parm_workload::Outcome;

use crate::Error;
use crate::simulator::{Progress, Run, Tally};

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

/// A run in progress.
pub(crate) struct Simulation<'a> {
    run: &'a Run,
    world: World,
    tally: Tally,
    watcher: Option<&'a mut dyn FnMut(Answered)>,
    arrived: u64,
    most_unanswered: usize,
}

/// Arrivals between two reports of progress.
const REPORT_EVERY: u64 = 1 << 14;

/// The paper's medians for a group of two queries of 224x224x3 and for one prediction, off the dispatch path.
const ENCODE: Duration = Duration::from_micros(93);
const DECODE: Duration = Duration::from_micros(8);

impl<'a> Simulation<'a> {
    pub(crate) fn new(run: &'a Run, watcher: Option<&'a mut dyn FnMut(Answered)>) -> Result<Self, Error> {
        Ok(Self {
            run,
            world: world(run)?,
            tally: Tally::new(run.queries - run.warm_up, run.deadline),
            watcher,
            arrived: 0,
            most_unanswered: 0,
        })
    }

    /// Runs until every query has arrived and has its reply.
    pub(crate) fn run(mut self, progress: &dyn Progress) -> Result<Tally, Error> {
        let (mut events, mut replies) = (Vec::new(), Vec::new());
        while self.world.advance() {
            mem::swap(&mut self.world.log, &mut events);
            events.drain(..).for_each(|event| self.happened(event, progress));
            mem::swap(&mut self.world.replies, &mut replies);
            replies.drain(..).for_each(|reply| self.replied(&reply));
        }
        progress.advanced(self.arrived % REPORT_EVERY);
        let capacity = u64::from(self.run.instances) * self.world.now.as_nanos();
        self.tally.finish(self.world.busy, capacity, self.most_unanswered);
        Ok(self.tally)
    }

    fn happened(&mut self, event: Event, progress: &dyn Progress) {
        match event {
            Event::Arrived(_, query) if query.model == self.world.model => {
                self.arrived += 1;
                self.most_unanswered = self.most_unanswered.max(self.world.open.len());
                if self.arrived.is_multiple_of(REPORT_EVERY) {
                    progress.advanced(REPORT_EVERY);
                }
            }
            Event::Asks(Action::Run { model, why, rows, .. }) => {
                let is_necessary = model == self.world.model && matches!(why, Why::First | Why::Retry);
                let share = self.world.costs.get(&model).map_or(1.0, |cost| cost(rows.len()));
                self.tally.started(is_necessary, share);
            }
            _ => {}
        }
    }

    fn has_backup(&self) -> bool {
        self.run.settings.policy == PolicyKind::ApproximateBackup
    }

    fn replied(&mut self, reply: &Reply) {
        let Reply { query, arrived, at, result, members } = reply;
        let outcome = match result {
            Ok(answer) => match answer.by {
                By::Model => Outcome::Exact,
                By::Copy => Outcome::Hedged,
                By::Reconstruction => Outcome::Reconstructed,
                By::StandIn if self.has_backup() => Outcome::Backup,
                By::StandIn => Outcome::StandIn,
            },
            Err(Reject::Deadline | Reject::Overload) if self.run.settings.default_answer => Outcome::Default,
            Err(_) => Outcome::Failed,
        };
        let number = query.payload;
        let latency = at.since(*arrived).as_nanos() as u64;
        let wrong = result.is_ok_and(|answer| answer.output != number);
        let counted = number >= self.run.warm_up;
        if counted {
            self.tally.ended(number - self.run.warm_up, latency, outcome, wrong);
        }
        let members = if outcome == Outcome::Reconstructed { *members as u8 } else { 0 };
        if let Some(watcher) = &mut self.watcher {
            watcher(Answered { number, counted, arrived: *arrived, latency, outcome, members, wrong });
        }
    }
}

/// The plan of a run, with a stand-in whose settings and cost are still those of the model.
pub(super) fn plan(run: &Run) -> Plan {
    let in_force = InForce::as_wished(&run.settings);
    let settings = run.settings.model_settings(&in_force, ModelRole::Deployed { stand_in: None });
    Plan {
        seed: run.seed,
        queries: run.queries,
        warm_up: run.warm_up,
        arrivals: run.arrivals.clone(),
        faults: run.faults.clone(),
        service: run.service.clone(),
        instances: run.instances,
        slots: run.slots,
        settings,
        second: None,
        stand_in_cost: settings.policy.stand_in.map(|_| 1.0),
        coding: run.settings.coding_settings(&in_force),
        apart: run.settings.dedicated_instances(&in_force, run.instances as usize) as u32,
        deadline: run.deadline,
    }
}

/// The world of a run, at its beginning.
pub(super) fn world(run: &Run) -> Result<World, Error> {
    let in_force = InForce::as_wished(&run.settings);
    let mut world = World::new(&plan(run))?;
    let of_model = |share: f64| {
        let service = run.service.clone();
        Box::new(move |rows| share * service.rows(rows)) as Cost
    };
    if let Some(model) = world.stand_in {
        let (role, cost) = (ModelRole::StandIn { max_rows: NonZeroU16::MAX }, run.stand_in);
        world.dispatcher.configure(Time::ZERO, model, run.settings.model_settings(&in_force, role));
        let is_backup = in_force.policy == PolicyKind::ApproximateBackup;
        let cost = if is_backup { of_model(run.backup_share) } else { Box::new(move |rows| cost.of(rows)) };
        world.costs.insert(model, cost);
    }
    if let Some(coded) = &mut world.coded {
        (coded.encode, coded.decode) = (ENCODE, DECODE);
    }
    world.lengths = run.lengths;
    let parities: Vec<ModelKey> = world.coded.iter().flat_map(Coded::models).collect();
    world.costs.extend(parities.into_iter().map(|model| (model, of_model(run.parity_share))));
    Ok(world)
}
