//! Attributes the tail of a recording to its causes, by replays without each of them.
//!
//! [`why()`] replays the recorded arrivals on the fitted instances, with the faults when they happened. Then it removes one
//! cause at a time and replays again: the difference is the cost of the cause. If no cause alone makes a difference, one hides
//! behind the other, and all of them are removed together. If the replay's tail differs from the recorded one by more than
//! ten times, no cause is named: a replay that misses the tail says nothing about it.
//!
//! Rejected: shares of the tail by cause, from a regression. They explain latencies and do not say what a remedy gains.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use parm_loadgen::statistics::bootstrap::quantile_of;
use parm_settings::recording::RecordedRole;
use parm_settings::{PolicyKind, PoolSettings};
use parm_workload::distribution::Distribution;
use serde::Serialize;

use crate::Error;
use crate::simulator::{Progress, Run};
use crate::tuner::fit::{Episodes, LEAST_TWICE};
use crate::tuner::{Profile, Recording};

/// A cause is named if the tail would be shorter by this share without it.
pub const COUNTS: f64 = 0.2;

/// Finds the causes of a recording's tail.
pub fn why(
    recording: &Recording,
    profile: &Profile,
    setup: &Setup,
    progress: &dyn Progress,
) -> Result<Findings, Error> {
    let replay = Replay { recording, setup, progress };
    let whole = replay.tail(profile, 0)?;
    if !is_reproduced(recording, whole) {
        return Ok(Findings::new(recording, profile, setup, whole, Vec::new(), None));
    }
    let causes = Cause::all(profile);
    let mut suspects = Vec::new();
    for cause in causes {
        let without = replay.tail(&cause.removed(profile), cause.further())?;
        suspects.push(Suspect { cause, without });
    }
    let alone = suspects.iter().any(|suspect| counts(suspect.without, whole, recording));
    let hidden: Vec<Cause> =
        Cause::all(profile).into_iter().filter(|cause| *cause != Cause::Queueing).collect();
    let together = if !alone && hidden.len() > 1 {
        let left = hidden.iter().fold(profile.clone(), |left, cause| cause.removed(&left));
        let without = replay.tail(&left, 0)?;
        counts(without, whole, recording).then_some(without)
    } else {
        None
    };
    Ok(Findings::new(recording, profile, setup, whole, suspects, together))
}

/// Whether the difference between two tails counts.
fn counts(without: Tail, whole: Tail, recording: &Recording) -> bool {
    let quantile = quantile(recording);
    without.at(quantile) <= (1.0 - COUNTS) * whole.at(quantile)
}

/// Returns the number of queries that [`why()`] simulates.
pub fn replayed_queries(recording: &Recording, profile: &Profile, setup: &Setup) -> u64 {
    let runs = 1 + Cause::all(profile).len() as u64;
    runs * u64::from(setup.repeats) * recording.arrivals.len() as u64
}

/// A cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Cause {
    /// Some instances are slower than the others, all the time or for a while.
    SlowInstances {
        /// The instances, counted from 0.
        instances: Vec<u32>,
    },
    /// All instances are slow for a while, in turn.
    Interference,
    /// Instances make no progress for a while.
    Stalls {
        /// The instances; empty for all.
        instances: Vec<u32>,
    },
    /// Some queries take longer than others, on each instance.
    LongInputs,
    /// Service times vary from run to run.
    WideTimes,
    /// Queries wait for an instance.
    Queueing,
}

impl Cause {
    /// Returns the causes that a profile can have.
    fn all(profile: &Profile) -> Vec<Self> {
        let slow = slow(profile);
        let slow = (!slow.is_empty()).then(|| Self::SlowInstances { instances: slow.into_iter().collect() });
        let interference =
            profile.interference.as_ref().filter(|found| found.only.is_empty()).map(|_| Self::Interference);
        let times = if profile.lengths.is_some() { Self::LongInputs } else { Self::WideTimes };
        let stalls = stalls(profile);
        let found = [slow, interference, stalls, Some(times), Some(Self::Queueing)];
        found.into_iter().flatten().collect()
    }

    /// Returns the profile without the cause.
    fn removed(&self, profile: &Profile) -> Profile {
        let mut left = profile.clone();
        match self {
            Self::SlowInstances { .. } => {
                left.lasting.retain(|lasting| lasting.factor <= 1.0);
                left.interference = left.interference.filter(|found| found.only.is_empty());
            }
            Self::Interference => left.interference = None,
            Self::Stalls { .. } => {
                left.hangs = None;
                left.stalls.clear();
            }
            Self::LongInputs => left.lengths = None,
            Self::WideTimes => {
                let value = median(&left.service.time_ms);
                left.service.time_ms = Distribution::Constant { value };
                left.stragglers = None;
            }
            Self::Queueing => {}
        }
        left
    }

