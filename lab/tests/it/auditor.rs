//! An auditor of the dispatcher. It sees what passes between the dispatcher and its servers and clients and nothing else, keeps
//! its own books, and says which promise was broken. So a mistake in the dispatcher's books does not hide itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use parm_dispatcher::{
    Accept, Action, Answer, BudgetSettings, By, End, Failure, InstanceKey, InstanceSpec, JobKey, ModelKey,
    ModelSettings, Placement, Policy, QueryKey, Reject, Row, ShareKey, Submission, Time, Why,
};
use parm_lab::world::{Coded, Event, Plan, World};

/// The books.
pub(crate) struct Auditor {
    now: Time,
    /// No query waits longer for a faster instance while one is idle.
    patience: Duration,
    models: BTreeMap<ModelKey, Pool>,
    bounds: BTreeMap<ModelKey, Bounds>,
    instances: BTreeMap<InstanceKey, Place>,
    jobs: BTreeMap<JobKey, Job>,
    open: BTreeMap<QueryKey, Story>,
    /// When an instance came, went or was held.
    changed: Time,
    /// A full line to which a query was added: it or another one is to be refused.
    full: Option<(ModelKey, Option<ShareKey>)>,
}

struct Pool {
    settings: ModelSettings,
    /// When it got them. What began before may still follow the former ones.
    configured: Time,
    copies: Tokens,
    retries: Tokens,
    /// The first of its versions.
    family: ModelKey,
    answered: Time,
    exact: u32,
    /// Since when no instance that is not held runs it.
    nowhere: Option<Time>,
}

/// The approximate answers of all versions of a model.
#[derive(Default)]
struct Bounds {
    answers: Minute,
    /// Those of clients that named a bound.
    accounts: BTreeMap<((ModelKey, Option<ShareKey>), u16), Minute>,
    /// Stand-ins' answers.
    stood_in: u32,
}

/// A budget that is charged for what starts. So it can have less left than the true one, never more.
struct Tokens {
    left: f64,
    earned: f64,
    spent: f64,
}

struct Place {
    spec: InstanceSpec,
    held: bool,
    jobs: usize,
    records: BTreeMap<ModelKey, Record>,
    idle_since: Time,
    /// Queries that started elsewhere while it was idle and long enough so.
    passed_by: usize,
}

/// A model at an instance.
struct Record {
    /// Since when each of its runs was answered.
    well: Option<Time>,
    /// Runs in a row that failed because of the instance, and when the last one did.
    failures: u8,
    failed: Time,
    /// Since when its answers are known to be wrong.
    wrong: Option<Time>,
}

struct Job {
    instance: InstanceKey,
    model: ModelKey,
    why: Why,
    rows: Vec<QueryKey>,
    began: Time,
    cancelled: bool,
}

/// What happened to a query.
struct Story {
    of: Submission<u64>,
    /// Runs of its model that it waited for, of these those that no server received, and those that have not ended.
    runs: usize,
    unsent: usize,
    running: usize,
    /// Runs of its model's stand-in, and those that have not ended.
    stand_ins: usize,
    standing_in: usize,
    /// When the last of them began.
    began: Time,
    /// Whether a batch with it failed, so that it runs alone.
    alone: bool,
    failed: Vec<(InstanceKey, Time, Failure)>,
    arrived: Time,
    /// Since when it has waited for an instance.
    since: Time,
    /// Whether an approximate answer is ready.
    covered: bool,
    /// When it had a reconstruction, and from when on that may be given, as far as was known then.
    offered: Time,
    late: Time,
    /// Where its model answered it.
    answered: Option<InstanceKey>,
}

/// Answers of the last minute, all and approximate ones, by the second.
#[derive(Default)]
struct Minute(VecDeque<(u64, u32, u32)>);

