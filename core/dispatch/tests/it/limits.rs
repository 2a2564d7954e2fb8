//! Extreme settings: the dispatcher answers every query at every number that settings accept.
//!
//! The list of settings is that of the schema, so a new field is covered without a change here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use parm_dispatch::{
    Accept, Action, Actions, Dispatcher, Event, Failure, InstanceId, InstanceSpec, JobId, Judgement, QueryId,
    QuerySpec, Served, Settings, ShapeId, Site, Time,
};
use parm_durations::leaves;
use parm_settings::{PolicyKind, PoolSettings};
use toml::{Table, Value};

use super::world::POOL;

/// Values for each setting, as TOML, which has no `null`. No file can hold a larger number than the largest of them.
const VALUES: [&str; 16] = [
    "nan",
    "inf",
    "-inf",
    "-1",
    "-1.0",
    "0",
    "0.0",
    "1",
    "1.0",
    "2",
    "4294967296",
    "9223372036854775807",
    "1e300",
    "1e-300",
    "\"\"",
    "[]",
];

const QUERIES: u64 = 120;
const INSTANCES: u32 = 4;
const MS: Duration = Duration::from_millis(1);

#[test]
fn extreme_settings_are_refused_or_served() {
    let schema = schemars::schema_for!(PoolSettings).to_value();
    let all = leaves(&schema);
    let (mut covered, mut served, mut refused) = (BTreeSet::new(), 0, 0);
    for leaf in &all {
        for text in VALUES {
            let Ok(settings) = with(&leaf.path, text) else {
                refused += 1;
                continue;
            };
            for policy in PolicyKind::ALL {
                let settings = PoolSettings { policy, ..settings.clone() };
                let answered = std::panic::catch_unwind(|| Run::new(settings).serve());
                let what = format!("{} = {text} under {policy:?}", leaf.path.join("."));
                let answered = answered.unwrap_or_else(|_| panic!("{what} panics"));
                assert_eq!(answered, QUERIES, "{what}: queries answered");
                served += 1;
            }
        }
        covered.insert(leaf.path.clone());
    }
    assert_eq!(covered.len(), all.len(), "settings covered: {refused} values refused, {served} runs served");
    assert!(refused > all.len() && served > all.len(), "{refused} values refused, {served} runs served");
    let mut written = BTreeSet::new();
    fields(&Value::try_from(PoolSettings::default()).unwrap(), &mut Vec::new(), &mut written);
    let unknown: Vec<_> = written.iter().filter(|path| !covered.contains(*path)).collect();
    assert!(unknown.is_empty(), "settings that the schema lacks: {unknown:?}");
}

/// The default settings with one value.
fn with(path: &[String], text: &str) -> Result<PoolSettings, toml::de::Error> {
    let mut value = format!("value = {text}").parse::<Table>().unwrap().remove("value").unwrap();
    let mut path = path;
    if let [before @ .., last] = path
        && last == "*"
    {
        (path, value) = (before, Value::Array(vec![value]));
    }
    let mut whole = Value::try_from(PoolSettings::default()).unwrap();
    let mut here = &mut whole;
    for name in path {
        let table = here.as_table_mut().unwrap();
        here = table.entry(name.clone()).or_insert(Value::Boolean(false));
    }
    *here = value;
    whole.try_into()
}

/// The paths of the fields of a value; a list counts as its members.
fn fields(value: &Value, path: &mut Vec<String>, found: &mut BTreeSet<Vec<String>>) {
    match value {
        Value::Table(table) => {
            for (name, below) in table {
                path.push(name.clone());
                fields(below, path, found);
                path.pop();
            }
        }
        Value::Array(_) => {
            found.insert([path.as_slice(), &["*".to_owned()]].concat());
        }
        _ => {
            found.insert(path.clone());
        }
    }
}

/// A short history: times become known, one instance is slow, another fails now and then, and one leaves.
struct Run {
    dispatcher: Dispatcher,
    now: Time,
    wake: Option<Time>,
    running: BTreeMap<JobId, (Time, InstanceId)>,
    jobs: u64,
    answered: BTreeSet<QueryId>,
}

