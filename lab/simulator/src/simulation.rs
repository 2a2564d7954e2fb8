//! A run in the virtual world: what happens there becomes a tally, and a witness sees it.

use std::collections::BTreeMap;
use std::mem;
use std::num::NonZeroU16;

use parm_dispatcher::{Action, By, End, InstanceKey, JobKey, ModelKey, QueryKey, Reject, Row, Time, Why};
use parm_settings::recording::RecordedRole;
use parm_settings::{InForce, ModelRole, PolicyKind};
use parm_workload::clock::Moment;
use parm_workload::{Outcome, Schedule};
use parm_world::{Coded, Cost, Event, Plan, Reply, World};

use crate::tally::Ended;
use crate::witness::{Answered, Execution, Witness};
use crate::{Error, Lengths, Progress, Run, Shape, Tally};

/// A run in progress.
pub(crate) struct Simulation<'a> {
    run: &'a Run,
    world: World,
    /// The factor of each query's run time, if the dispatcher is told of it.
    sizes: Option<Schedule>,
    tally: Tally,
    witness: Option<&'a mut dyn Witness>,
    /// Jobs that instances hold, if there is a witness.
    held: BTreeMap<JobKey, (InstanceKey, Execution)>,
    arrived: u64,
    most_unanswered: usize,
}

/// Arrivals between two reports of progress.
const REPORT_EVERY: u64 = 1 << 14;

/// The size of a query with factor 1, about the tokens of a sentence.
const USUAL_SIZE: f64 = 16.0;

impl<'a> Simulation<'a> {
    pub(crate) fn new(run: &'a Run, witness: Option<&'a mut dyn Witness>) -> Result<Self, Error> {
        if run.warm_up >= run.queries {
            return Err(Error::AllWarmUp { warm_up: run.warm_up, queries: run.queries });
        }
        let schedule = Schedule::new(&run.faults, run.seed, run.shape.instances)?;
        let has_sizes = run.lengths != Lengths::Mixed && schedule.follows_queries();
        Ok(Self {
            run,
            world: world(run)?,
            sizes: has_sizes.then_some(schedule),
            tally: Tally::new(run.queries - run.warm_up, run.deadline),
            witness,
            held: BTreeMap::new(),
            arrived: 0,
            most_unanswered: 0,
        })
    }

    /// Runs until every query has arrived and has its reply.
    pub(crate) fn run(mut self, progress: &dyn Progress) -> Result<Tally, Error> {
        self.size_next();
        let (mut events, mut replies) = (Vec::new(), Vec::new());
        while self.world.advance() {
            self.world.log.iter_mut().for_each(|log| mem::swap(log, &mut events));
            events.drain(..).for_each(|event| self.happened(event, progress));
            mem::swap(&mut self.world.replies, &mut replies);
            replies.drain(..).for_each(|reply| self.replied(&reply));
        }
        progress.advanced(self.arrived % REPORT_EVERY);
        let capacity = u64::from(self.run.shape.instances) * self.world.now.as_nanos();
        self.tally.finish(self.world.busy, capacity, self.most_unanswered);
        Ok(self.tally)
    }

    /// Tells the dispatcher how long the next query is.
    fn size_next(&mut self) {
        let Some(sizes) = &self.sizes else { return };
        // A fault may leave some instances out.
        let factors = (0..self.run.shape.instances).map(|instance| sizes.length(instance, self.arrived));
        let size = (factors.fold(0.0, f64::max) * USUAL_SIZE).ceil().max(1.0) as u32;
        let name = if self.run.lengths == Lengths::Equal { size } else { 0 };
        self.world.next.shape = parm_dispatcher::Shape { name, size };
    }

