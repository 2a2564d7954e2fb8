//! Scripts for the tests of rules that several calls of the dispatcher show.

use std::time::Duration;

use crate::{
    Accept, Action, Dispatcher, End, Failure, InstanceKey, InstanceSpec, JobKey, ModelKey, ModelSettings,
    QueryKey, ShareKey, Submission, Time,
};

/// A dispatcher with the names of a script: models, instances, queries and jobs are numbered as they come.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) dispatcher: Dispatcher<usize, u32>,
    pub(crate) models: Vec<ModelKey>,
    pub(crate) instances: Vec<InstanceKey>,
    pub(crate) queries: Vec<QueryKey>,
    pub(crate) now: Time,
    /// Each job with its number of rows.
    jobs: Vec<(JobKey, usize)>,
    seen: Vec<String>,
}

impl Script {
    /// One model with these settings.
    pub(crate) fn new(settings: ModelSettings) -> Self {
        let mut script = Self::default();
        script.models.push(script.dispatcher.add_model(settings));
        script
    }

    /// Plays a script, and says in words what the dispatcher did. Each word is a call, and a number is the time in ms from
    /// then on.
    ///
    /// `+2` is an instance with two slots and all models, `-0` leaves, `h0` is held and `u0` no longer. `q` is a query with a deadline
    /// of a second, and with `p5` of that priority, `d50` of that deadline, `m1` for that model, `s1` of that share, `b` in the
    /// background, `z2` of that size, `e` for exact answers only and `l10` for ten thousandths of approximate ones: `q,p5,e`. The client of `x0`
    /// leaves. The job `a0` is answered, `n0` without an output, `c0` was cancelled, and `fi0`, `fu0`, `fm0`, `fq0`, `fw0` fail.
    pub(crate) fn play(&mut self, script: &str) -> String {
        for word in script.split_whitespace() {
            let number: usize = word.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0);
            let now = self.now;
            match word.split_at(1).0 {
                "+" => {
                    let spec = InstanceSpec::new(self.models.clone(), number as u16);
                    self.instances.push(self.dispatcher.join(now, &spec));
                }
                "-" => self.dispatcher.leave(now, self.instances[number]),
                "h" => self.dispatcher.hold(now, self.instances[number], true),
                "u" => self.dispatcher.hold(now, self.instances[number], false),
                "q" => self.submit(word),
                "x" => {
                    let payload = self.dispatcher.cancel(now, self.queries[number]);
                    assert!(payload.is_none_or(|payload| payload == number));
                }
                "a" => self.end(number, End::Answered((0..self.jobs[number].1).map(|_| Some(7)).collect())),
                "n" => self.end(number, End::Answered((0..self.jobs[number].1).map(|_| None).collect())),
                "c" => self.end(number, End::Cancelled),
                "f" => self.end(
                    number,
                    End::Failed(match &word[1..2] {
                        "i" => Failure::Instance,
                        "u" => Failure::Unsent,
                        "m" => Failure::Model,
                        "q" => Failure::Query,
                        _ => Failure::Withheld,
                    }),
                ),
                _ => self.pass(Time::from_nanos(number as u64 * 1_000_000)),
            }
            self.note();
        }
        std::mem::take(&mut self.seen).join(", ")
    }

    fn submit(&mut self, word: &str) {
        let deadline = self.now + Duration::from_secs(1);
        let mut query = Submission::new(self.models[0], self.queries.len(), deadline);
        for part in word.split(',').skip(1) {
            let number: u32 = part[1..].parse().unwrap_or(0);
            match &part[..1] {
                "p" => query.priority = number as u8,
                "d" => query.deadline = self.now + Duration::from_millis(number.into()),
                "m" => query.model = self.models[number as usize],
                "s" => query.share = Some(ShareKey(number)),
                "b" => query.background = true,
                "z" => query.shape.size = number,
                "e" => query.accept = Accept::Exact,
                _ => query.accept = Accept::AtMost(number as u16),
            }
        }
        let key = self.dispatcher.submit(self.now, query);
        self.queries.push(key);
    }

    fn end(&mut self, job: usize, end: End<u32>) {
        self.dispatcher.ended(self.now, self.jobs[job].0, end);
    }

    fn pass(&mut self, until: Time) {
        while let Some(at) = self.dispatcher.next_tick().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.dispatcher.tick(self.now);
            self.note();
        }
        self.now = until;
    }

    fn note(&mut self) {
        let actions: Vec<_> = self.dispatcher.actions().collect();
        let place = |key: InstanceKey| {
            self.instances.iter().position(|own| *own == key).unwrap_or(self.instances.len())
        };
        for action in actions {
            let said = match action {
                Action::Run { job, instance, rows, why, .. } => {
                    self.jobs.push((job, rows.len()));
                    let rows: Vec<String> = rows.iter().map(|row| row.payload.to_string()).collect();
                    format!("{why:?} {} at {}", rows.join("+"), place(instance))
                }
                Action::Cancel { job, reason, .. } => {
                    let job = self.jobs.iter().position(|(own, _)| *own == job).expect("it runs");
                    format!("cancel {job} {reason:?}")
                }
                Action::Probe { instance } => format!("probe {}", place(instance)),
                Action::Tell { .. } | Action::Ask { .. } | Action::Return { .. } => continue,
                Action::Reply { payload, result: Ok(answer), .. } => {
                    format!("{:?} answers {payload}", answer.by)
                }
                Action::Reply { payload, result: Err(reject), .. } => format!("{payload} {reject:?}"),
            };
            self.seen.push(said);
        }
        self.dispatcher.check(self.now).expect("promises are kept");
    }
}
