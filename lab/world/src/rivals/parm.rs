//! parm as a contender: one dispatcher for each frontend, which knows nothing of the others.

use std::collections::{BTreeMap, HashMap};

use parm_dispatcher::{
    self as dispatcher, Action, By, Dispatcher, InstanceKey, InstanceSpec, JobKey, ModelKey, ModelSettings,
    Policy, Submission, Time,
};

use super::Probe;
use super::simulation::{End, Frontend, Setup, Wire};

pub(super) struct Parm {
    dispatcher: Dispatcher<u64, u64>,
    model: ModelKey,
    stand_in: Option<ModelKey>,
    cost: f64,
    servers: Vec<InstanceKey>,
    jobs: HashMap<u64, (JobKey, u64)>,
    names: BTreeMap<JobKey, u64>,
    /// The next moment at which the dispatcher is woken.
    wakes: Time,
}

impl Parm {
    pub(super) fn new(setup: &Setup, policy: Policy) -> Self {
        let mut dispatcher = Dispatcher::new();
        let stand_in = policy.stand_in.map(|_| dispatcher.add_model(ModelSettings::default()));
        let model = dispatcher.add_model(ModelSettings {
            policy,
            stand_in,
            hedges: setup.hedges,
            ..Default::default()
        });
        let models: Vec<ModelKey> = std::iter::once(model).chain(stand_in).collect();
        let spec = InstanceSpec::new(models, setup.slots);
        let servers = (0..setup.servers).map(|_| dispatcher.join(Time::ZERO, &spec)).collect();
        Self {
            dispatcher,
            model,
            stand_in,
            cost: setup.stand_in_cost,
            servers,
            jobs: HashMap::new(),
            names: BTreeMap::new(),
            wakes: Time::MAX,
        }
    }

    fn execute(&mut self, wire: &mut Wire<'_>) {
        let actions: Vec<_> = self.dispatcher.actions().collect();
        for action in actions {
            match action {
                Action::Run { job, instance, model, rows, .. } => {
                    let Some(row) = rows.first() else { continue };
                    let Some(server) = self.servers.iter().position(|key| *key == instance) else { continue };
                    let share = if self.stand_in == Some(model) { self.cost } else { 1.0 };
                    let name = wire.send(row.payload, server, share);
                    self.jobs.insert(name, (job, row.payload));
                    self.names.insert(job, name);
                }
                Action::Cancel { job, .. } => {
                    if let Some(name) = self.names.get(&job) {
                        wire.cancel(*name);
                    }
                }
                Action::Tell { .. } | Action::Probe { .. } | Action::Ask { .. } | Action::Return { .. } => {}
                Action::Reply { payload, result, .. } => {
                    if let Ok(answer) = result {
                        wire.reply(payload, answer.by == By::StandIn);
                    }
                }
            }
        }
        let next = self.dispatcher.next_tick().unwrap_or(Time::MAX).max(wire.now);
        if next < self.wakes {
            self.wakes = next;
            wire.wake(next, 0);
        }
    }
}

impl Frontend for Parm {
    fn arrives(&mut self, query: u64, deadline: Time, wire: &mut Wire<'_>) {
        let submission = Submission::new(self.model, query, deadline);
        self.dispatcher.submit(wire.now, submission);
        self.execute(wire);
    }

    fn ended(&mut self, end: End, wire: &mut Wire<'_>) {
        let Some((job, query)) = self.jobs.remove(&end.job) else { return };
        self.names.remove(&job);
        let output = std::iter::once(Some(query)).collect();
        let end = end.told.map_or(dispatcher::End::Cancelled, |_| dispatcher::End::Answered(output));
        self.dispatcher.ended(wire.now, job, end);
        self.execute(wire);
    }

    fn probed(&mut self, _: Probe) {}

    fn wakes(&mut self, _: u64, wire: &mut Wire<'_>) {
        if wire.now >= self.wakes {
            self.wakes = Time::MAX;
        }
        if self.dispatcher.next_tick().is_some_and(|at| at <= wire.now) {
            self.dispatcher.tick(wire.now);
        }
        self.execute(wire);
    }

    /// The dispatcher keeps deadlines itself.
    fn expires(&mut self, _: u64, _: &mut Wire<'_>) {}
}
