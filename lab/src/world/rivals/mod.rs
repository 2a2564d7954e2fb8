//! Load balancers and hedges that people use instead of parm, on the same arrivals, service times and faults.
//!
//! A `Rule` picks the server of a query; its file has the formula and where the formula is published. A rival pushes: it
//! sends each query at once, and the query waits at the server. parm keeps the queue and gives a server only what it has
//! room for; with several frontends, a server may grant its room. Both pay the network's time for each message.
//! [`Setup::run`] runs a [`Contender`] with as many frontends as clients: each knows only its own requests, and what servers
//! tell it.
//!
//! **Why not in [`World`](crate::world::World)**: there messages take no time, and there is one frontend. The test
//! `parm_is_the_same_here_as_in_its_own_world` compares both.

mod balancers;
mod c3;
mod parm;
mod prequal;
mod pusher;
mod simulation;

pub use pusher::Delay;
pub use simulation::{Report, Setup};

use std::time::Duration;

use parm_dispatcher::{Policy, Time};
use parm_workload::Random;

/// What stands between clients and servers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Contender {
    /// A rule that pushes, and when it sends a late query again.
    Rival(Placing, Option<Delay>),
    /// parm with a policy.
    Parm(Policy),
}

/// How a rival picks a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Placing {
    /// Each server in turn.
    RoundRobin,
    /// The fewest open requests of so many random servers, or of all.
    LeastRequest {
        /// How many are compared; `None` for all.
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

/// The fixed time after which a hedge is sent in our profiles: twice the usual run of 20 ms.
const FIXED: Delay = Delay::Fixed(Duration::from_millis(40));
/// The bucket saves two seconds of copies, at 420 queries a second.
const P90: Delay = Delay::Learned { quantile: 0.9, ratio: 0.1, burst: 84.0 };

const EWMA: Placing = Placing::PeakEwma { choices: 2 };

/// The contenders by name.
pub const CONTENDERS: &[(&str, Contender)] = &[
    ("round robin", Contender::Rival(Placing::RoundRobin, None)),
    ("least request, 2", Contender::Rival(Placing::LeastRequest { choices: Some(2) }, None)),
    ("least request, all", Contender::Rival(Placing::LeastRequest { choices: None }, None)),
    ("peak EWMA", Contender::Rival(EWMA, None)),
    ("peak EWMA of 4", Contender::Rival(Placing::PeakEwma { choices: 4 }, None)),
    ("C3", Contender::Rival(Placing::C3, None)),
    ("C3 on probes", Contender::Rival(Placing::C3OnProbes, None)),
    ("Prequal 0.84", Contender::Rival(Placing::Prequal { quantile: 0.84 }, None)),
    ("Prequal 0.6", Contender::Rival(Placing::Prequal { quantile: 0.6 }, None)),
    ("round robin, fixed hedge", Contender::Rival(Placing::RoundRobin, Some(FIXED))),
    ("round robin, p90 hedge", Contender::Rival(Placing::RoundRobin, Some(P90))),
    ("peak EWMA, fixed hedge", Contender::Rival(EWMA, Some(FIXED))),
    ("peak EWMA, p90 hedge", Contender::Rival(EWMA, Some(P90))),
    ("none", Contender::Parm(Policy::NONE)),
    ("hedge", Contender::Parm(Policy::HEDGE)),
    ("stand-in", Contender::Parm(Policy::STAND_IN)),
];

/// The contender of this name.
pub fn named(name: &str) -> Option<Contender> {
    CONTENDERS.iter().find(|(own, _)| *own == name).map(|(_, contender)| *contender)
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
            Placing::RoundRobin => Box::new(balancers::RoundRobin::new(servers, draw)),
            Placing::LeastRequest { choices } => Box::new(balancers::LeastRequest { choices }),
            Placing::PeakEwma { choices } => Box::new(balancers::PeakEwma::new(servers, choices)),
            Placing::C3 => Box::new(c3::C3::new(servers, clients)),
            Placing::C3OnProbes => Box::new(c3::OnProbes::new(servers, clients)),
            Placing::Prequal { quantile } => Box::new(prequal::Prequal::new(servers, quantile)),
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
