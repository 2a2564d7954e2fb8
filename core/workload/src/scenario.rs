//! Scenarios: faults and the shape of arrivals, predefined or from the experiment file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::arrivals::{Arrivals, Pattern};
use crate::distribution::Distribution;
use crate::{By, Error, Fault, Faults, Targets, When, numbers};

const MS: Duration = Duration::from_millis(1);

/// A sample of factors on service times.
const COLLAGE: &str = include_str!("../profiles/collage.txt");

/// Faults and arrivals.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// The faults. Default: none.
    pub faults: Faults,
    /// The shape of arrivals. Default: that of the experiment.
    pub arrivals: Option<Pattern>,
    /// Recorded arrivals in seconds, replayed faster or slower according to the load; empty if there are none. They come
    /// from a recording and not from an experiment file.
    #[serde(skip)]
    pub trace: Vec<f64>,
    /// Whether the recording begins again when it ends; otherwise the run ends with it.
    #[serde(skip)]
    pub again: bool,
    /// File of recorded arrivals, replayed again and again: in each line a time in seconds and optionally the size of
    /// the query, to which its run time is then proportional. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrivals_file: Option<PathBuf>,
}

/// The predefined scenarios and their descriptions. `+` combines several, as in `hosts+A`.
pub const SCENARIOS: &[(&str, &str)] = &[
    ("clean", "nothing goes wrong"),
    ("A", "1 % of the runs take 5 to 10 times as long, each on its own"),
    ("B", "each instance is 5 times slower 1/12 of the time, in episodes of 2 s"),
    ("AB", "half of A and half of B: 0.5 % of the runs, 1/24 of the time"),
    ("hang", "each instance hangs for 3 s, about every 30 s"),
    ("correlated", "half of the instances are 5 times slower at the same times, 1/12 of the time, for 2 s"),
    ("lognormal", "service times vary by a lognormal factor of median 1 and sigma 0.5"),
    ("pareto", "service times vary by a Pareto factor of at least 1 and shape 2.5"),
    ("bursts", "queries come in bursts of 100 ms and pauses of 100 ms"),
    ("shuffles", "4 concurrent transfers of 128 to 256 MB between random pairs, each 2.5 times slower"),
    (
        "tenants",
        "a second tenant on 1/9 of the instances makes them 2 times slower half of the time, for 5 s",
    ),
    ("crash", "each instance crashes about every 10 minutes, is away for 10 s and 3 times slower for 5 s"),
    ("partition", "each instance is cut off for 1 s, about every 100 s"),
    ("sick", "one instance is 2.4 times slower all the time"),
    ("hosts", "a sixth of the instances are 1.6 times slower all the time"),
    ("shared", "a third of the instances are 2.2, 3, 4, 5 times slower all the time, in turn"),
    ("heal", "one instance is 2.4 times slower for 30 s, then well for 30 s, and so on"),
    ("throttled", "a quarter of the instances stand still for 50 of every 100 ms (a CPU limit)"),
    (
        "lengths",
        "run times follow the query, on each instance: a lognormal factor of median 1 and sigma 0.35",
    ),
    ("measured", "service times vary as on cloud CPUs: p99 at 5 times the median, from published quantiles"),
];

impl Scenario {
    /// Returns the predefined scenario of this name, or the combination of several that `+` joins.
    pub fn named(name: &str) -> Option<Self> {
        Self::combined(name, |_| None).ok()
    }

    /// The same, with scenarios of one's own, which precede predefined ones.
    pub fn combined(name: &str, own: impl Fn(&str) -> Option<Self>) -> Result<Self, Error> {
        let part = |part: &str| own(part).or_else(|| Self::predefined(part));
        let parts =
            || name.split('+').map(|name| part(name.trim())).reduce(|before, next| Some(before?.and(next?)));
        own(name).or_else(|| parts().flatten()).ok_or_else(|| {
            let known: Vec<&str> = SCENARIOS.iter().chain(PROFILES).map(|(name, _)| *name).collect();
            Error::UnknownScenario { name: name.to_owned(), known: known.join(", ") }
        })
    }