/// Approximate answers that a model may give in a minute with few answers.
const FLOOR: u32 = 20;
/// No model's usual time is shorter than this, although some runs end early.
const SHORTEST: Duration = Duration::from_millis(1);
/// No query waits longer for a faster instance, where all are equal and where one is slow.
const PATIENCE: Duration = Duration::from_millis(200);
const PATIENCE_FOR_FASTER: Duration = Duration::from_secs(1);
/// After so many answers a run that lasts so long is late.
const KNOWN: u32 = 100;
const LATE: Duration = Duration::from_millis(600);
/// A reconstruction of a late query is given after this time at the latest: what is late is not known exactly.
const GIVEN: Duration = Duration::from_millis(50);
/// The longest pause of an instance that is idle, while queries start elsewhere: that of one which was taken out of service, and
/// twelve runs of a slow one.
const PAUSE: Duration = Duration::from_secs(6);
/// After failures an instance gets no job for so long.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

impl Tokens {
    fn new(settings: BudgetSettings) -> Self {
        Self { left: f64::from(settings.burst), earned: f64::from(settings.burst), spent: 0.0 }
    }

    fn earn(&mut self, settings: BudgetSettings) {
        self.earned += settings.ratio;
        self.left = (self.left + settings.ratio).min(f64::from(settings.burst.max(1)));
    }

    fn spend(&mut self) -> bool {
        self.left = (self.left - 1.0).max(0.0);
        self.spent += 1.0;
        self.spent <= self.earned + 1e-6
    }
}

impl Pool {
    fn new(settings: ModelSettings, now: Time, family: ModelKey) -> Self {
        Self {
            settings,
            family,
            configured: now,
            copies: Tokens::new(settings.hedges),
            retries: Tokens::new(settings.retries),
            answered: now,
            exact: 0,
            nowhere: Some(now),
        }
    }
}

impl Record {
    /// Whether a model that answered wrongly is not even tried.
    fn is_barred(&self, now: Time) -> bool {
        self.wrong.is_some_and(|since| now.since(since) < Duration::from_secs(60))
    }
}

impl Place {
    fn new(spec: InstanceSpec, now: Time) -> Self {
        let (records, idle_since) = (BTreeMap::new(), now);
        let mut place = Self { spec, held: false, jobs: 0, records, idle_since, passed_by: 0 };
        place.note_models(now);
        place
    }

    fn runs(&self, model: ModelKey) -> bool {
        self.spec.models.iter().any(|of| of.model == model)
    }

    fn is_well(&self, model: ModelKey) -> bool {
        self.records.get(&model).is_some_and(|record| record.well.is_some())
    }

    /// Keeps a record of each of its models. A new one may share the trouble of the others.
    fn note_models(&mut self, now: Time) {
        let models: Vec<ModelKey> = self.spec.models.iter().map(|of| of.model).collect();
        self.records.retain(|model, _| models.contains(model));
        let well = self.records.values().all(|record| record.well.is_some()).then_some(now);
        for model in models {
            self.records.entry(model).or_insert(Record { well, failures: 0, failed: now, wrong: None });
        }
    }

    /// A run of a model failed because of it.
    fn failed(&mut self, model: ModelKey, now: Time) {
        if let Some(record) = self.records.get_mut(&model) {
            (record.well, record.failures, record.failed) = (None, record.failures.saturating_add(1), now);
        }
    }
}

impl Minute {
    fn note(&mut self, now: Time, approximate: bool) {
        let second = now.as_nanos() / 1_000_000_000;
        while self.0.front().is_some_and(|(at, ..)| at + 60 < second) {
            self.0.pop_front();
        }
        if self.0.back().is_none_or(|(at, ..)| *at < second) {
            self.0.push_back((second, 0, 0));
        }
        if let Some((_, all, yes)) = self.0.back_mut() {
            *all += 1;
            *yes += u32::from(approximate);
        }
    }

    fn keeps(&self, share: f64, floor: u32) -> bool {
        let (all, approximate) =
            self.0.iter().fold((0, 0), |(all, yes), (_, more, of)| (all + more, yes + of));
        approximate <= floor.max((f64::from(all) * share) as u32)
    }
}

fn require(kept: bool, promise: impl FnOnce() -> String) -> Result<(), String> {
    if kept { Ok(()) } else { Err(promise()) }
}

