//! Ground truth of a run: the state of servers, the place of rows, and broken promises.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use parking_lot::Mutex;
use parm_protocol::ModelRef;
use parm_settings::PoolSettings;
use tokio::time::Instant;

use crate::invariants::Excuses;
use crate::schedule::{Ask, Guilt, Lapse, Model, Serving, Temper};

/// Time until a recovered server is trusted again: probes, reconnections, a linearity test.
const RECOVERY: Duration = Duration::from_secs(12);
/// Time until a new member or model is found.
const DISCOVERY: Duration = Duration::from_secs(9);

/// Practically for ever.
pub(crate) const EVER: Duration = Duration::from_secs(1_000_000);
/// Numbers in a row, as clients know the model.
pub(crate) const WIDTH: u8 = 2;

/// Initial group sizes of a bundle's codes.
pub(crate) const SIZES: [u8; 2] = [2, 3];

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Breach {
    pub(crate) rule: &'static str,
    pub(crate) at: u64,
    pub(crate) what: String,
}

/// One row of one request.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) guilt: Guilt,
    /// Jobs that failed with it because of the server.
    pub(crate) faults: u16,
    /// Jobs that failed with it because of another client's row.
    pub(crate) neighbours: u16,
    pub(crate) done: bool,
}

/// State of one server.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) temper: Temper,
    /// Time since which it has answered nothing.
    pub(crate) silent_since: Option<Instant>,
    pub(crate) member: bool,
    /// Time from which it must be used.
    pub(crate) steady_at: Instant,
    pub(crate) models: BTreeMap<Serving, Instant>,
    /// When a list of its models last lacked one.
    pub(crate) missed: Option<Instant>,
    /// Consecutive own failures by model: one model says nothing about the others.
    pub(crate) failures: BTreeMap<ModelRef, u32>,
    /// Jobs failed by poisoned rows, without its fault.
    pub(crate) poisoned: u32,
    /// Whether it was ever not well.
    pub(crate) was_ill: bool,
}

/// A request, as it was sent.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) ask: Ask,
    pub(crate) first: usize,
    pub(crate) sent: Instant,
    pub(crate) deadline: Instant,
    pub(crate) done: bool,
}

pub(crate) struct Truth {
    pub(crate) start: Instant,
    pub(crate) rows: Vec<Row>,
    by_value: HashMap<(i32, i32), usize>,
    pub(crate) servers: Vec<Server>,
    pub(crate) requests: Vec<Request>,
    /// Requests without an answer.
    pub(crate) open: BTreeSet<usize>,
    /// Time until which a model may be missing, or have another shape than clients expect.
    pub(crate) in_flux: BTreeMap<u8, Instant>,
    /// Whether an instance has answered wrongly: correctness and suspicion can then not be checked.
    pub(crate) lied: bool,
    /// Settings of the start. No change at run time shows or changes their constants.
    pub(crate) constants: PoolSettings,
    /// Whether model 0 is not linear.
    pub(crate) curved: bool,
    pub(crate) dns: Result<Vec<String>, String>,
    /// Time since which this is its answer.
    pub(crate) dns_since: Instant,
    /// Its last answer before it went down, if the frontend may not have had that answer twice: a member goes once two answers lack
    /// it.
    pub(crate) unsaid: Option<Vec<String>>,
    /// Error of the next answer of the name server.
    pub(crate) lapse: Option<Lapse>,
    /// Time of the last change that affects the effective settings.
    pub(crate) changed: Instant,
    /// Promises that settings at the ends of their ranges have made conditional.
    pub(crate) excuses: Excuses,
    /// Group sizes for which model 0's bundle has codes.
    pub(crate) sizes: Vec<u8>,
    pub(crate) breaches: Vec<Breach>,
    /// Hash of all observations: the same seed must give the same.
    pub(crate) trace: u64,
}

/// Shared ground truth.
pub(crate) struct World(pub(crate) Mutex<Truth>);

