//! A rival's client: it sends each query to the server that its rule picks, and perhaps once more.

use std::collections::HashMap;

use parm_dispatcher::Time;

use super::hedge::Hedge;
use super::simulation::{End, Frontend, Wire};
use super::{Probe, Rule, Seen, View};

pub(super) struct Pusher {
    rule: Box<dyn Rule>,
    hedge: Option<Hedge>,
    open: Vec<u32>,
    jobs: HashMap<u64, Sent>,
    /// The queries without an answer.
    queries: HashMap<u64, Open>,
}

struct Open {
    arrived: Time,
    deadline: Time,
    jobs: Vec<u64>,
}

struct Sent {
    query: u64,
    server: usize,
    at: Time,
}

/// How often a copy looks for a server that does not have its query.
const LOOKS: usize = 3;

impl Pusher {
    pub(super) fn new(rule: Box<dyn Rule>, hedge: Option<Hedge>, servers: usize) -> Self {
        Self { rule, hedge, open: vec![0; servers], jobs: HashMap::new(), queries: HashMap::new() }
    }

    fn pick(&mut self, wire: &mut Wire<'_>) -> usize {
        let mut view = View { now: wire.now, open: &self.open, draw: wire.draw, probes: Vec::new() };
        let server = self.rule.pick(&mut view);
        let probes = view.probes;
        probes.into_iter().for_each(|server| wire.probe(server));
        server
    }

    fn send(&mut self, query: u64, server: usize, wire: &mut Wire<'_>) {
        let job = wire.send(query, server, 1.0);
        self.open[server] += 1;
        self.jobs.insert(job, Sent { query, server, at: wire.now });
        if let Some(open) = self.queries.get_mut(&query) {
            open.jobs.push(job);
        }
    }

    /// Gives up what is left of a query.
    fn give_up(&mut self, jobs: Vec<u64>, wire: &mut Wire<'_>) {
        for job in jobs {
            let Some(sent) = self.jobs.remove(&job) else { continue };
            wire.cancel(job);
            self.ended(&sent, None, wire.now);
        }
    }

    fn ended(&mut self, sent: &Sent, told: Option<super::Told>, now: Time) {
        self.open[sent.server] -= 1;
        let took = now.since(sent.at).as_nanos() as f64;
        self.rule.ended(&Seen { server: sent.server, now, took, told });
    }
}

impl Frontend for Pusher {
    fn arrives(&mut self, query: u64, deadline: Time, wire: &mut Wire<'_>) {
        self.queries.insert(query, Open { arrived: wire.now, deadline, jobs: Vec::new() });
        wire.wake(deadline, query);
        let server = self.pick(wire);
        self.send(query, server, wire);
        if let Some(delay) = self.hedge.as_mut().and_then(Hedge::sent) {
            wire.wake(wire.now + delay, query);
        }
    }

    fn ended(&mut self, end: End, wire: &mut Wire<'_>) {
        let Some(told) = end.told else { return };
        let Some(sent) = self.jobs.remove(&end.job) else { return };
        self.ended(&sent, Some(told), wire.now);
        let Some(open) = self.queries.remove(&sent.query) else { return };
        if let Some(hedge) = &mut self.hedge {
            hedge.answered(wire.now, wire.now.since(open.arrived));
        }
        wire.reply(sent.query, Some(false));
        self.give_up(open.jobs, wire);
    }

    fn probed(&mut self, probe: Probe) {
        self.rule.probed(probe);
    }

    fn wakes(&mut self, query: u64, wire: &mut Wire<'_>) {
        let Some(open) = self.queries.get(&query) else { return };
        if wire.now >= open.deadline {
            wire.reply(query, None);
            let jobs = self.queries.remove(&query).map(|open| open.jobs);
            return self.give_up(jobs.unwrap_or_default(), wire);
        }
        let has: Vec<usize> = open.jobs.iter().filter_map(|job| Some(self.jobs.get(job)?.server)).collect();
        if !self.hedge.as_mut().is_some_and(Hedge::may_send) {
            return;
        }
        let mut server = self.pick(wire);
        for _ in 1..LOOKS {
            if has.contains(&server) {
                server = self.pick(wire);
            }
        }
        self.send(query, server, wire);
    }
}