impl Auditor {
    /// One for a world at its beginning.
    pub(crate) fn new(plan: &Plan, world: &World) -> Self {
        let parity = ModelSettings::default();
        let stand_in = world.stand_in;
        let mut models = vec![(world.model, ModelSettings { stand_in, ..plan.settings })];
        let of_stand_in = ModelSettings { max_rows: plan.settings.max_rows, ..ModelSettings::default() };
        models.extend(stand_in.map(|model| (model, of_stand_in)));
        models.extend(world.second.zip(plan.second));
        let parities = world.coded.iter().flat_map(Coded::models);
        models.extend(parities.map(|model| (model, ModelSettings { policy: Policy::NONE, ..parity })));
        Self {
            now: Time::ZERO,
            patience: if plan.faults.0.is_empty() { PATIENCE } else { PATIENCE_FOR_FASTER },
            models: models
                .into_iter()
                .map(|(key, settings)| (key, Pool::new(settings, Time::ZERO, key)))
                .collect(),
            bounds: BTreeMap::new(),
            instances: BTreeMap::new(),
            jobs: BTreeMap::new(),
            open: BTreeMap::new(),
            changed: Time::ZERO,
            full: None,
        }
    }

    /// Books what happened since the last call.
    pub(crate) fn audit(&mut self, world: &mut World) -> Result<(), String> {
        self.now = world.now;
        for event in std::mem::take(&mut world.log) {
            self.book(event)?;
        }
        self.balance()?;
        for (key, story) in self.open.iter_mut().filter(|(_, story)| story.offered <= self.now) {
            let late = world.dispatcher.late_at(*key).unwrap_or(Time::MAX);
            if story.offered == self.now {
                story.late = late.max(self.now);
            }
            let is_known = !story.of.background
                && story.of.accept == Accept::Any
                && self.models[&story.of.model].configured < story.offered;
            let given = !is_known || late.max(story.late) + GIVEN >= self.now;
            require(given, || format!("{key:?} is late and has a reconstruction that is not given"))?;
        }
        for (key, pool) in &self.models {
            // A budget that has lost tokens never has them again while queries are few.
            let Some(reading) = world.dispatcher.reading(self.now, *key) else { continue };
            // A minute has as many approximate answers as were given.
            let given = self.bounds.get(&pool.family).map_or(0, |bounds| bounds.stood_in);
            require(reading.approximate.is_none_or(|[counted, ..]| counted <= given), || {
                format!("the bound counts {:?}, and {given} were given", reading.approximate)
            })?;
            let left = [reading.hedges[0], reading.retries[0]];
            let kept = left[0] + 1e-3 >= pool.copies.left && left[1] + 1e-3 >= pool.retries.left;
            require(kept || !self.open.is_empty(), || {
                format!("budgets have lost tokens: {left:?} are left")
            })?;
        }
        Ok(())
    }