impl World {
    pub(crate) fn new() -> Self {
        let start = Instant::now();
        Self(Mutex::new(Truth {
            start,
            rows: Vec::new(),
            by_value: HashMap::new(),
            servers: Vec::new(),
            requests: Vec::new(),
            open: BTreeSet::new(),
            in_flux: BTreeMap::new(),
            lied: false,
            constants: PoolSettings::default(),
            curved: false,
            dns: Ok(Vec::new()),
            dns_since: start,
            unsaid: None,
            lapse: None,
            changed: start,
            excuses: Excuses::default(),
            sizes: SIZES.to_vec(),
            breaches: Vec::new(),
            trace: 0,
        }))
    }
}

/// The numbers of a row, which identify it.
pub(crate) fn values(row: usize) -> (i32, i32) {
    ((row * 37 % 4001) as i32 - 2000, (row * 7919 % 3989) as i32 - 1994)
}

impl Truth {
    pub(crate) fn millis(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// Records a broken promise; the first time counts.
    pub(crate) fn breach(&mut self, rule: &'static str, what: impl FnOnce() -> String) {
        if !self.breaches.iter().any(|known| known.rule == rule) {
            let at = self.millis();
            self.breaches.push(Breach { rule, at, what: what() });
        }
    }

    /// Adds an observation to the hash.
    pub(crate) fn saw(&mut self, kind: u64, what: u64) {
        let now = self.start.elapsed().as_nanos() as u64;
        for number in [kind, what, now] {
            self.trace = (self.trace ^ number).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(23);
        }
    }

    /// Adds a sent request; returns its number.
    pub(crate) fn sends(&mut self, ask: &Ask, deadline: Instant) -> usize {
        let (number, first, now) = (self.requests.len(), self.rows.len(), Instant::now());
        for guilt in &ask.rows {
            self.by_value.insert(values(self.rows.len()), self.rows.len());
            self.rows.push(Row { guilt: *guilt, faults: 0, neighbours: 0, done: false });
        }
        self.open.insert(number);
        self.requests.push(Request { ask: ask.clone(), first, sent: now, deadline, done: false });
        number
    }

    /// Ends a request with its answer or because its client went away.
    pub(crate) fn ends(&mut self, number: usize) {
        self.open.remove(&number);
        let request = &mut self.requests[number];
        request.done = true;
        for row in request.first..request.first + request.ask.rows.len() {
            self.rows[row].done = true;
        }
    }

    /// The row with these numbers; `None` for parities.
    pub(crate) fn row(&self, x: &[f32]) -> Option<usize> {
        self.by_value
            .get(&(x[0] as i32, x[1] as i32))
            .copied()
            .filter(|_| x[0].fract() == 0.0 && x[1].fract() == 0.0)
    }

    /// A server releases a job with these rows. A row taken from a faulty server counts as failed there.
    pub(crate) fn lets_go(&mut self, server: usize, rows: &[usize]) {
        let well = self.servers[server].temper == Temper::Well;
        for row in rows {
            let known = &mut self.rows[*row];
            known.faults += u16::from(!well && !known.done);
        }
    }

    /// A server changes its behaviour.
    pub(crate) fn becomes(&mut self, server: usize, temper: Temper) {
        let now = Instant::now();
        self.lied |= matches!(temper, Temper::Wrong);
        let own = &mut self.servers[server];
        // Models that a silent server received are discovered from now on.
        let since = own.silent_since.take();
        let unknown =
            own.models.iter().filter(|(_, at)| since.is_some_and(|since| **at >= since + DISCOVERY));
        let unknown: Vec<Model> = unknown.map(|(serving, _)| serving.model).collect();
        if matches!(temper, Temper::Deaf | Temper::NotReady | Temper::Gone) {
            own.silent_since = Some(since.unwrap_or(now));
        }
        own.temper = temper;
        own.was_ill |= temper != Temper::Well;
        own.failures.clear();
        own.steady_at = own.steady_at.max(now + RECOVERY);
        unknown.into_iter().for_each(|model| self.unsettles_if_asked(model));
    }

    fn unsettles_if_asked(&mut self, model: Model) {
        if let Model::Asked(model) = model {
            self.unsettles(model);
        }
    }

    /// A list of a server's models lacks one that is there. Nothing changes if the frontend knows the server and the list
    /// before had the model. Otherwise the server joins, or has the model again, with one of the next lists.
    pub(crate) fn misses(&mut self, server: usize) {
        let now = Instant::now();
        let is_steady = self.is_steady(server, now);
        let own = &mut self.servers[server];
        let again = own.missed.replace(now).is_some_and(|before| now < before + DISCOVERY);
        if again || !is_steady {
            own.steady_at = own.steady_at.max(now + DISCOVERY);
        }
    }

    /// A server was asked for a model that it has no more: it may be ejected for that.
    pub(crate) fn lacks(&mut self, server: usize) {
        self.servers[server].steady_at = Instant::now() + RECOVERY;
    }

    /// A server failed a job by its own fault; several in a row may eject it.
    pub(crate) fn fails(&mut self, server: usize, model: &ModelRef) {
        let now = Instant::now();
        let own = &mut self.servers[server];
        let failures = own.failures.entry(model.clone()).or_default();
        *failures += 1;
        if *failures > 1 {
            own.steady_at = own.steady_at.max(now + RECOVERY);
        }
    }

    /// A server has these models from now on.
    pub(crate) fn serves(&mut self, server: usize, models: &[Serving]) {
        let now = Instant::now();
        let had = std::mem::take(&mut self.servers[server].models);
        if self.servers[server].silent_since.is_some() {
            // Requests may go to a model that only this server had.
            had.keys().filter(|own| !models.contains(own)).for_each(|own| self.unsettles_if_asked(own.model));
        }
        let own = &mut self.servers[server];
        own.models =
            models.iter().map(|model| (*model, had.get(model).copied().unwrap_or(now + DISCOVERY))).collect();
    }

    /// Sets the members among `all`.
    pub(crate) fn names(&mut self, all: &[usize], named: &[usize]) {
        let now = Instant::now();
        for server in all {
            let own = &mut self.servers[*server];
            let member = named.contains(server);
            if member != own.member {
                own.member = member;
                own.steady_at = own.steady_at.max(now + DISCOVERY);
            }
        }
    }

    /// Marks a model as possibly missing for a while. Its shape differs from the one that clients know for as long as a
    /// server reports it.
    pub(crate) fn unsettles(&mut self, model: u8) {
        let other = |own: &Serving| own.model == Model::Asked(model) && own.width != WIDTH;
        let stays = self.servers.iter().any(|server| server.models.keys().any(other));
        self.in_flux.insert(model, Instant::now() + if stays { EVER } else { RECOVERY });
    }

    pub(crate) fn is_in_flux(&self, model: u8, at: Instant) -> bool {
        self.in_flux.get(&model).is_some_and(|until| at < *until)
    }

    /// Whether a server has been healthy, known and in use since this time.
    pub(crate) fn is_steady(&self, server: usize, at: Instant) -> bool {
        let own = &self.servers[server];
        own.member && own.temper == Temper::Well && own.steady_at <= at
    }

    /// Whether a server has had a request's model since this time.
    pub(crate) fn has(&self, server: usize, ask: &Ask, at: Instant) -> bool {
        self.servers[server].models.iter().any(|(serving, since)| {
            serving.model == Model::Asked(ask.model)
                && ask.version.is_none_or(|version| version == serving.version)
                && *since <= at
        })
    }

    /// Whether a steady server could have answered a request all the time.
    pub(crate) fn could_be_answered(&self, request: &Request) -> bool {
        let able =
            |server| self.is_steady(server, request.sent) && self.has(server, &request.ask, request.sent);
        !self.is_in_flux(request.ask.model, request.sent) && (0..self.servers.len()).any(able)
    }
}