    /// Returns the number of instances to add.
    fn further(&self) -> u32 {
        u32::from(*self == Self::Queueing)
    }
}

/// Returns the instances that are slower than the others, all the time or for a while.
fn slow(profile: &Profile) -> BTreeSet<u32> {
    let lasting =
        profile.lasting.iter().filter(|lasting| lasting.factor > 1.0).map(|lasting| lasting.instance);
    let sometimes = profile.interference.iter().flat_map(|found| found.only.iter().copied());
    lasting.chain(sometimes).collect()
}

fn stalls(profile: &Profile) -> Option<Cause> {
    let own: BTreeSet<u32> = profile.stalls.keys().copied().collect();
    let only = |hangs: &Episodes| hangs.only.iter().copied().collect::<BTreeSet<u32>>();
    let instances = match profile.hangs.as_ref().map(only) {
        None if own.is_empty() => return None,
        None => own,
        Some(hung) if hung.is_empty() => hung,
        Some(hung) => hung.union(&own).copied().collect(),
    };
    Some(Cause::Stalls { instances: instances.into_iter().collect() })
}

fn median(times: &Distribution) -> f64 {
    match times {
        Distribution::Sample { values } => quantile_of(&mut values.clone(), 0.5),
        other => other.mean(),
    }
}

/// The frontend of a recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Its settings.
    pub settings: PoolSettings,
    /// Seed of the first replay; each further one adds one.
    pub seed: u64,
    /// Replays of each variant.
    pub repeats: u32,
}

/// Some quantiles of the latency, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[allow(missing_docs)] // the names say it
pub struct Tail {
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
}

impl Tail {
    fn of([p50_ms, p99_ms, p999_ms]: [f64; 3]) -> Self {
        Self { p50_ms, p99_ms, p999_ms }
    }

    /// Returns the latency at a quantile.
    pub fn at(&self, quantile: f64) -> f64 {
        if quantile < 0.999 { self.p99_ms } else { self.p999_ms }
    }
}

struct Replay<'a> {
    recording: &'a Recording,
    setup: &'a Setup,
    progress: &'a dyn Progress,
}

impl Replay<'_> {
    /// Replays on the instances of a profile and some more, and returns the mean of the quantiles.
    fn tail(&self, profile: &Profile, more: u32) -> Result<Tail, Error> {
        let repeats = self.setup.repeats.max(1);
        let mut sums = [0.0; 3];
        for repeat in 0..repeats {
            let tally = self.run(profile, more, repeat).simulate(self.progress)?;
            let quantiles = tally.quantiles_ms([0.5, 0.99, 0.999]);
            sums.iter_mut().zip(quantiles).for_each(|(sum, ms)| *sum += ms);
        }
        Ok(Tail::of(sums.map(|sum| sum / f64::from(repeats))))
    }

    fn run(&self, profile: &Profile, more: u32, repeat: u32) -> Run {
        let Setup { settings, seed, .. } = self.setup;
        let instances = profile.instances + more;
        let run = Run::new(self.recording.trace(), profile.history(), instances, settings.clone());
        Run {
            seed: seed.wrapping_add(repeat.into()),
            queries: self.recording.arrivals.len() as u64,
            service: profile.service.clone(),
            backup_share: 1.0,
            stand_in: profile.stand_in.unwrap_or(run.stand_in),
            ..run
        }
    }
}

/// The causes of a recording's tail.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    /// The quantile that was examined, such as 0.999.
    pub quantile: f64,
    /// Number of recorded queries.
    pub queries: usize,
    /// The recorded latencies, where the recording shows them.
    pub recorded: Option<Tail>,
    /// The latencies of the replay.
    pub replayed: Tail,
    /// Whether they are like the recorded ones. Otherwise no cause is examined.
    pub reproduced: bool,
    /// All examined causes, the most expensive first.
    pub suspects: Vec<Suspect>,
    /// The latencies without all causes but queueing, if only several together make a difference.
    pub together: Option<Tail>,
    /// The result in sentences.
    pub said: Vec<String>,
    /// Limitations of the answer.
    pub caveats: Vec<String>,
}

/// A cause and the latencies without it.
#[derive(Clone, Debug, Serialize)]
pub struct Suspect {
    /// The cause.
    pub cause: Cause,
    /// The latencies without it.
    pub without: Tail,
}