    /// Adds the faults of another scenario, and its arrivals if it has any.
    fn and(mut self, other: Self) -> Self {
        let arrivals = other.arrivals.or(self.arrivals);
        let recorded = if other.trace.is_empty() { &self } else { &other };
        let (trace, again) = (recorded.trace.clone(), recorded.again);
        let arrivals_file = recorded.arrivals_file.clone();
        self.faults.0.extend(other.faults.0);
        Self { faults: self.faults, arrivals, trace, again, arrivals_file }
    }

    /// Reads the files that it names, relative to a folder.
    pub fn read_files(&mut self, folder: &Path) -> Result<(), Error> {
        self.faults.0.iter_mut().try_for_each(|fault| fault.read_files(folder))?;
        if let Some(path) = &mut self.arrivals_file {
            let (seconds, sizes) = numbers::from_file(folder, path, recorded)?;
            *path = folder.join(&*path);
            // The copy of an experiment file with its results has them already.
            self.faults.0.retain(|fault| sizes.as_ref() != Some(fault));
            self.faults.0.extend(sizes);
            (self.trace, self.again) = (seconds, true);
        }
        Ok(())
    }

    fn predefined(name: &str) -> Option<Self> {
        let faults = match name {
            "clean" => vec![],
            "A" => vec![stragglers(0.01)],
            "B" => vec![interference(1.0 / 12.0, Targets::Each)],
            "AB" => vec![stragglers(0.005), interference(1.0 / 24.0, Targets::Each)],
            "hang" => vec![Fault::Hang { when: episodes(0.1, 3000 * MS), on: Targets::Each }],
            "correlated" => vec![interference(1.0 / 12.0, Targets::Together(0.5))],
            "lognormal" => vec![every_run(Distribution::Lognormal { median: 1.0, sigma: 0.5 })],
            "pareto" => vec![every_run(Distribution::Pareto { min: 1.0, shape: 2.5 })],
            "bursts" => {
                let arrivals = Some(Pattern::Bursts { on: 100 * MS, off: 100 * MS });
                return Some(Self { arrivals, ..Self::default() });
            }
            "shuffles" => vec![Fault::Shuffles {
                concurrent: 4,
                min_mb: 128.0,
                max_mb: 256.0,
                link_mbps: 1000.0,
                factor: 2.5,
            }],
            "tenants" => {
                let on = Targets::Some(1.0 / 9.0);
                vec![Fault::Slow { factor: 2.0, when: episodes(0.5, 5000 * MS), on }]
            }
            "crash" => vec![Fault::Crash {
                when: episodes(10.0 / 600.0, 10_000 * MS),
                on: Targets::Each,
                slow_start: 3.0,
                slow_start_for: 5000 * MS,
            }],
            "partition" => vec![Fault::Partition { when: episodes(0.01, 1000 * MS), on: Targets::Each }],
            "sick" => vec![slower(2.4, Targets::Count(1))],
            "hosts" => vec![slower(1.6, Targets::Some(1.0 / 6.0))],
            "shared" => {
                let series = [2.2, 3.0, 4.0, 5.0].map(|factor| vec![factor]).to_vec();
                vec![Fault::Pace { step: 1000 * MS, series, file: None, on: Targets::Some(1.0 / 3.0) }]
            }
            "heal" => {
                let when = When::Every { at: Duration::ZERO, every: 60_000 * MS, length: 30_000 * MS };
                vec![Fault::Slow { factor: 2.4, when, on: Targets::Count(1) }]
            }
            "throttled" => {
                let when = When::Every { at: 50 * MS, every: 100 * MS, length: 50 * MS };
                vec![Fault::Hang { when, on: Targets::Some(0.25) }]
            }
            "lengths" => {
                let factor = Distribution::Lognormal { median: 1.0, sigma: 0.35 };
                vec![Fault::Straggle { share: 1.0, factor, by: By::Query, on: Targets::Each }]
            }
            "measured" => {
                vec![every_run(Distribution::Sample { values: sample(COLLAGE, numbers::numbers) })]
            }
            // Each instance is one of the measured machines for the whole run.
            "azure-vm" => {
                let values = sample(include_str!("../profiles/azure-vm.txt"), numbers::numbers);
                let factor = Distribution::Sample { values };
                vec![Fault::Straggle { share: 1.0, factor, by: By::Instance, on: Targets::Each }]
            }
            "sick-gpu" => vec![pace(include_str!("../profiles/sick-gpu.txt"), 1400 * MS)],
            "shared-gpu" => vec![pace(include_str!("../profiles/shared-gpu.txt"), 1000 * MS)],
            // Each query takes as long as a measured one.
            "long-inputs" => {
                let factors = sample(include_str!("../profiles/long-inputs.txt"), numbers::numbers);
                vec![Fault::Sizes { factors, file: None, on: Targets::Each }]
            }
            "azure-chat" => return Some(arrivals(include_str!("../profiles/azure-chat.txt"))),
            "azure-code" => return Some(arrivals(include_str!("../profiles/azure-code.txt"))),
            "mooncake-chat" => return Some(arrivals(include_str!("../profiles/mooncake-chat.txt"))),
            _ => return None,
        };
        Some(Self { faults: Faults(faults), ..Self::default() })
    }

