//! What is true: which servers there are and how they are, which rows are where, and which promises were broken.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use parking_lot::Mutex;
use parm_dispatch::PoolSettings;
use parm_protocol::ModelRef;
use tokio::time::Instant;

use crate::accounts::Account;
use crate::excuses::Excuses;
use crate::schedule::{Ask, Guilt, Lapse, Model, Serving, Temper};

/// How long a server that was not well may take to be trusted again: probes, reconnections, a trial.
const RECOVERY: Duration = Duration::from_secs(12);
/// How long a new member or model may take to be found.
const DISCOVERY: Duration = Duration::from_secs(9);

/// Jobs after which service times are known: before that no job counts as late.
const WARM: u32 = 20;

/// Sizes of groups that a bundle has codes for at first.
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
    pub(crate) request: usize,
    pub(crate) guilt: Guilt,
    /// Jobs at servers that have it.
    pub(crate) held: u16,
    /// Jobs that failed with it because of the server.
    pub(crate) faults: u16,
    /// Jobs that failed with it because of another client's row.
    pub(crate) neighbours: u16,
    /// A server answered it.
    pub(crate) answered: bool,
    /// The servers that hold it, one entry for each job.
    pub(crate) holders: Vec<usize>,
    /// When a server took it last.
    pub(crate) taken: Instant,
    /// Service times of the model were known then.
    pub(crate) warm: bool,
    /// Since when nobody has had it.
    pub(crate) free_since: Instant,
    pub(crate) done: bool,
}

/// One server, as it is.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) temper: Temper,
    pub(crate) temper_since: Instant,
    /// It has told nobody anything since then.
    pub(crate) silent_since: Option<Instant>,
    pub(crate) member: bool,
    /// From then on nothing excuses that it is not used.
    pub(crate) steady_at: Instant,
    pub(crate) models: BTreeMap<Serving, Instant>,
    /// Jobs that it holds, and since when it has held none.
    pub(crate) holds: u32,
    pub(crate) idle_since: Instant,
    /// Its own failures in a row, by what it was asked to run: one model says nothing of the others.
    pub(crate) failures: BTreeMap<ModelRef, u32>,
    /// Jobs with rows that somebody waited for and others could answer, given to it long after it had begun to hang.
    pub(crate) fed_in_vain: u32,
    /// Jobs failed by rows of poison: no fault of its own.
    pub(crate) poisoned: u32,
}

/// A request, as it was sent.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) ask: Ask,
    pub(crate) first: usize,
    pub(crate) sent: Instant,
    pub(crate) deadline: Instant,
    /// Rows that waited then, of those that may, where settings had not just changed.
    pub(crate) queue: Option<(usize, usize)>,
    /// The most rows that waited when a more urgent request came: it may have taken this one's place in a full queue.
    pub(crate) pressed: usize,
    pub(crate) done: bool,
}

/// Settings of a model that matter to what may be expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Instances may be kept for redundancy.
    pub(crate) reserves: bool,
    /// Answers may come of jobs that no server knows to be for a row.
    pub(crate) stands_in: bool,
    pub(crate) queue_limit: usize,
    pub(crate) ejects: bool,
    /// Late jobs are duplicated, and no budget limits it.
    pub(crate) hedges: bool,
}

pub(crate) struct Truth {
    pub(crate) start: Instant,
    pub(crate) rows: Vec<Row>,
    by_value: HashMap<(i32, i32), usize>,
    /// Rows that nobody has and that have no answer.
    pub(crate) waiting: BTreeSet<usize>,
    /// Rows without an answer that no server has had for their own model; one that stands in for it may have them.
    untried: BTreeSet<usize>,
    pub(crate) servers: Vec<Server>,
    pub(crate) requests: Vec<Request>,
    /// Requests that are not answered.
    pub(crate) open: BTreeSet<usize>,
    pub(crate) rules: BTreeMap<u8, Rules>,
    pub(crate) rules_since: Instant,
    /// Until when a model may be missing, or have another shape than clients think.
    pub(crate) in_flux: BTreeMap<u8, Instant>,
    /// An instance has answered wrongly: what is right cannot be told any more, and whom to suspect neither.
    pub(crate) lied: bool,
    /// Settings of the start, whose constants no change at run time shows or changes.
    pub(crate) constants: PoolSettings,
    /// Model 0 is not linear.
    pub(crate) curved: bool,
    pub(crate) dns: Result<Vec<String>, String>,
    /// The next answer of the name server is wrong so.
    pub(crate) lapse: Option<Lapse>,
    /// When something was changed last that decides over what is in force.
    pub(crate) changed: Instant,
    /// Jobs that servers have answered since the model was served last.
    pub(crate) ran: BTreeMap<ModelRef, u32>,
    /// Promises that settings at the ends of their ranges have made conditional.
    pub(crate) excuses: Excuses,
    /// Answers to clients that accept a share of approximate ones, by model and share.
    pub(crate) accounts: BTreeMap<(u8, u16), Account>,
    /// Sizes of groups that model 0's bundle has codes for.
    pub(crate) sizes: Vec<u8>,
    pub(crate) breaches: Vec<Breach>,
    /// Of everything that was seen: the same seed must give the same.
    pub(crate) trace: u64,
}