    fn book(&mut self, event: Event) -> Result<(), String> {
        let now = self.now;
        match event {
            Event::Arrived(key, of) => {
                let story = Story {
                    of,
                    runs: 0,
                    unsent: 0,
                    running: 0,
                    stand_ins: 0,
                    standing_in: 0,
                    began: now,
                    alone: false,
                    failed: Vec::new(),
                    arrived: now,
                    since: now,
                    covered: false,
                    offered: Time::MAX,
                    late: Time::MAX,
                    answered: None,
                };
                let is_untried = |own: &&Story| {
                    own.payer() == story.payer() && own.waits() && own.runs + own.stand_ins == 0
                };
                let waiting = self.open.values().filter(is_untried).count();
                if !story.of.background
                    && waiting >= self.models[&story.of.model].settings.queue_limit as usize
                {
                    self.full = Some(story.payer());
                }
                self.open.insert(key, story);
            }
            Event::Offered(key) => {
                let offered = |story: &mut Story| (story.covered, story.offered) = (true, now);
                self.open.entry(key).and_modify(offered);
            }
            Event::Left(key) => {
                self.open.remove(&key);
            }
            Event::Joined(key, spec) => {
                self.instances.insert(key, Place::new(spec, now));
                self.note_usable();
            }
            Event::Held(key, held) => {
                let place = self.instances.get_mut(&key).ok_or("it is not there")?;
                (place.held, place.idle_since, place.passed_by) = (held, now, 0);
                self.note_usable();
            }
            Event::Serves(key, spec) => {
                let place = self.instances.get_mut(&key).ok_or("it is not there")?;
                (place.spec, place.idle_since, place.passed_by) = (spec, now, 0);
                place.note_models(now);
                self.note_usable();
            }
            Event::Configured(key, settings) => {
                let pool = self.models.get_mut(&key).ok_or("no such model")?;
                (pool.settings, pool.configured) = (settings, now);
            }
            Event::Replaced(old, new, settings) => {
                let family = self.models.get(&old).ok_or("no such model")?.family;
                self.models.insert(new, Pool::new(settings, now, family));
                self.note_usable();
            }
            Event::Distrusted(key, model) => {
                let place = self.instances.get_mut(&key).ok_or("it is not there")?;
                let record = place.records.get_mut(&model).ok_or("it has not this model")?;
                (record.well, record.wrong) = (None, Some(now));
            }
            Event::Gone(key) => {
                self.instances.remove(&key).ok_or("it is not there")?;
                self.note_usable();
                let jobs: Vec<_> = self.jobs.iter().filter(|(_, job)| job.instance == key).collect();
                for job in jobs.into_iter().map(|(job, _)| *job).collect::<Vec<_>>() {
                    self.ended(job, &End::Failed(Failure::Instance))?;
                }
            }
            Event::Ended(job, end) => self.ended(job, &end)?,
            Event::Asks(Action::Run { job, instance, model, why, rows }) => {
                self.runs(model, why, instance, &rows)?;
                let rows = rows.iter().map(|row| row.query).collect();
                self.jobs.insert(job, Job { instance, model, why, rows, began: now, cancelled: false });
            }
            Event::Asks(Action::Cancel { job, .. }) => {
                let job = self.jobs.get_mut(&job).ok_or("a job that has ended is cancelled")?;
                require(!job.cancelled, || "a job is cancelled twice".into())?;
                job.cancelled = true;
            }
            Event::Asks(Action::Tell { .. }) => {}
            Event::Asks(Action::Probe { instance }) => {
                let place = self.instances.get_mut(&instance).ok_or("it is not there")?;
                place.passed_by = 0;
                // Its answer ends failures in a row.
                place.records.values_mut().for_each(|record| record.failures = 0);
            }
            Event::Asks(Action::Ask { .. } | Action::Return { .. }) => {
                return Err("an instance of this frontend alone is asked for room".into());
            }
            Event::Asks(Action::Reply { query, payload, result }) => {
                let known = self.open.get(&query).is_none_or(|story| story.of.payload == payload);
                require(known, || "a reply has another query's payload".into())?;
                self.replied(query, result)?;
            }
        }
        Ok(())
    }

    /// Takes note of which models have an instance that is not held.
    fn note_usable(&mut self) {
        self.changed = self.now;
        for (model, pool) in &mut self.models {
            let mut usable = self.instances.values().filter(|place| !place.held && place.runs(*model));
            pool.nowhere = if usable.next().is_some() { None } else { pool.nowhere.or(Some(self.now)) };
        }
    }