/// Fewest queries for p99.9: ten lie beyond it.
const ENOUGH: usize = 10_000;
/// Share of the queries whose answers must be known for recorded latencies.
const KNOWN: f64 = 0.95;
/// Difference between the recorded and the replayed tail that is mentioned.
const APART: f64 = 0.15;
/// Ratio of the recorded and the replayed tail, either way, from which no cause is named. A replay that misses pauses of the
/// whole machine has a tail several times shorter, and still finds a slow instance.
const UNLIKE: f64 = 10.0;

impl Findings {
    fn new(
        recording: &Recording,
        profile: &Profile,
        setup: &Setup,
        replayed: Tail,
        mut suspects: Vec<Suspect>,
        together: Option<Tail>,
    ) -> Self {
        let queries = recording.arrivals.len();
        let quantile = quantile(recording);
        suspects.sort_by(|a, b| a.without.at(quantile).total_cmp(&b.without.at(quantile)));
        let mut findings = Self {
            quantile,
            queries,
            recorded: recorded(recording),
            replayed,
            reproduced: is_reproduced(recording, replayed),
            suspects,
            together,
            said: Vec::new(),
            caveats: Vec::new(),
        };
        findings.said = findings.sentences(profile, setup.settings.policy);
        findings.caveats = findings.limits(profile);
        findings
    }

    /// Returns the named causes, the most expensive first.
    pub fn named(&self) -> impl Iterator<Item = &Suspect> {
        let whole = self.replayed.at(self.quantile);
        self.suspects
            .iter()
            .filter(move |suspect| suspect.without.at(self.quantile) <= (1.0 - COUNTS) * whole)
    }

    fn sentences(&self, profile: &Profile, policy: PolicyKind) -> Vec<String> {
        let name = self.name();
        let whole = self.replayed.at(self.quantile);
        if let Some(recorded) = self.recorded.filter(|_| !self.reproduced) {
            return vec![
                format!("{name} is {:.1} ms, p50 {:.1} ms.", recorded.at(self.quantile), recorded.p50_ms),
                format!(
                    "No cause is named: the replay of the recording has a {name} of {whole:.1} ms, so it differs by more \
                     than {UNLIKE:.0} times."
                ),
                "Jobs that waited at a worker count as long runs. If other frontends use the same workers, compare \
                 nv_inference_queue_duration_us there."
                    .to_owned(),
                "Otherwise give the settings of the recorded frontend with --config or --policy.".to_owned(),
            ];
        }
        let mut said = vec![format!("{name} is {whole:.1} ms, p50 {:.1} ms.", self.replayed.p50_ms)];
        let named: Vec<&Suspect> = self.named().collect();
        if named.is_empty() {
            let alone = if self.together.is_some() { "alone " } else { "" };
            said.push(format!(
                "No cause {alone}adds more than {:.0} % to it.",
                100.0 * COUNTS / (1.0 - COUNTS)
            ));
        }
        if let Some(without) = self.together {
            let hidden = self.suspects.iter().filter(|suspect| suspect.cause != Cause::Queueing);
            let [what, remedies] = [0, 1].map(|part| {
                let parts =
                    hidden.clone().map(|suspect| worded(&suspect.cause, profile, policy)[part].clone());
                parts.collect::<Vec<_>>()
            });
            let (what, remedies, ms) = (what.join(" "), remedies.join("; "), without.at(self.quantile));
            said.push(format!("{what} Without all of that {name} would be {ms:.1} ms: {remedies}."));
        }
        for Suspect { cause, without } in named {
            let [what, remedy] = worded(cause, profile, policy);
            said.push(format!(
                "{what} Without that {name} would be {:.1} ms: {remedy}.",
                without.at(self.quantile)
            ));
        }
        said
    }

    fn limits(&self, profile: &Profile) -> Vec<String> {
        let mut said = Vec::new();
        if self.queries < ENOUGH {
            said.push(format!(
                "p99.9 needs {ENOUGH} recorded queries and there are {}, so this is p99: record longer",
                self.queries
            ));
        }
        let replayed = self.replayed.at(self.quantile);
        if let Some(recorded) = self.recorded.map(|tail| tail.at(self.quantile))
            && (replayed / recorded - 1.0).abs() > APART
            && self.reproduced
        {
            said.push(format!(
                "the recorded {} is {recorded:.1} ms: the replay does not reproduce it, so the costs are rough; check \
                 that it has the settings of the frontend",
                self.name(),
            ));
        }
        let wide = self.named().any(|suspect| suspect.cause == Cause::WideTimes);
        if wide && profile.ran_twice < LEAST_TWICE {
            said.push(
                "too few queries ran twice, on instances of the usual speed, to tell long inputs from slow runs: record longer, with the \
                 policy hedge"
                    .to_owned(),
            );
        }
        said
    }

    fn name(&self) -> &'static str {
        if self.quantile < 0.999 { "p99" } else { "p99.9" }
    }
}

