//! A rival's client: it sends each query to the server that its rule picks, and perhaps once more.
//!
//! A hedge: a query without an answer after a while is sent once more, and the first answer counts.
//!
//! **Fixed**: after a time that the operator chose (Envoy's `hedge_on_per_try_timeout`, gRPC's `hedgingDelay`). **Learned**: after
//! a quantile of the latencies of the last 30 to 60 s, while a token bucket has a token. bhope/hedge (2026) takes p90 of
//! a sketch of 1 % accuracy, and a bucket of 10 % of the queries that saves two seconds; tower's `hedge` has a quantile of
//! two histograms that rotate as well. A latency counts from the query's first sending, also if the copy wins. Nothing is
//! sent again before 20 answers. A copy looks three times for a server without the query, as Envoy's `previous_hosts` does.
//! The libraries do not look, and could send a copy to the same server.

use std::collections::HashMap;
use std::time::Duration;

use parm_dispatcher::Time;
use parm_durations::PositiveMillis;
use parm_workload::Outcome;
use serde::{Deserialize, Serialize};
use smallvec::smallvec;

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
        let job = wire.send(smallvec![query], server, 1.0);
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
        let is_first = open.jobs.first() == Some(&end.job);
        wire.reply(sent.query, if is_first { Outcome::Exact } else { Outcome::Hedged });
        self.give_up(open.jobs, wire);
    }

    fn probed(&mut self, probe: Probe) {
        self.rule.probed(probe);
    }

    fn wakes(&mut self, query: u64, wire: &mut Wire<'_>) {
        let Some(open) = self.queries.get(&query) else { return };
        if wire.now >= open.deadline {
            wire.reply(query, Outcome::Failed);
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

/// When a late query is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Delay {
    /// After a fixed time.
    Fixed {
        /// Milliseconds.
        #[serde(rename = "ms", with = "PositiveMillis")]
        after: Duration,
    },
    /// After this quantile of recent latencies.
    Learned {
        /// The quantile.
        quantile: f64,
        /// Copies for each query at most.
        ratio: f64,
        /// Copies that are saved up at most.
        burst: f64,
    },
}

const WINDOW: Duration = Duration::from_secs(30);
const LEAST: u32 = 20;
/// Logarithm of the width of a bucket: the middle is 1 % off at most.
const WIDTH: f64 = 0.02;

pub(super) struct Hedge {
    delay: Delay,
    tokens: f64,
    current: Histogram,
    before: Histogram,
    rotates: Time,
}

/// Counts of latencies by their logarithm.
#[derive(Default)]
struct Histogram {
    counts: Vec<u32>,
    total: u32,
}

impl Hedge {
    pub(super) fn new(delay: Delay) -> Self {
        let tokens = if let Delay::Learned { burst, .. } = delay { burst } else { 0.0 };
        let rotates = Time::ZERO + WINDOW;
        Self { delay, tokens, current: Histogram::default(), before: Histogram::default(), rotates }
    }

    /// A query is sent. Returns after which time it is late.
    pub(super) fn sent(&mut self) -> Option<Duration> {
        match self.delay {
            Delay::Fixed { after } => Some(after),
            Delay::Learned { quantile, ratio, burst } => {
                self.tokens = (self.tokens + ratio).min(burst);
                self.quantile(quantile)
            }
        }
    }

    /// Whether a late query may be sent again.
    pub(super) fn may_send(&mut self) -> bool {
        let may = self.tokens >= 1.0;
        match self.delay {
            Delay::Fixed { .. } => true,
            Delay::Learned { .. } => {
                self.tokens -= f64::from(u8::from(may));
                may
            }
        }
    }

    /// A query was answered.
    pub(super) fn answered(&mut self, now: Time, took: Duration) {
        if now >= self.rotates {
            self.before = std::mem::take(&mut self.current);
            self.rotates = now + WINDOW;
        }
        let bucket = ((took.as_nanos().max(1) as f64).ln() / WIDTH) as usize;
        let counts = &mut self.current.counts;
        counts.resize(counts.len().max(bucket + 1), 0);
        counts[bucket] += 1;
        self.current.total += 1;
    }

    fn quantile(&self, quantile: f64) -> Option<Duration> {
        let total = self.current.total + self.before.total;
        let mut above = (f64::from(total) * (1.0 - quantile)) as u32;
        if total < LEAST {
            return None;
        }
        let at = |of: &Histogram, bucket: usize| of.counts.get(bucket).copied().unwrap_or_default();
        // From above, because that is nearer.
        let top = self.current.counts.len().max(self.before.counts.len());
        let bucket = (0..top).rev().find(|bucket| {
            let here = at(&self.current, *bucket) + at(&self.before, *bucket);
            let found = here > above;
            above = above.saturating_sub(here);
            found
        });
        bucket.map(|bucket| Duration::from_nanos((WIDTH * (bucket as f64 + 0.5)).exp() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::at;
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn p90_is_learned_and_a_tenth_is_sent_again() {
        let mut hedge = Hedge::new(Delay::Learned { quantile: 0.9, ratio: 0.1, burst: 10.0 });
        (1..20).for_each(|millis| hedge.answered(at(1), millis * MS));
        assert_eq!(hedge.sent(), None, "too few are known");
        (20..=100).for_each(|millis| hedge.answered(at(1), millis * MS));
        let learned = hedge.sent().map(|delay| delay.div_duration_f64(MS)).unwrap();
        assert!((learned / 90.0 - 1.0).abs() < 0.02, "{learned} ms");
        let burst = (0..100).filter(|_| hedge.may_send()).count();
        let sent = (0..1000).filter(|_| hedge.sent().is_some() && hedge.may_send()).count();
        assert_eq!(burst, 10);
        assert!((99..=100).contains(&sent), "{sent}");
    }

    #[test]
    fn latencies_are_forgotten_within_a_minute() {
        let mut hedge = Hedge::new(Delay::Learned { quantile: 0.9, ratio: 0.1, burst: 10.0 });
        (0..100).for_each(|_| hedge.answered(at(1), 80 * MS));
        (0..100).for_each(|_| hedge.answered(at(30_001), 20 * MS));
        assert!(hedge.sent() > Some(79 * MS));
        (0..100).for_each(|_| hedge.answered(at(60_002), 20 * MS));
        assert!(hedge.sent() < Some(21 * MS));
    }

    #[test]
    fn fixed_time_has_no_limit() {
        let mut hedge = Hedge::new(Delay::Fixed { after: 40 * MS });
        assert_eq!(hedge.sent(), Some(40 * MS));
        assert!((0..1000).all(|_| hedge.may_send()));
    }
}