    /// A run starts.
    fn runs(&mut self, model: ModelKey, why: Why, at: InstanceKey, rows: &[Row<u64>]) -> Result<(), String> {
        let now = self.now;
        let place = self.instances.get(&at).ok_or("a job goes to an instance that is gone")?;
        let pool = &self.models[&model];
        require(!place.held, || "a held instance gets a job".into())?;
        require(place.jobs < usize::from(place.spec.slots), || "a job exceeds an instance's slots".into())?;
        require(!rows.is_empty() && rows.len() <= pool.settings.max_rows as usize, || {
            format!("a job has {} rows", rows.len())
        })?;
        let health = pool.settings.health;
        let record = place.records.get(&model).ok_or("an instance gets a model that it has not")?;
        require(!record.is_barred(now), || "who answers wrongly gets a job".into())?;
        let is_failing = record.failures >= health.failures
            && now.since(record.failed) < FIRST_PAUSE
            && why != Why::Explore
            && self.changed < record.failed
            && self.idle_and_well(model, record.failed) > self.least(model);
        require(!is_failing, || {
            "an instance that just failed several times gets a query, while others are idle".into()
        })?;
        for row in rows {
            let story = self.open.get(&row.query).ok_or("a query that has ended runs")?;
            let is_own = story.of.model == model;
            let settings = &self.models[&story.of.model].settings;
            require(row.payload == story.of.payload, || "a query runs with another's payload".into())?;
            require(is_own || settings.stand_in == Some(model), || "a query runs on another's model".into())?;
            require(is_own || story.of.accept != Accept::Exact, || {
                "a stand-in runs for a client that takes exact answers only".into()
            })?;
            if why == Why::Explore {
                continue;
            }
            let first = self.open.get(&rows[0].query).map(|story| story.of.shape);
            require(first == Some(story.of.shape), || {
                format!("rows of {first:?} and {:?} share a job", story.of.shape)
            })?;
            require(rows.len() == 1 || !story.alone, || {
                "a query shares a job after such a job failed".into()
            })?;
            let here = self
                .jobs
                .values()
                .any(|job| job.instance == at && job.why != Why::Explore && job.rows.contains(&row.query));
            require(!here, || "a query runs twice at an instance".into())?;
            let others = self.instances.values().filter(|place| place.runs(model)).count();
            let just =
                |(own, when, _): &(InstanceKey, Time, Failure)| *own == at && *when == now && others > 1;
            require(!story.failed.iter().any(just), || {
                format!("{why:?} goes where the query just failed: {:?}, {at:?}", story.failed)
            })?;
            if is_own {
                self.may_run(story, why)?;
            }
            if story.of.background {
                self.may_run_background(at, model)?;
            }
        }
        for row in rows.iter().filter(|_| why != Why::Explore) {
            let Some(story) = self.open.get_mut(&row.query) else { continue };
            let is_own = usize::from(story.of.model == model);
            story.began = now;
            (story.runs, story.running) = (story.runs + is_own, story.running + is_own);
            (story.stand_ins, story.standing_in) =
                (story.stand_ins + 1 - is_own, story.standing_in + 1 - is_own);
            let pool = self.models.get_mut(&story.of.model).ok_or("no such model")?;
            let within = match why {
                Why::First => {
                    pool.copies.earn(pool.settings.hedges);
                    pool.retries.earn(pool.settings.retries);
                    true
                }
                Why::Hedge => pool.copies.spend(),
                Why::Retry => pool.retries.spend(),
                Why::StandIn | Why::Explore | Why::Copy => true,
            };
            require(within, || format!("{why:?} exceeds its budget"))?;
            let policy = pool.settings.policy;
            if why == Why::First
                && !story.of.background
                && policy.repeats
                && policy.placement == Placement::BySpeed
            {
                let returns = |place: &&mut Place| {
                    place.records.get(&model).is_some_and(|record| !record.is_barred(now))
                };
                for place in self.instances.values_mut().filter(returns) {
                    let is_idle = place.jobs == 0 && now.since(place.idle_since) > PAUSE;
                    place.passed_by += usize::from(is_idle);
                }
            }
        }
        if let Some(place) = self.instances.get_mut(&at) {
            (place.jobs, place.passed_by) = (place.jobs + 1, 0);
        }
        Ok(())
    }

    /// Idle instances of a model each of whose runs was answered since this moment.
    fn idle_and_well(&self, model: ModelKey, since: Time) -> usize {
        let idle = |place: &&Place| {
            let well = place.records.get(&model).and_then(|record| record.well);
            place.jobs == 0 && !place.held && well.is_some_and(|from| from <= since)
        };
        self.instances.values().filter(idle).count()
    }

    /// Instances of a model that stay in service although they fail.
    fn least(&self, model: ModelKey) -> usize {
        let all = self.instances.values().filter(|place| place.runs(model)).count();
        (self.models[&model].settings.health.least_in_service * all as f64).ceil() as usize
    }