/// Returns the highest quantile for which a recording has enough queries.
fn quantile(recording: &Recording) -> f64 {
    if recording.arrivals.len() < ENOUGH { 0.99 } else { 0.999 }
}

/// Whether a replay has a tail like the recorded one, as far as the recording shows that.
fn is_reproduced(recording: &Recording, replayed: Tail) -> bool {
    let quantile = quantile(recording);
    recorded(recording).is_none_or(|recorded| {
        let ratio = replayed.at(quantile) / recorded.at(quantile);
        (1.0 / UNLIKE..=UNLIKE).contains(&ratio)
    })
}

/// Returns what a cause is, as a sentence, and its remedy.
fn worded(cause: &Cause, profile: &Profile, policy: PolicyKind) -> [String; 2] {
    let names = |instances: &[u32]| {
        let names: Vec<String> = instances.iter().map(|instance| profile.name(*instance)).collect();
        let verb = |one: &str, more: &str| if names.len() == 1 { one.to_owned() } else { more.to_owned() };
        (names.join(" and "), verb("is", "are"), verb("it", "them"))
    };
    let redundant = !matches!(policy, PolicyKind::None | PolicyKind::Equal);
    let hide = |otherwise: &str| {
        if redundant {
            otherwise.to_owned()
        } else {
            format!("{otherwise}, or hide it with the policy hedge")
        }
    };
    match cause {
        Cause::SlowInstances { instances } => {
            let (names, is, them) = names(instances);
            let lasting = profile.lasting.iter().filter(|lasting| lasting.factor > 1.0);
            let lasting: Vec<String> = lasting.map(|lasting| format!("{:.1}", lasting.factor)).collect();
            let how = match (&lasting[..], &profile.interference) {
                ([], Some(episodes)) => format!(
                    "{:.1} times slower than the others for {:.1} % of the time",
                    episodes.factor,
                    100.0 * episodes.share
                ),
                (factors, _) => format!("{} times slower than the others", factors.join(" and ")),
            };
            [format!("{names} {is} {how}."), format!("recycle {them}")]
        }
        Cause::Interference => {
            let episodes = profile.interference.as_ref();
            let (factor, share) = episodes.map_or((1.0, 0.0), |found| (found.factor, 100.0 * found.share));
            [
                format!("All instances in turn are {factor:.1} times slower, for {share:.1} % of the time."),
                hide("look for other work on their machines"),
            ]
        }
        Cause::Stalls { instances } if instances.is_empty() => {
            let length = profile.hangs.as_ref().map_or(0.0, |hangs| hangs.length_ms);
            [
                format!("All instances in turn make no progress for {length:.0} ms at a time."),
                hide("find out what stops them"),
            ]
        }
        Cause::Stalls { instances } => {
            let (names, is, them) = names(instances);
            let verb = if is == "is" { "stalls" } else { "stall" };
            [format!("{names} {verb}, unlike the others."), hide(&format!("recycle {them}"))]
        }
        Cause::LongInputs => [
            "Some queries take longer on each instance: long inputs.".to_owned(),
            "limit or split them, or give them instances of their own".to_owned(),
        ],
        Cause::WideTimes => [
            "Service times vary widely, on all instances alike.".to_owned(),
            hide("find out what varies, such as caches, memory and clock rates"),
        ],
        Cause::Queueing => [
            "Queries wait for an instance.".to_owned(),
            "add an instance, with which it was computed".to_owned(),
        ],
    }
}

/// Returns the recorded latencies: from the arrival of a query to the end of its first answered job. `None` if parities
/// answer queries or too few jobs have the arrival of their query.
fn recorded(recording: &Recording) -> Option<Tail> {
    let micros = |seconds: f64| (seconds * 1e6).round() as u64;
    let mut ends: HashMap<u64, f64> = HashMap::new();
    for job in &recording.jobs {
        if job.role == RecordedRole::Parity {
            return None;
        }
        if let (Some(arrived), true) = (job.arrived, job.ok) {
            let end = job.at + job.took;
            ends.entry(micros(arrived)).and_modify(|known| *known = known.min(end)).or_insert(end);
        }
    }
    let known = recording.arrivals.iter().filter_map(|at| Some(1e3 * (ends.get(&micros(*at))? - at)));
    let mut known: Vec<f64> = known.collect();
    let enough = known.len() as f64 >= KNOWN * recording.arrivals.len() as f64;
    (enough && !known.is_empty())
        .then(|| Tail::of([0.5, 0.99, 0.999].map(|share| quantile_of(&mut known, share))))
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.said.join("\n"))?;
        self.caveats.iter().try_for_each(|caveat| write!(f, "\nnote: {caveat}"))
    }
}
