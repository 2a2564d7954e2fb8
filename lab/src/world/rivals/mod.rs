//! Load balancers and hedges that people use instead of parm, on the same arrivals, service times and faults.
//!
//! A `Rule` picks the server of a query. A rival pushes: it sends each query at once, and the query waits at the server. parm
//! keeps the queue and gives a server only what it has room for; with several frontends, a server may grant its room. Both pay
//! the network's time for each message.
//! A [`Setup`] runs a [`Rival`] or parm with as many frontends as clients: each knows only its own requests, and what servers
//! tell it. Experiments choose it for rivals, for several frontends, and for what [`Simulated`] says.
//!
//! **Why not in [`World`](crate::world::World)**: there messages take no time, and there is one frontend. The test
//! `parm_is_the_same_in_both_simulations` compares both.

mod parm;
mod pusher;
mod rules;
mod simulation;

pub use pusher::Delay;
pub use simulation::{Ended, Report, Setup};

use std::num::{NonZeroU16, NonZeroU32};
use std::time::Duration;

use parm_dispatcher::Time;
use parm_durations::Micros;
use parm_workload::Random;
use serde::{Deserialize, Serialize};

/// A rival: how it picks a server, and when it sends a late query again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rival {
    /// How it picks a server.
    pub placing: Placing,
    /// When it sends a late query again. Default: never.
    #[serde(default)]
    pub hedge: Option<Delay>,
}

/// What a simulation adds to servers and clients. Real processes have their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Simulated {
    /// Microseconds of a message from a frontend to an instance, and of one back. Default 0.
    #[serde(rename = "message_us", with = "Micros")]
    pub message: Duration,
    /// Runs of an instance at a time. Default 1.
    pub lanes: NonZeroU16,
    /// Queries that are always open, instead of a load: one arrives when another one ends. Default: none.
    pub closed: Option<NonZeroU32>,
    /// Whether an instance stops a cancelled run; otherwise it goes on to its end. Default: it goes on.
    pub cancels: bool,
}

impl Default for Simulated {
    fn default() -> Self {
        Self { message: Duration::ZERO, lanes: NonZeroU16::MIN, closed: None, cancels: false }
    }
}

/// How a rival picks a server.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placing {
    /// Each server in turn.
    RoundRobin,
    /// The fewest open requests of so many random servers, or of all.
    LeastRequest {
        /// How many are compared. Default: all.
        #[serde(default)]
        choices: Option<usize>,
    },
    /// The lowest peak EWMA of so many random servers.
    PeakEwma {
        /// How many are compared.
        choices: usize,
    },
    /// C3's score of what answers told.
    C3,
    /// C3's score of what probes told.
    C3OnProbes,
    /// Prequal with this quantile of requests in flight between hot and cold.
    Prequal {
        /// `Q_RIF`.
        quantile: f64,
    },
}

/// The fixed time after which a hedge is sent: twice the usual run of 20 ms.
const FIXED: Delay = Delay::Fixed { after: Duration::from_millis(40) };
/// The bucket saves two seconds of copies, at 420 queries a second.
const P90: Delay = Delay::Learned { quantile: 0.9, ratio: 0.1, burst: 84.0 };

const EWMA: Placing = Placing::PeakEwma { choices: 2 };

const fn places(placing: Placing) -> Rival {
    Rival { placing, hedge: None }
}

const fn hedges(placing: Placing, delay: Delay) -> Rival {
    Rival { placing, hedge: Some(delay) }
}

/// The rivals by name, and what they do.
pub const RIVALS: &[(&str, &str, Rival)] = &[
    ("round-robin", "each server in turn: nginx, gRPC, Envoy by default", places(Placing::RoundRobin)),
    (
        "least-request",
        "the fewer open requests of two random servers: Envoy",
        places(Placing::LeastRequest { choices: Some(2) }),
    ),
    (
        "least-request-of-all",
        "the fewest open requests: nginx least_conn, haproxy leastconn, Envoy's full scan",
        places(Placing::LeastRequest { choices: None }),
    ),
    ("peak-ewma", "the lower peak EWMA of two random servers: Finagle, linkerd, tower", places(EWMA)),
    ("peak-ewma-of-4", "the lowest of four", places(Placing::PeakEwma { choices: 4 })),
    ("c3", "C3's score of what answers told (NSDI 2015)", places(Placing::C3)),
    ("c3-on-probes", "C3's score of what probes told", places(Placing::C3OnProbes)),
    ("prequal", "Prequal with Q_RIF 0.84 (NSDI 2024)", places(Placing::Prequal { quantile: 0.84 })),
    (
        "prequal-0.6",
        "Prequal with Q_RIF 0.6, as prequal-rs has it",
        places(Placing::Prequal { quantile: 0.6 }),
    ),
    ("round-robin-hedge-40ms", "a copy after 40 ms: Envoy, gRPC", hedges(Placing::RoundRobin, FIXED)),
    (
        "round-robin-hedge-p90",
        "a copy after the learned p90, for 10 %: bhope/hedge, tower",
        hedges(Placing::RoundRobin, P90),
    ),
    ("peak-ewma-hedge-40ms", "both", hedges(EWMA, FIXED)),
    ("peak-ewma-hedge-p90", "both", hedges(EWMA, P90)),
];