    /// Whether a query may run once more on its model.
    fn may_run(&self, story: &Story, why: Why) -> Result<(), String> {
        let Pool { settings, configured, .. } = &self.models[&story.of.model];
        if story.arrived <= *configured {
            return Ok(());
        }
        let most = settings.max_attempts.max(settings.policy.runs);
        let is_once = !settings.policy.repeats || story.of.background;
        require(story.attempts(is_once) < usize::from(most) + usize::from(story.alone), || {
            format!("a query has more than {most} attempts")
        })?;
        let permits = match why {
            Why::Hedge => settings.policy.hedge,
            Why::Copy => settings.policy.runs > 1,
            Why::First | Why::Retry | Why::StandIn | Why::Explore => true,
        };
        require(permits && (why == Why::First || !story.of.background || why == Why::Retry), || {
            format!("{why:?} of a query whose policy has none")
        })?;
        let failed = |failure| {
            let at = story.failed.iter().filter(|(.., own)| *own == failure).map(|(at, ..)| *at);
            at.collect::<BTreeSet<InstanceKey>>().len()
        };
        // Another attempt may have been wanted before it was known.
        let is_at_fault = [(1, Failure::Query), (2, Failure::Model)]
            .into_iter()
            .any(|(times, failure)| story.runs == times && failed(failure) == times);
        require(why != Why::Retry || !is_at_fault, || "a query that is at fault is sent again".into())?;
        require(!is_once || story.runs == story.unsent, || "a query is sent again under `once`".into())
    }

    /// Whether a background query may start: nobody waits for the instance, and another one stays idle.
    fn may_run_background(&self, at: InstanceKey, model: ModelKey) -> Result<(), String> {
        let place = &self.instances[&at];
        require(place.jobs == 0, || "a background query starts beside another job".into())?;
        let waits = |story: &Story| story.runs == 0 && story.waits() && place.runs(story.of.model);
        require(!self.open.values().any(waits), || "a background query starts before one that waits".into())?;
        let spare = self
            .instances
            .iter()
            .any(|(own, place)| *own != at && place.jobs == 0 && !place.held && place.runs(model));
        require(spare, || "background queries use the last idle instance".into())
    }

    /// Whether a model's instances may answer nothing: each has a long job, or failed.
    fn may_be_out(&self, model: ModelKey) -> bool {
        let is_long = |began: Time| self.now.since(began) > SHORTEST;
        let has_long =
            |at: InstanceKey| self.jobs.values().any(|job| job.instance == at && is_long(job.began));
        let well = self.instances.iter().filter(|(_, place)| !place.held && place.is_well(model));
        let mut answers = well.filter(|(at, _)| !has_long(**at));
        answers.next().is_none() && is_long(self.models[&model].answered)
    }

    fn ended(&mut self, key: JobKey, end: &End<u64>) -> Result<(), String> {
        let job = self.jobs.remove(&key).ok_or("an unknown job ended")?;
        let now = self.now;
        if let Some(place) = self.instances.get_mut(&job.instance) {
            place.jobs -= 1;
            (place.idle_since, place.passed_by) = (now, 0);
            match (end, place.records.get_mut(&job.model)) {
                (End::Answered(_), Some(record)) if !record.is_barred(now) => {
                    (record.well, record.failures) = (record.well.or(Some(now)), 0);
                }
                (End::Failed(Failure::Instance), _) => place.failed(job.model, now),
                (End::Failed(_), Some(record)) => record.well = None,
                // It may hang.
                (End::Cancelled, _) => place.records.values_mut().for_each(|record| record.well = None),
                (End::Answered(_), _) | (_, None) => {}
            }
        }
        for (at, query) in job.rows.iter().enumerate() {
            let Some(story) = self.open.get_mut(query).filter(|_| job.why != Why::Explore) else { continue };
            let is_own = story.of.model == job.model;
            let repeats = self.models[&story.of.model].settings.policy.repeats;
            story.running -= usize::from(is_own);
            story.standing_in -= usize::from(!is_own);
            let failure = match end {
                End::Answered(outputs) if outputs[at].is_some() && is_own => {
                    story.answered = Some(job.instance);
                    continue;
                }
                End::Answered(outputs) if outputs[at].is_some() => {
                    story.covered = true;
                    continue;
                }
                End::Answered(_) => Failure::Model,
                End::Failed(failure) => *failure,
                End::Cancelled => Failure::Instance,
            };
            story.since = now;
            let is_bad = matches!(failure, Failure::Model | Failure::Query);
            if job.rows.len() > 1 && is_bad && repeats {
                story.alone = true;
            } else if is_own {
                story.unsent += usize::from(failure == Failure::Unsent);
                story.failed.push((job.instance, now, failure));
            }
        }
        Ok(())
    }