    /// Returns its arrivals at a mean rate per second; `usual` is the shape if the scenario has none.
    pub fn at(&self, usual: Pattern, rate: f64) -> Arrivals {
        if self.trace.is_empty() {
            return self.arrivals.unwrap_or(usual).at(rate);
        }
        let of = |seconds: Vec<f64>| match self.again {
            true => Arrivals::Again { seconds },
            false => Arrivals::Trace { seconds },
        };
        let recorded = of(self.trace.clone()).rate();
        of(self.trace.iter().map(|seconds| seconds * recorded / rate).collect())
    }

    /// Returns the queries of a run of `wanted` queries, and how many of them are its warm-up: a recording may have
    /// fewer.
    pub fn length(&self, wanted: u64, warm_up: u64) -> (u64, u64) {
        let recorded = self.trace.len() as u64;
        if recorded == 0 || recorded >= wanted || self.again {
            (wanted, warm_up)
        } else {
            (recorded, warm_up.min(recorded / 10))
        }
    }
}

/// Reads recorded arrivals, and run times that are proportional to the sizes of the queries, if they have some.
fn recorded(text: &str) -> Result<(Vec<f64>, Option<Fault>), Error> {
    let (seconds, factors) = numbers::arrivals(text)?;
    if seconds.first() == seconds.last() {
        return Err(Error::OneTime { at: seconds[0] });
    }
    let sizes = (!factors.is_empty()).then_some(Fault::Sizes { factors, file: None, on: Targets::Each });
    Ok((seconds, sizes))
}

fn stragglers(share: f64) -> Fault {
    Fault::Straggle {
        share,
        factor: Distribution::Uniform { min: 5.0, max: 10.0 },
        by: By::Run,
        on: Targets::Each,
    }
}

fn interference(share: f64, on: Targets) -> Fault {
    Fault::Slow { factor: 5.0, when: episodes(share, 2000 * MS), on }
}

fn every_run(factor: Distribution) -> Fault {
    Fault::Straggle { share: 1.0, factor, by: By::Run, on: Targets::Each }
}

fn slower(factor: f64, on: Targets) -> Fault {
    Fault::Slow { factor, when: When::Always, on }
}

fn episodes(share: f64, length: Duration) -> When {
    When::Episodes { share, length }
}

/// The built-in profiles and their descriptions. They are scenarios, which `+` combines.
pub const PROFILES: &[(&str, &str)] = &[
    ("azure-vm", "each instance is a virtual machine of Azure: a fifth of them take 1.5 to 2 times as long"),
    ("sick-gpu", "GPUs of a training job of ByteDance: one of 16 takes 2.5 times as long"),
    ("shared-gpu", "workers of Alibaba that share GPUs: 5 of 10 take 3 to 5 times as long"),
    ("long-inputs", "inputs of a training job of ByteDance: run times follow the input on each instance"),
    ("azure-chat", "arrivals of chats at Azure, with run times that are proportional to the input"),
    ("azure-code", "arrivals of code completions at Azure, in bursts, with run times as above"),
    ("mooncake-chat", "arrivals of long chats at Moonshot AI, with run times as above"),
];

