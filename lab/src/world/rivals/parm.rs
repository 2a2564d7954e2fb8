//! parm as a contender: one dispatcher for each frontend. Of the others it knows what the grants of servers tell.

use std::collections::{BTreeMap, HashMap};

use parm_dispatcher::{
    self as dispatcher, Action, By, Dispatcher, InstanceKey, InstanceSpec, JobKey, ModelKey, ModelSettings,
    Submission, Time,
};
use parm_grants::{Order, Told};
use parm_settings::Cost;
use parm_workload::Outcome;
use parm_workload::service::Service;
use smallvec::SmallVec;

use super::Setup;
use super::simulation::{End, Frontend, Wire};

pub(super) struct Parm {
    dispatcher: Dispatcher<u64, u64>,
    model: ModelKey,
    stand_in: Option<ModelKey>,
    cost: Cost,
    service: Service,
    servers: Vec<InstanceKey>,
    /// The jobs at servers, and their queries.
    jobs: HashMap<u64, (JobKey, SmallVec<[u64; 1]>)>,
    names: BTreeMap<JobKey, u64>,
    /// The next moment at which the dispatcher is woken.
    wakes: Time,
}

impl Parm {
    pub(super) fn new(setup: &Setup) -> Self {
        let (plan, (of_stand_in, cost)) = (&setup.plan, setup.stand_in);
        let mut dispatcher = Dispatcher::default();
        let stand_in = plan.settings.policy.stand_in.map(|_| dispatcher.add_model(of_stand_in));
        let model = dispatcher.add_model(ModelSettings { stand_in, ..plan.settings });
        let models: Vec<ModelKey> = std::iter::once(model).chain(stand_in).collect();
        let spec = InstanceSpec::new(models, plan.slots);
        let servers = (0..plan.instances).map(|_| dispatcher.join(Time::ZERO, &spec)).collect();
        Self {
            dispatcher,
            model,
            stand_in,
            cost,
            service: plan.service.clone(),
            servers,
            jobs: HashMap::new(),
            names: BTreeMap::new(),
            wakes: Time::MAX,
        }
    }

    fn execute(&mut self, wire: &mut Wire<'_>) {
        let servers = &self.servers;
        let server = |instance| servers.iter().position(|key| *key == instance).unwrap_or_default();
        for action in self.dispatcher.actions() {
            match action {
                Action::Run { job, instance, model, rows, .. } => {
                    let rows: SmallVec<[u64; 1]> = rows.into_iter().map(|row| row.payload).collect();
                    let is_stand_in = self.stand_in == Some(model);
                    let count = rows.len();
                    let times = if is_stand_in { self.cost.of(count) } else { self.service.rows(count) };
                    let name = wire.send(rows.clone(), server(instance), times);
                    self.jobs.insert(name, (job, rows));
                    self.names.insert(job, name);
                }
                Action::Cancel { job, .. } => {
                    if let Some(name) = self.names.get(&job) {
                        wire.cancel(*name);
                    }
                }
                Action::Ask { instance, ask } => wire.order(server(instance), Order::Ask(ask)),
                Action::Return { instance } => wire.order(server(instance), Order::Return),
                Action::Tell { .. } | Action::Probe { .. } => {}
                Action::Reply { payload, result, .. } => {
                    let outcome = result.map_or(Outcome::Failed, |answer| match answer.by {
                        By::StandIn => Outcome::StandIn,
                        By::Copy => Outcome::Hedged,
                        By::Model | By::Reconstruction => Outcome::Exact,
                    });
                    wire.reply(payload, outcome);
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
        let Some((job, queries)) = self.jobs.remove(&end.job) else { return };
        self.names.remove(&job);
        let output = queries.into_iter().map(Some).collect();
        let end = end.told.map_or(dispatcher::End::Cancelled, |_| dispatcher::End::Answered(output));
        self.dispatcher.ended(wire.now, job, end);
        self.execute(wire);
    }

    fn granted(&mut self, server: usize, told: Told, wire: &mut Wire<'_>) {
        let key = self.servers[server];
        match told {
            Told::Granted => self.dispatcher.granted(wire.now, key),
            Told::Recalled => self.dispatcher.recalled(wire.now, key),
            Told::Shared(shared) => self.dispatcher.shared(wire.now, key, shared),
        }
        self.execute(wire);
    }

    fn wakes(&mut self, _: u64, wire: &mut Wire<'_>) {
        if wire.now >= self.wakes {
            self.wakes = Time::MAX;
        }
        if self.dispatcher.next_tick().is_some_and(|at| at <= wire.now) {
            self.dispatcher.tick(wire.now);
        }
        self.execute(wire);
    }
}