impl Rival {
    /// The rival of this name.
    pub fn named(name: &str) -> Option<Self> {
        RIVALS.iter().find(|(own, ..)| *own == name).map(|(.., rival)| *rival)
    }
}

/// A rule that picks servers: the whole state of one client.
trait Rule {
    fn pick(&mut self, view: &mut View<'_>) -> usize;

    /// A request has its answer, or is given up.
    fn ended(&mut self, _seen: &Seen) {}

    fn probed(&mut self, _probe: Probe) {}
}

/// What a client sees when it picks a server.
struct View<'a> {
    now: Time,
    /// This client's open requests at each server.
    open: &'a [u32],
    draw: &'a mut Random,
    /// Servers that are to be probed now.
    probes: Vec<usize>,
}

/// What a client knows of a request when it is over.
#[derive(Clone, Copy, Debug)]
struct Seen {
    server: usize,
    now: Time,
    /// Nanoseconds since it was sent.
    took: f64,
    /// What came with the answer; `None` if the client gave it up.
    told: Option<Told>,
}

/// What a server tells with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Told {
    /// Nanoseconds of the run without the wait.
    run: u64,
    /// Other requests there, running or waiting.
    in_flight: u32,
}

/// The answer to a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Probe {
    server: usize,
    /// When the answer came to the client.
    at: Time,
    in_flight: u32,
    /// Nanoseconds from receipt to answer of recent requests that met as many others.
    latency: u64,
}

impl Placing {
    /// The rule of one of so many clients.
    fn rule(self, servers: usize, clients: usize, draw: &mut Random) -> Box<dyn Rule> {
        match self {
            Placing::RoundRobin => Box::new(rules::RoundRobin::new(servers, draw)),
            Placing::LeastRequest { choices } => Box::new(rules::LeastRequest { choices }),
            Placing::PeakEwma { choices } => Box::new(rules::PeakEwma::new(servers, choices)),
            Placing::C3 => Box::new(rules::C3::new(servers, clients)),
            Placing::C3OnProbes => Box::new(rules::OnProbes::new(servers, clients)),
            Placing::Prequal { quantile } => Box::new(rules::Prequal::new(servers, quantile)),
        }
    }
}

/// So many different servers at random.
fn distinct(draw: &mut Random, servers: usize, count: usize) -> Vec<usize> {
    let mut chosen = Vec::with_capacity(count);
    while chosen.len() < count.min(servers) {
        let server = draw.below(servers);
        if !chosen.contains(&server) {
            chosen.push(server);
        }
    }
    chosen
}

/// The one with the least score; equal ones are equally likely.
fn least(scores: impl Iterator<Item = (usize, f64)>, draw: &mut Random) -> usize {
    let (mut best, mut score, mut equal) = (0, f64::INFINITY, 0);
    for (server, own) in scores {
        equal = if own < score { 1 } else { equal + usize::from(own == score) };
        if own < score || own == score && draw.below(equal) == 0 {
            (best, score) = (server, own);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn view<'a>(millis: u64, open: &'a [u32], draw: &'a mut Random) -> View<'a> {
        View { now: at(millis), open, draw, probes: Vec::new() }
    }

    pub(super) fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn equal_scores_share_the_picks() {
        let mut draw = Random::of(1, [0]);
        let mut picks = [0; 4];
        for _ in 0..3000 {
            picks[least([2.0, 1.0, 1.0, 1.0].into_iter().enumerate(), &mut draw)] += 1;
        }
        assert_eq!(picks[0], 0);
        assert!(picks[1..].iter().all(|picks| (900..1100).contains(picks)), "{picks:?}");
    }
}