/// The truth, shared.
pub(crate) struct World(pub(crate) Mutex<Truth>);

impl World {
    pub(crate) fn new() -> Self {
        let start = Instant::now();
        Self(Mutex::new(Truth {
            start,
            rows: Vec::new(),
            by_value: HashMap::new(),
            waiting: BTreeSet::new(),
            untried: BTreeSet::new(),
            servers: Vec::new(),
            requests: Vec::new(),
            open: BTreeSet::new(),
            rules: BTreeMap::new(),
            rules_since: start,
            in_flux: BTreeMap::new(),
            lied: false,
            constants: PoolSettings::default(),
            curved: false,
            dns: Ok(Vec::new()),
            lapse: None,
            changed: start,
            ran: BTreeMap::new(),
            excuses: Excuses::default(),
            accounts: BTreeMap::new(),
            sizes: SIZES.to_vec(),
            breaches: Vec::new(),
            trace: 0,
        }))
    }
}

/// The numbers of a row: the pair is its name.
pub(crate) fn values(row: usize) -> (i32, i32) {
    ((row * 37 % 4001) as i32 - 2000, (row * 7919 % 3989) as i32 - 1994)
}

impl Truth {
    pub(crate) fn millis(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// A promise is broken; the first time counts.
    pub(crate) fn breach(&mut self, rule: &'static str, what: impl FnOnce() -> String) {
        if !self.breaches.iter().any(|known| known.rule == rule) {
            let at = self.millis();
            self.breaches.push(Breach { rule, at, what: what() });
        }
    }

    /// Something was seen.
    pub(crate) fn saw(&mut self, kind: u64, what: u64) {
        let now = self.start.elapsed().as_nanos() as u64;
        for number in [kind, what, now] {
            self.trace = (self.trace ^ number).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(23);
        }
    }

    /// A request is sent; returns its number.
    pub(crate) fn sends(&mut self, ask: &Ask, deadline: Instant) -> usize {
        let (number, first, now) = (self.requests.len(), self.rows.len(), Instant::now());
        self.charges(ask);
        for guilt in &ask.rows {
            let row = self.rows.len();
            self.by_value.insert(values(row), row);
            self.waiting.insert(row);
            self.untried.insert(row);
            let (request, guilt) = (number, *guilt);
            self.rows.push(Row {
                request,
                guilt,
                held: 0,
                holders: Vec::new(),
                taken: now,
                warm: false,
                faults: 0,
                neighbours: 0,
                answered: false,
                free_since: now,
                done: false,
            });
        }
        self.open.insert(number);
        let settled = now > self.rules_since + Duration::from_secs(1);
        let queue =
            self.rules.get(&ask.model).filter(|_| settled).map(|rules| (self.queued(), rules.queue_limit));
        let pressed = self.queued() + ask.rows.len();
        for other in &self.open {
            let Some(other) = self.requests.get_mut(*other) else { continue };
            if other.ask.model == ask.model && other.ask.urgency() > ask.urgency() {
                other.pressed = other.pressed.max(pressed);
            }
        }
        self.requests.push(Request {
            ask: ask.clone(),
            first,
            sent: now,
            deadline,
            queue,
            pressed: 0,
            done: false,
        });
        number
    }

    /// How many rows may be in queues.
    pub(crate) fn queued(&self) -> usize {
        self.waiting.union(&self.untried).count()
    }

    /// A request has its answer, or its client went away.
    pub(crate) fn ends(&mut self, number: usize) {
        self.open.remove(&number);
        let request = &mut self.requests[number];
        request.done = true;
        for row in request.first..request.first + request.ask.rows.len() {
            self.rows[row].done = true;
            self.waiting.remove(&row);
            self.untried.remove(&row);
        }
    }

    /// The row with these numbers, if a client sent it: parities are none.
    pub(crate) fn row(&self, x: &[f32]) -> Option<usize> {
        self.by_value
            .get(&(x[0] as i32, x[1] as i32))
            .copied()
            .filter(|_| x[0].fract() == 0.0 && x[1].fract() == 0.0)
    }

    /// A server gets a job with these rows, for the model that they are for or for one that stands in.
    pub(crate) fn takes(&mut self, server: usize, rows: &[usize], model: &ModelRef) {
        let now = Instant::now();
        let stands_in = Model::named(&model.name) == Some(Model::Cheap);
        let warm = self.ran.get(model).is_some_and(|jobs| *jobs >= WARM);
        // What nobody else has is asked of it though it hangs.
        let elsewhere = |row: &Row| self.could_be_answered(&self.requests[row.request]);
        let wanted = rows.iter().map(|row| &self.rows[*row]).any(|row| !row.done && elsewhere(row));
        for row in rows {
            let own = &mut self.rows[*row];
            own.held += 1;
            (own.taken, own.warm) = (now, warm);
            own.holders.push(server);
            self.waiting.remove(row);
            if !stands_in {
                self.untried.remove(row);
            }
        }
        let own = &mut self.servers[server];
        own.holds += 1;
        let hangs = matches!(own.temper, Temper::Hung) && now - own.temper_since > Duration::from_secs(10);
        own.fed_in_vain += u32::from(hangs && wanted);
    }

    /// A server lets go of a job with these rows.
    pub(crate) fn lets_go(&mut self, server: usize, rows: &[usize]) {
        let now = Instant::now();
        let well = self.servers[server].temper == Temper::Well;
        for row in rows {
            let known = &mut self.rows[*row];
            known.held -= 1;
            known.holders.iter().position(|own| *own == server).map(|at| known.holders.swap_remove(at));
            // What is taken from a server that is not well counts as failed there.
            known.faults += u16::from(!well && !known.done);
            if known.held == 0 {
                known.free_since = now;
                if !known.done && !known.answered {
                    self.waiting.insert(*row);
                }
            }
        }
        let own = &mut self.servers[server];
        own.holds -= 1;
        own.idle_since = now;
    }

    /// A server is another from now on.
    pub(crate) fn becomes(&mut self, server: usize, temper: Temper) {
        let now = Instant::now();
        self.lied |= matches!(temper, Temper::Wrong);
        let own = &mut self.servers[server];
        // What one that tells nobody was given meanwhile is found out from now on.
        let since = own.silent_since.take();
        let unknown =
            own.models.iter().filter(|(_, at)| since.is_some_and(|since| **at >= since + DISCOVERY));
        let unknown: Vec<Model> = unknown.map(|(serving, _)| serving.model).collect();
        if matches!(temper, Temper::Deaf | Temper::NotReady | Temper::Gone) {
            own.silent_since = Some(since.unwrap_or(now));
        }
        (own.temper, own.temper_since, own.fed_in_vain) = (temper, now, 0);
        own.failures.clear();
        own.steady_at = own.steady_at.max(now + RECOVERY);
        unknown.into_iter().for_each(|model| self.unsettles_if_asked(model));
    }

    fn unsettles_if_asked(&mut self, model: Model) {
        if let Model::Asked(model) = model {
            self.unsettles(model);
        }
    }

    /// A server is asked for a model that it has no more: it may go for that.
    pub(crate) fn lacks(&mut self, server: usize) {
        self.servers[server].steady_at = Instant::now() + RECOVERY;
    }

    /// A server failed a job by its own fault; several in a row are a reason to eject it.
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
            // Nobody can know: requests may go to what only this one had.
            had.keys().filter(|own| !models.contains(own)).for_each(|own| self.unsettles_if_asked(own.model));
        }
        self.servers[server].models =
            models.iter().map(|model| (*model, had.get(model).copied().unwrap_or(now + DISCOVERY))).collect();
    }

    /// Whoever is named is a member, others are not.
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

    /// A model may be missing for a while.
    pub(crate) fn unsettles(&mut self, model: u8) {
        self.in_flux.insert(model, Instant::now() + RECOVERY);
    }

    pub(crate) fn is_in_flux(&self, model: u8, at: Instant) -> bool {
        self.in_flux.get(&model).is_some_and(|until| at < *until)
    }

    /// Whether a server has been well, known and in use, at this time and until now.
    pub(crate) fn is_steady(&self, server: usize, at: Instant) -> bool {
        let own = &self.servers[server];
        own.member && own.temper == Temper::Well && own.steady_at <= at
    }

    /// Whether a server has had a model that a client asks for at this time and until now.
    pub(crate) fn has(&self, server: usize, ask: &Ask, at: Instant) -> bool {
        self.servers[server].models.iter().any(|(serving, since)| {
            serving.model == Model::Asked(ask.model)
                && ask.version.is_none_or(|version| version == serving.version)
                && *since <= at
        })
    }

    /// Whether somebody steady could have answered a request all the time.
    pub(crate) fn could_be_answered(&self, request: &Request) -> bool {
        let able =
            |server| self.is_steady(server, request.sent) && self.has(server, &request.ask, request.sent);
        !self.is_in_flux(request.ask.model, request.sent) && (0..self.servers.len()).any(able)
    }
}