    fn replied(&mut self, key: QueryKey, result: Result<Answer<u64>, Reject>) -> Result<(), String> {
        let story = self.open.remove(&key).ok_or("a query has two replies, or its client has left")?;
        let now = self.now;
        require(now <= story.of.deadline, || "a query has its reply after its deadline".into())?;
        let may_wait =
            |own: &&Story| own.of.model == story.of.model && !own.of.background && own.running == 0;
        let backlog = self.open.values().filter(may_wait).count();
        let waiting = self.open.values().filter(|own| may_wait(own) && own.payer() == story.payer()).count();
        let open = self.open.len();
        let silent = self.may_be_out(story.of.model);
        let pool = self.models.get_mut(&story.of.model).ok_or("no such model")?;
        let settings = &pool.settings;
        let bounds = self.bounds.entry(pool.family).or_default();
        if result == Err(Reject::QueueFull) {
            self.full = None;
        }
        let why = match result {
            Ok(Answer { by, .. }) => {
                let stood_in = by == By::StandIn;
                require(!by.is_approximate() || story.of.accept != Accept::Exact, || {
                    "a client that takes exact answers only has an approximate one".into()
                })?;
                bounds.stood_in += u32::from(stood_in);
                if let Some(stand_in) = settings.policy.stand_in.filter(|_| !story.of.background) {
                    // While the model answers nothing, the bound need not count.
                    if !(stood_in && stand_in.in_outage && silent) {
                        bounds.answers.note(now, stood_in);
                    }
                    let floor = if stand_in.bound > 0.0 { FLOOR } else { 0 };
                    require(!stood_in || bounds.answers.keeps(stand_in.bound, floor), || {
                        "more answers are approximate than the bound allows".into()
                    })?;
                }
                if !by.is_approximate() {
                    (pool.answered, pool.exact) = (now, pool.exact + 1);
                    // Where the model failed on it, the instance is at fault.
                    for (at, _, failure) in &story.failed {
                        let place = self.instances.get_mut(at).filter(|_| Some(*at) != story.answered);
                        if let Some(place) = place.filter(|_| *failure == Failure::Model) {
                            place.failed(story.of.model, now);
                        }
                    }
                }
                if let Accept::AtMost(most) = story.of.accept {
                    // A share's is the same for all versions.
                    let (model, share) = story.payer();
                    let payer = (share.map_or(model, |_| pool.family), share);
                    let account = bounds.accounts.entry((payer, most)).or_default();
                    if settings.policy.stand_in.is_some() && !story.of.background {
                        account.note(now, by.is_approximate());
                    }
                    let is_counted = !by.is_approximate() || stood_in;
                    require(is_counted && (!stood_in || account.keeps(f64::from(most) / 1000.0, 0)), || {
                        "more answers are approximate than the clients' bound allows".into()
                    })?;
                }
                return Ok(());
            }
            Err(why) => why,
        };
        let of = |failure| story.failed.iter().filter(|(.., own)| *own == failure).count();
        let justified = match why {
            Reject::Deadline => {
                // Some approximate answers are always allowed.
                let bound = settings.policy.stand_in.map_or(0.0, |stand_in| stand_in.bound);
                let may_stand_in = story.covered && bound > 0.0 && bounds.stood_in < FLOOR;
                let is_welcome = story.offered < now || may_stand_in;
                now == story.of.deadline && !(is_welcome && story.of.accept == Accept::Any)
            }
            Reject::QueueFull => waiting >= settings.queue_limit as usize || story.of.background,
            Reject::NoInstance => pool.nowhere.is_some(),
            Reject::BadQuery => of(Failure::Query) > 0 || of(Failure::Model) > 1,
            Reject::Overload => story.runs == 0 || backlog > 0,
            Reject::Failed(Failure::Withheld) => of(Failure::Withheld) > 0,
            Reject::Failed(failure) => {
                let is_unsent = of(Failure::Unsent) == story.failed.len();
                let repeats = settings.policy.repeats && !story.of.background;
                let may_retry = (repeats || is_unsent)
                    && story.attempts(!repeats) < usize::from(settings.max_attempts)
                    && of(Failure::Withheld) == 0
                    && pool.retries.left > open as f64 + 1.0;
                of(failure) > 0 && !may_retry
            }
        };
        require(justified, || format!("a query is given up without need: {why:?}, {:?}", story.failed))?;
        require(story.running == 0 || why == Reject::Deadline, || {
            format!("a query that runs is given up: {why:?}")
        })
    }

