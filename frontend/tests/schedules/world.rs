//! Ground truth of a run: what servers do, where rows failed, and broken promises.
//!
//! Worker 0 is always well, a member, and has every model except while a story changes that model. So whatever happens to the
//! others, it could have answered. So could the first upstream server, if there are any.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::opaque::{Run, Sent};
use crate::schedule::{Ask, Guilt, Model, Serving, Source, Temper, address, host};

/// Time until a recovered server is trusted again and changed models are settled: probes, reconnections, a linearity test.
const RECOVERY: Duration = Duration::from_secs(12);
/// Time until a new member is found.
const DISCOVERY: Duration = Duration::from_secs(9);

/// Practically for ever.
const EVER: Duration = Duration::from_secs(1_000_000);
/// Numbers in a row, as clients know the model.
pub(crate) const WIDTH: u8 = 2;

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
    done: bool,
}

/// State of one server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) source: Source,
    pub(crate) temper: watch::Sender<Temper>,
    /// Whether it fails the next job.
    pub(crate) blips: bool,
    pub(crate) models: Vec<Serving>,
    /// Whether its models changed while it answered nothing: the frontend finds that later.
    unseen: bool,
    pub(crate) member: bool,
    /// Time from which it must be used.
    steady_at: Instant,
    /// Whether it was ever not well.
    pub(crate) was_ill: bool,
    /// Jobs failed by poisoned rows, without its fault.
    pub(crate) poisoned: u32,
    /// Since when each look found it out of service.
    pub(crate) out_since: Option<Instant>,
}

/// A request, as it was sent.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) ask: Ask,
    pub(crate) first: usize,
    pub(crate) sent: Instant,
    pub(crate) deadline: Instant,
}

pub(crate) struct Truth {
    start: Instant,
    pub(crate) rows: Vec<Row>,
    by_value: HashMap<(i32, i32), usize>,
    pub(crate) servers: Vec<Server>,
    pub(crate) requests: Vec<Request>,
    /// Requests for upstream servers, and what these read.
    pub(crate) sent: Vec<Sent>,
    pub(crate) runs: Vec<Run>,
    /// Requests without an answer.
    pub(crate) open: BTreeSet<usize>,
    /// Time until which a model may be missing, or have another shape than clients expect.
    pub(crate) in_flux: BTreeMap<u8, Instant>,
    /// Whether an instance has answered wrongly: correctness and suspicion can then not be checked.
    pub(crate) lied: bool,
    /// Whether a policy sent queries once: those that waited when it came into force share batches and are not retried.
    pub(crate) once: bool,
    pub(crate) dns_is_down: bool,
    /// Whether the next answer of the name server lacks a member.
    pub(crate) dns_is_short: bool,
    pub(crate) breaches: Vec<Breach>,
    /// Hash of all observations: the same seed must give the same.
    pub(crate) trace: u64,
}

/// Shared ground truth.
pub(crate) struct World(pub(crate) Mutex<Truth>);

impl World {
    pub(crate) fn new(servers: Vec<Server>) -> Self {
        Self(Mutex::new(Truth {
            start: Instant::now(),
            rows: Vec::new(),
            by_value: HashMap::new(),
            servers,
            requests: Vec::new(),
            sent: Vec::new(),
            runs: Vec::new(),
            open: BTreeSet::new(),
            in_flux: BTreeMap::new(),
            lied: false,
            once: false,
            dns_is_down: false,
            dns_is_short: false,
            breaches: Vec::new(),
            trace: 0,
        }))
    }
}

/// The numbers of a row, which identify it.
pub(crate) fn values(row: usize) -> (i32, i32) {
    ((row * 37 % 4001) as i32 - 2000, (row * 7919 % 3989) as i32 - 1994)
}

impl Server {
    /// One that is well, and in use from some time on.
    pub(crate) fn new(source: Source, models: Vec<Serving>, steady_at: Instant) -> Self {
        Self {
            source,
            temper: watch::Sender::new(Temper::Well),
            blips: false,
            models,
            unseen: false,
            member: true,
            steady_at,
            was_ill: false,
            poisoned: 0,
            out_since: None,
        }
    }
}

impl Truth {
    fn millis(&self) -> u64 {
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
        self.requests.push(Request { ask: ask.clone(), first, sent: now, deadline });
        number
    }