impl Run {
    fn new(settings: PoolSettings) -> Self {
        Self {
            dispatcher: Dispatcher::new(Settings::uniform(settings), 7),
            now: Time::ZERO,
            wake: None,
            running: BTreeMap::new(),
            jobs: 0,
            answered: BTreeSet::new(),
        }
    }

    /// Serves the queries, and returns how many of them were answered.
    fn serve(mut self) -> u64 {
        for id in 0..INSTANCES {
            let spec = InstanceSpec {
                serves: vec![Served::all(POOL)],
                slots: 1,
                site: Site::default(),
                learns: false,
            };
            self.send(Event::InstanceJoined(InstanceId(id), spec));
        }
        for number in 0..QUERIES {
            let accept = if number % 3 == 0 { Accept::AtMost(100) } else { Accept::Any };
            let query = QuerySpec {
                id: QueryId(number),
                pool: POOL,
                shape: ShapeId(0),
                deadline: self.now + 500 * MS,
                priority: (number % 4) as u8,
                share: None,
                accept,
                codable: true,
                size: 1,
                padded: false,
            };
            self.send(Event::QueryArrived(query));
            // Then a burst, so that queries wait.
            self.advance(if number > QUERIES / 2 && number % 16 > 8 { Duration::ZERO } else { 8 * MS });
        }
        self.send(Event::InstanceLeft(InstanceId(0)));
        self.advance(2000 * MS);
        self.answered.len() as u64
    }

    fn advance(&mut self, by: Duration) {
        let end = self.now + by;
        loop {
            let done =
                self.running.iter().min_by_key(|(_, (at, _))| *at).map(|(id, (at, on))| (*at, *id, *on));
            let wake = self.wake.filter(|wake| *wake <= end && done.is_none_or(|(at, ..)| *wake < at));
            if let Some(at) = wake {
                self.now = self.now.max(at);
                self.wake = None;
                self.send(Event::TimerFired);
            } else if let Some((at, id, instance)) = done.filter(|(at, ..)| *at <= end) {
                self.now = self.now.max(at);
                self.running.remove(&id);
                self.jobs += 1;
                let fails = instance == InstanceId(1) && self.jobs.is_multiple_of(5);
                self.send(if fails {
                    Event::JobFailed(id, Failure::Instance)
                } else {
                    Event::JobCompleted(id)
                });
            } else {
                break;
            }
        }
        self.now = end;
    }

    fn send(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        let mut actions = Actions::new();
        while let Some(event) = events.pop_front() {
            self.dispatcher.on_event(self.now, event, &mut actions);
            for action in actions.drain(..) {
                events.extend(self.obey(action));
            }
        }
    }

    fn obey(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::Run(job, _) => {
                let slow = job.instance == InstanceId(2) && self.jobs > 40 && self.jobs.is_multiple_of(2);
                let takes = if slow { 150 * MS } else { 20 * MS };
                self.running.insert(job.id, (self.now + takes, job.instance));
                return None;
            }
            Action::WakeAt(at) => self.wake = Some(at),
            Action::Answer(query, _) => {
                assert!(self.answered.insert(query), "{query:?} was answered twice");
            }
            Action::Probe(id, pool) => return Some(Event::ProbeAnswered(id, pool, true)),
            Action::Encode(group, _) => return Some(Event::GroupEncoded(group)),
            Action::Decode(recovery) => {
                let (group, query) = (recovery.group, recovery.query);
                return Some(Event::SlotDecoded { group, query, confidence: Some(0.9) });
            }
            Action::Compare(comparison) => return Some(Event::Compared(comparison.group, Vec::new())),
            Action::Judge(query, output) => {
                return Some(Event::Judged(query, output, Judgement::Fit(Some(0.9))));
            }
            Action::Check(pair) => return Some(Event::Checked(pair, Some(true))),
            _ => {}
        }
        None
    }
}