/// Reads a sample that is part of the program. `profiles/README.md` states the sources, their licences, and how they were taken.
fn sample<T>(text: &str, read: fn(&str) -> Result<T, Error>) -> T {
    read(text).unwrap_or_else(|error| unreachable!("a test reads each sample: {error}"))
}

/// Arrivals of a public trace, again and again.
fn arrivals(text: &str) -> Scenario {
    let (trace, sizes) = sample(text, recorded);
    Scenario { faults: Faults(sizes.into_iter().collect()), trace, again: true, ..Scenario::default() }
}

/// Each instance repeats the series of a measured one.
fn pace(text: &str, step: Duration) -> Fault {
    Fault::Pace { step, series: sample(text, numbers::columns), file: None, on: Targets::Each }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Schedule;
    use parm_durations::Time;

    #[test]
    fn recorded_arrivals_are_replayed_at_the_requested_rate() {
        let trace: Vec<f64> = (1..=100).map(|n| f64::from(n * n) / 1e3).collect();
        let scenario = Scenario { trace, ..Scenario::default() };
        let Arrivals::Trace { seconds } = scenario.at(Pattern::Poisson, 20.0) else {
            panic!("it is a trace")
        };
        assert!((seconds[99] - 5.0).abs() < 1e-9 && (seconds[9] - 0.05).abs() < 1e-9, "{seconds:?}");
        assert_eq!(scenario.length(1000, 50), (100, 10));
        assert_eq!(scenario.length(80, 5), (80, 5));
        assert_eq!(Scenario::default().at(Pattern::Constant, 3.0), Pattern::Constant.at(3.0));
    }

    #[test]
    fn every_listed_scenario_exists_and_is_valid() {
        for (name, _) in SCENARIOS.iter().chain(PROFILES) {
            let scenario = Scenario::named(name).unwrap_or_else(|| panic!("{name} is missing"));
            for instances in [1, 3, 12, 18] {
                assert_eq!(scenario.faults.check(instances), Ok(()), "{name} on {instances}");
            }
        }
        assert_eq!(Scenario::named("mayhem"), None);
    }

    #[test]
    fn combined_scenarios_have_the_faults_of_each() {
        let faults = |name: &str| Scenario::named(name).unwrap().faults.0;
        let both = [faults("hosts"), faults("A")].concat();
        assert_eq!(faults("hosts+A"), both);
        assert_eq!(faults("hosts + A"), both);
        assert_eq!(
            Scenario::named("bursts+lengths").unwrap().arrivals,
            Scenario::named("bursts").unwrap().arrivals
        );
        assert_eq!(Scenario::named("hosts+mayhem"), None);
        let own = |name: &str| (name == "A").then(Scenario::default);
        assert_eq!(Scenario::combined("hosts+A", own).unwrap().faults.0, faults("hosts"));
    }

    #[test]
    fn files_are_read_relative_to_a_folder() {
        let folder = std::env::temp_dir().join(format!("parm-scenario-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        write("pace.txt", "1 2\n3 4\n");
        write("factors.txt", "1, 5 # slow\n");
        write("arrivals.txt", "0 10\n1 30\n");
        let step = 1000 * MS;
        let named = |file: &str| {
            let factor = Distribution::File { path: "factors.txt".into() };
            let file = Some(file.into());
            let faults =
                vec![every_run(factor), Fault::Pace { step, series: vec![], file, on: Targets::Each }];
            let arrivals_file = Some("arrivals.txt".into());
            Scenario { faults: Faults(faults), arrivals_file, ..Scenario::default() }
        };
        let mut scenario = named("pace.txt");
        let unread = scenario.faults.check(3).unwrap_err();
        assert_eq!(unread, Error::NotRead { path: "factors.txt".into() });
        scenario.read_files(&folder).unwrap();
        let series = vec![vec![1.0, 3.0], vec![2.0, 4.0]];
        let read = [
            every_run(Distribution::Sample { values: vec![1.0, 5.0] }),
            Fault::Pace { step, series, file: None, on: Targets::Each },
            Fault::Sizes { factors: vec![0.5, 1.5], file: None, on: Targets::Each },
        ];
        assert_eq!(scenario.faults.0, read);
        assert_eq!((scenario.trace, scenario.again), (vec![0.0, 1.0], true));
        assert_eq!(recorded("3\n3\n"), Err(Error::OneTime { at: 3.0 }), "its rate is infinite");
        let refused = |file| named(file).read_files(&folder).unwrap_err().to_string();
        assert!(refused("absent.txt").contains("cannot read 'absent.txt'"), "{}", refused("absent.txt"));
        write("uneven.txt", "1 2\n3\n");
        assert_eq!(
            refused("uneven.txt"),
            "cannot use 'uneven.txt': line 2 has 1 numbers and the first one 2: give one per instance in each line"
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn slow_instances_have_their_stated_number_and_factors() {
        let slow = |name: &str, instances| {
            let mut schedule = Schedule::new(&Scenario::named(name).unwrap().faults, 3, instances).unwrap();
            let of = |instance| schedule.condition(instance, Time::ZERO + 77 * MS).slowdown;
            let mut all: Vec<f64> = (0..instances).map(of).filter(|factor| *factor != 1.0).collect();
            all.sort_by(f64::total_cmp);
            all
        };
        assert_eq!([1, 3, 6, 12, 50].map(|instances| slow("sick", instances)), [const { [2.4] }; 5]);
        assert_eq!(slow("hosts", 12), [1.6, 1.6]);
        assert_eq!(slow("hosts", 6), [1.6]);
        assert_eq!(slow("shared", 12), [2.2, 3.0, 4.0, 5.0]);
        assert_eq!(slow("shared", 6), [2.2, 3.0]);
        assert_eq!(slow("shared", 18), [2.2, 2.2, 3.0, 3.0, 4.0, 5.0]);
    }

    #[test]
    fn samples_have_the_figures_of_their_descriptions() {
        let mean = |schedule: &mut Schedule, instance| {
            let slowdown = |at| schedule.condition(instance, Time::ZERO + Duration::from_secs(at)).slowdown;
            (0..180).map(slowdown).sum::<f64>() / 180.0
        };
        let slow = |name: &str, instances, from: f64| {
            let faults = Scenario::named(name).unwrap().faults;
            let mut schedule = Schedule::new(&faults, 9, instances).unwrap();
            let drawn = |schedule: &Schedule, at| schedule.straggling(at, Time::ZERO);
            (0..instances).filter(|at| drawn(&schedule, *at) * mean(&mut schedule, *at) > from).count()
        };
        let pools = [3, 12, 16, 32];
        assert_eq!(pools.map(|instances| slow("sick-gpu", instances, 2.0)), [1, 1, 1, 2], "one of sixteen");
        assert_eq!(slow("shared-gpu", 10, 3.0), 5, "half of them");
        let fifth = slow("azure-vm", 2000, 1.5);
        assert!((340..460).contains(&fifth), "{fifth} of 2000");
        let mut values = numbers::numbers(COLLAGE).unwrap();
        values.sort_by(f64::total_cmp);
        for (at, published) in [(500, 1.0), (900, 1.37), (950, 1.56), (990, 5.08), (999, 5.57)] {
            let seen = 0.5 * (values[at - 1] + values[at]);
            assert!((seen - published).abs() < 0.02, "{at} of 1000: {seen}, published {published}");
        }
        let chat = Scenario::named("azure-chat").unwrap();
        let schedule = Schedule::new(&chat.faults, 1, 4).unwrap();
        let lengths: Vec<f64> = (0..800).map(|query| schedule.length(0, query)).collect();
        assert!((lengths.iter().sum::<f64>() / 800.0 - 1.0).abs() < 1e-9, "so the load stays the same");
        assert!(
            (lengths[0] / lengths[1] - 958.0 / 1031.0).abs() < 1e-9,
            "sizes are in the order of arrivals"
        );
    }
}