    fn happened(&mut self, event: Event, progress: &dyn Progress) {
        match event {
            Event::Arrived(_, query) if query.model == self.world.model => {
                self.arrived += 1;
                self.most_unanswered = self.most_unanswered.max(self.world.open.len());
                if self.arrived.is_multiple_of(REPORT_EVERY) {
                    progress.advanced(REPORT_EVERY);
                }
                self.size_next();
                if let Some(witness) = &mut self.witness {
                    witness.arrived(moment(self.world.now));
                }
            }
            Event::Asks(Action::Run { job, instance, model, why, rows }) => {
                let role = self.role(model, why);
                let share = self.world.costs.get(&model).map_or(1.0, |cost| cost(rows.len()));
                self.tally.started(role == RecordedRole::Deployed, share);
                if self.witness.is_some() {
                    self.given(job, instance, role, &rows);
                }
            }
            Event::Ended(job, end) => {
                let held = self.held.remove(&job);
                if let (Some(witness), Some((_, held)), End::Answered(_)) = (&mut self.witness, held, end) {
                    witness.executed(Execution { ended: moment(self.world.now), ..held });
                }
            }
            Event::Gone(instance) => self.held.retain(|_, (at, _)| *at != instance),
            _ => {}
        }
    }

    fn given(&mut self, job: JobKey, at: InstanceKey, role: RecordedRole, rows: &[Row<u64>]) {
        let Some(instance) = self.world.server(at) else { return };
        let now = moment(self.world.now);
        let arrived = |query: &QueryKey| self.world.open.get(query).map(|(_, arrived)| moment(*arrived));
        let execution = Execution {
            instance: instance as u32,
            role,
            rows: rows.len(),
            given: now,
            ended: now,
            arrived: rows.first().and_then(|row| arrived(&row.query)),
        };
        self.held.insert(job, (at, execution));
    }

    fn role(&self, model: ModelKey, why: Why) -> RecordedRole {
        if Some(model) == self.world.stand_in {
            return if self.has_backup() { RecordedRole::Backup } else { RecordedRole::StandIn };
        }
        match why {
            _ if model != self.world.model => RecordedRole::Parity,
            Why::First | Why::Retry => RecordedRole::Deployed,
            Why::Hedge | Why::Copy | Why::Explore | Why::StandIn => RecordedRole::Copy,
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
        let counted = number.checked_sub(self.run.warm_up);
        if let Some(number) = counted {
            self.tally.ended(Ended { number, latency, outcome, wrong });
        }
        if let Some(witness) = &mut self.witness {
            let members = if outcome == Outcome::Reconstructed { *members as u8 } else { 0 };
            let arrived = moment(*arrived);
            let answered = Answered { number, arrived, latency, outcome, members, wrong };
            match counted {
                Some(_) => witness.answered(answered),
                None => witness.warmed_up(answered),
            }
        }
    }
}

/// The world of a run, at its beginning.
fn world(run: &Run) -> Result<World, Error> {
    let in_force = InForce::as_wished(&run.settings);
    let settings = run.settings.model_settings(&in_force, ModelRole::Deployed { stand_in: None });
    let Shape { instances, parity_only, slots } = run.shape;
    let dedicated = || run.settings.dedicated_instances(&in_force, instances as usize) as u32;
    let mut world = World::new(&Plan {
        seed: run.seed,
        queries: run.queries,
        warm_up: run.warm_up,
        arrivals: run.arrivals.clone(),
        faults: run.faults.clone(),
        service: run.service.clone(),
        instances,
        slots,
        settings,
        second: None,
        stand_in_cost: settings.policy.stand_in.map(|_| 1.0),
        coding: run.settings.coding_settings(&in_force),
        apart: if parity_only > 0 { parity_only } else { dedicated() },
        deadline: run.deadline,
    })?;
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
        (coded.encode, coded.decode) = (run.encode, run.decode);
    }
    let parities: Vec<ModelKey> = world.coded.iter().flat_map(Coded::models).collect();
    world.costs.extend(parities.into_iter().map(|model| (model, of_model(run.parity_share))));
    Ok(world)
}

fn moment(time: Time) -> Moment {
    Moment::from_nanos(time.as_nanos())
}