    /// Ends a request with its answer or because its client went away.
    pub(crate) fn ends(&mut self, number: usize) {
        self.open.remove(&number);
        let Request { ask, first, .. } = &self.requests[number];
        self.rows[*first..first + ask.rows.len()].iter_mut().for_each(|row| row.done = true);
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
        let well = *self.servers[server].temper.borrow() == Temper::Well;
        for row in rows {
            let known = &mut self.rows[*row];
            known.faults += u16::from(!well && !known.done);
        }
    }

    /// A server changes its behaviour.
    pub(crate) fn becomes(&mut self, server: usize, temper: Temper) {
        self.lied |= matches!(temper, Temper::Wrong);
        let own = &mut self.servers[server];
        if own.temper.send_replace(temper) == temper {
            return;
        }
        own.was_ill |= temper != Temper::Well;
        let is_seen = !own.is_silent() && std::mem::take(&mut own.unseen);
        self.runs.iter_mut().filter(|run| run.server == server && run.open).for_each(|run| run.well = false);
        let models = if is_seen { self.servers[server].models.clone() } else { Vec::new() };
        models.into_iter().for_each(|own| self.unsettles(own.model));
    }

    /// A server was asked for a model that it has no more: it may be ejected for that.
    pub(crate) fn lacks(&mut self, server: usize) {
        self.servers[server].steady_at = Instant::now() + RECOVERY;
    }

    /// A server has these models from now on.
    pub(crate) fn serves(&mut self, server: usize, models: Vec<Serving>) {
        let own = &mut self.servers[server];
        own.unseen |= own.is_silent();
        let before = std::mem::replace(&mut own.models, models.clone());
        let gone = before.iter().filter(|own| !models.contains(own));
        let new = models.iter().filter(|own| !before.contains(own));
        gone.chain(new).for_each(|own| self.unsettles(own.model));
    }

    /// Sets the members that a source lists.
    pub(crate) fn lists(&mut self, source: Source, named: &[usize]) {
        for (number, own) in self.servers.iter_mut().enumerate().filter(|(_, own)| own.source == source) {
            let member = named.contains(&number);
            if member != own.member {
                own.member = member;
                own.steady_at = own.steady_at.max(Instant::now() + DISCOVERY);
            }
        }
    }

    /// The members that a source lists.
    pub(crate) fn listed(&self, source: Source) -> impl Iterator<Item = usize> {
        let is_listed = move |own: &Server| own.member && own.source == source;
        self.servers.iter().enumerate().filter(move |(_, own)| is_listed(own)).map(|(number, _)| number)
    }

    /// The complete text of the workers file.
    pub(crate) fn file(&self) -> String {
        self.listed(Source::File).map(|server| format!("{}\n", address(server, Source::File))).collect()
    }

    /// The name server's next answer.
    pub(crate) fn resolves(&mut self) -> Result<Vec<String>, String> {
        let lacking = usize::from(std::mem::take(&mut self.dns_is_short));
        if self.dns_is_down {
            return Err("the name server is down".into());
        }
        Ok(self.listed(Source::Dns).skip(lacking).map(host).collect())
    }

    /// Marks a model as possibly missing for a while. Its shape differs from the one that clients know for as long as a
    /// server reports it.
    fn unsettles(&mut self, model: Model) {
        let Model::Asked(number) = model else { return };
        let other = |own: &Serving| own.model == model && own.width != WIDTH;
        let stays = self.servers.iter().any(|server| server.models.iter().any(other));
        self.in_flux.insert(number, Instant::now() + if stays { EVER } else { RECOVERY });
    }

    pub(crate) fn is_in_flux(&self, model: u8, at: Instant) -> bool {
        self.in_flux.get(&model).is_some_and(|until| at < *until)
    }

    /// Whether a server has been known, in use and always well since this time.
    pub(crate) fn is_steady(&self, server: usize, at: Instant) -> bool {
        let own = &self.servers[server];
        own.member && !own.was_ill && own.steady_at <= at
    }

    /// Whether worker 0 could have answered a request all the time.
    pub(crate) fn could_be_answered(&self, Request { ask, sent, .. }: &Request) -> bool {
        let fits = |own: &Serving| {
            own.model == Model::Asked(ask.model) && ask.version.is_none_or(|asked| asked == own.version)
        };
        self.is_steady(0, *sent)
            && !self.is_in_flux(ask.model, *sent)
            && self.servers[0].models.iter().any(fits)
    }
}

impl Server {
    fn is_silent(&self) -> bool {
        matches!(*self.temper.borrow(), Temper::Deaf | Temper::NotReady | Temper::Gone)
    }
}