    /// Whether a query that runs for very long has no copy, although it may have one and an instance was idle long enough to be found.
    fn lacks_copy(&self, story: &Story, pool: &Pool) -> bool {
        let settings = &pool.settings;
        let is_late = |since: Time| self.now.since(since) > LATE;
        let may_copy = settings.policy.hedge
            && settings.policy.stand_in.is_none()
            && settings.max_attempts > 1
            && !story.of.background
            && (story.runs, story.running) == (1, 1)
            && story.arrived > pool.configured
            && pool.exact > KNOWN
            && pool.copies.left > self.open.len() as f64 + 1.0;
        let is_idle = |place: &Place| {
            place.jobs == 0
                && !place.held
                && place.is_well(story.of.model)
                && self.now.since(place.idle_since) > LATE / 4
        };
        may_copy && is_late(story.began) && self.instances.values().any(is_idle)
    }

    /// What holds between events.
    fn balance(&self) -> Result<(), String> {
        let now = self.now;
        for (key, job) in &self.jobs {
            let needed = job.why == Why::Explore || job.rows.iter().any(|row| self.open.contains_key(row));
            require(needed || job.cancelled, || format!("{key:?} goes on, and nobody needs it"))?;
            require(!needed || !job.cancelled, || format!("{key:?} was cancelled, and is needed"))?;
        }
        require(self.full.is_none(), || format!("more queries of {:?} wait than may", self.full))?;
        for (key, place) in &self.instances {
            let often = 20 * self.instances.len();
            require(place.held || place.passed_by < often, || format!("{key:?} never gets a job again"))?;
        }
        for (key, story) in &self.open {
            require(story.answered.is_none(), || format!("{key:?} has an answer and no reply"))?;
            let model = story.of.model;
            let pool = &self.models[&model];
            require(!self.lacks_copy(story, pool), || format!("{key:?} is late and gets no copy"))?;
            if !story.waits() {
                continue;
            }
            let nowhere = pool
                .nowhere
                .is_some_and(|from| now.since(from.max(story.since)) > pool.settings.instance_wait);
            require(!nowhere, || format!("{key:?} waits for the first instance for ever"))?;
            let waits = now.since(story.since) > self.patience;
            require(!waits || self.idle_and_well(model, now) == 0, || {
                format!("{key:?} waits while an instance is idle that answered its last job")
            })?;
        }
        Ok(())
    }
}

impl Story {
    /// Its runs that count as attempts. Where it is sent once, one that no server received does not.
    fn attempts(&self, is_once: bool) -> usize {
        self.runs - if is_once { self.unsent } else { 0 }
    }

    /// The line that it waits in, which has a limit.
    fn payer(&self) -> (ModelKey, Option<ShareKey>) {
        (self.of.model, self.of.share)
    }

    /// Whether somebody waits for it, and it for an instance.
    fn waits(&self) -> bool {
        !self.of.background && !self.covered && self.running + self.standing_in == 0
    }
}
