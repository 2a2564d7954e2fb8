//! Reads a frontend's recording of one model.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, Read};

use parm_settings::recording::{FORMAT, Line, RecordedRole};
use parm_workload::arrivals::Arrivals;

use crate::Error;

/// The recorded events of one model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// The model.
    pub model: String,
    /// Its name for people, with the version if the recording has others.
    pub title: String,
    /// Its versions with queries, in the order in which they were seen.
    pub versions: Vec<String>,
    /// How long the recording is.
    pub seconds: f64,
    /// When queries arrived, in seconds from its beginning, in order.
    pub arrivals: Vec<f64>,
    /// The jobs of instances, in the order in which they were given.
    pub jobs: Vec<Job>,
    /// The instances' addresses, by number.
    pub instances: BTreeMap<u32, String>,
    /// Events that the recorder lost.
    pub dropped: u64,
    /// Whether it lacks its last line: its frontend was killed, still runs, or could not write.
    pub unfinished: bool,
}

/// A job of an instance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Job {
    /// The instance.
    pub instance: u32,
    /// When the instance received it, in seconds from the recording's beginning.
    pub at: f64,
    /// How long it took, in seconds.
    pub took: f64,
    /// Rows of the batch.
    pub rows: u32,
    /// The role of the job.
    pub role: RecordedRole,
    /// Whether it was answered.
    pub ok: bool,
    /// When its first query arrived, which identifies the query; `None` if it is not recorded.
    pub arrived: Option<f64>,
}

/// Longest line in bytes, and most lines: longer input is not a recording, or too long a one.
const LINE: u64 = 4096;
const LINES: usize = 20_000_000;

/// Most queries: one line can stand for four billion.
const QUERIES: usize = 100_000_000;

/// Latest time, a year after the beginning. Faults are drawn for the whole time of a recording.
const LATEST_US: u64 = 365 * 86_400 * 1_000_000;

impl Recording {
    /// Reads a recording. The model must be named if there are queries of several, or of several versions: `NAME/VERSION` is
    /// one version, and `NAME` all of them together.
    pub fn read(mut from: impl BufRead, model: Option<&str>) -> Result<Self, Error> {
        let mut page = Page::default();
        let mut text = Vec::new();
        for number in 1.. {
            let bad = |reason: String| Error::BadLine { line: number, reason };
            text.clear();
            let read = from.by_ref().take(LINE).read_until(b'\n', &mut text);
            match read.map_err(|error| bad(error.to_string()))? {
                0 => break,
                _ if number > LINES => return Err(Error::LongRecording { limit: LINES }),
                read if read as u64 == LINE => return Err(bad(format!("it is longer than {LINE} bytes"))),
                _ => {}
            }
            let line = std::str::from_utf8(&text).map_err(|error| bad(error.to_string()))?;
            // A recorder that was killed leaves an incomplete last line.
            let whole = line.ends_with('\n');
            match Line::parse(line) {
                Ok(line) => page.add(line, number)?,
                Err(_) if !whole && number > 1 => break,
                Err(error) => return Err(bad(error.to_string())),
            }
        }
        page.of(model)
    }

    /// Returns the recorded arrivals, for replay.
    pub fn trace(&self) -> Arrivals {
        Arrivals::Trace { seconds: self.arrivals.clone() }
    }

    /// Says that several versions count as one model; `None` for one version.
    pub fn merged(&self) -> Option<String> {
        let (model, last) = (&self.model, self.versions.last()?);
        (self.versions.len() > 1).then(|| {
            let versions = self.versions.join(" and ");
            format!("versions {versions} of {model} count as one model: --model {model}/{last} picks one")
        })
    }
}

/// The contents of the recording.
#[derive(Default)]
struct Page {
    models: BTreeMap<u32, Of>,
    instances: BTreeMap<u32, String>,
    dropped: u64,
    ended: bool,
    end: f64,
    queries: usize,
}

/// The contents for one model.
#[derive(Default)]
struct Of {
    name: String,
    version: String,
    arrivals: Vec<f64>,
    jobs: Vec<Job>,
}

impl Page {
    fn add(&mut self, line: Line, number: usize) -> Result<(), Error> {
        match line {
            Line::Recording { format, .. } if format != FORMAT => {
                return Err(Error::OtherFormat { format, known: FORMAT });
            }
            Line::Recording { .. } => {}
            Line::Model { number, name, version } => {
                let of = self.models.entry(number).or_default();
                (of.name, of.version) = (name, version);
            }
            Line::Instance { number, name } => _ = self.instances.insert(number, name),
            Line::Query(query) => {
                self.queries = self.queries.saturating_add(query.rows as usize);
                if self.queries > QUERIES {
                    return Err(Error::ManyQueries { limit: QUERIES });
                }
                let at = self.seen(query.at_us, number)?;
                let rows = std::iter::repeat_n(at, query.rows as usize);
                self.models.entry(query.model).or_default().arrivals.extend(rows);
            }
            Line::Job(job) => {
                let at = self.seen(job.at_us, number)?;
                let took = self.seen(job.at_us.saturating_add(job.took_us), number)? - at;
                let arrived = job.arrived_us.map(|micros| self.seen(micros, number)).transpose()?;
                let (instance, rows, role, ok) = (job.instance, job.rows, job.role, job.ok);
                let jobs = &mut self.models.entry(job.model).or_default().jobs;
                jobs.push(Job { instance, at, took, rows, role, ok, arrived });
            }
            Line::Dropped { notes } => self.dropped = self.dropped.saturating_add(notes),
            Line::End { at_us } => {
                self.seen(at_us, number)?;
                self.ended = true;
            }
        }
        Ok(())
    }

    fn seen(&mut self, micros: u64, line: usize) -> Result<f64, Error> {
        if micros > LATEST_US {
            let reason = format!("{micros} us is more than a year after the beginning");
            return Err(Error::BadLine { line, reason });
        }
        let at = micros as f64 / 1e6;
        self.end = self.end.max(at);
        Ok(at)
    }

    fn of(self, model: Option<&str>) -> Result<Recording, Error> {
        let with: Vec<&Of> = self.models.values().filter(|of| !of.arrivals.is_empty()).collect();
        let mut known: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for of in &with {
            known.entry(&of.name).or_default().insert(&of.version);
        }
        // With the version if there are several of that name.
        let label = |of: &Of| if known[of.name.as_str()].len() > 1 { of.full() } else { of.name.clone() };
        let names = || distinct(with.iter().map(|of| label(of)));
        let Some(first) = with.first().map(|of| of.name.clone()) else {
            return Err(Error::EmptyRecording { what: model.unwrap_or("any model").to_owned() });
        };
        let is_meant = |of: &Of| match model {
            Some(model) => of.name == model || of.full() == model,
            None => of.name == first,
        };
        let meant: Vec<&&Of> = with.iter().filter(|of| is_meant(of)).collect();
        match model {
            Some(model) if meant.is_empty() => {
                return Err(Error::NoSuchModel { model: model.to_owned(), models: names().join(", ") });
            }
            None if names().len() > 1 => return Err(Error::WhichModel { models: names().join(", ") }),
            _ => {}
        }
        let name = meant[0].name.clone();
        let versions = distinct(meant.iter().map(|of| of.version.clone()));
        let title = if versions.len() > 1 { name.clone() } else { label(meant[0]) };
        let mut all = Of::default();
        for of in self.models.into_values().filter(|of| is_meant(of)) {
            all.arrivals.extend(of.arrivals);
            all.jobs.extend(of.jobs);
        }
        all.arrivals.sort_by(f64::total_cmp);
        all.jobs.sort_by(|a, b| a.at.total_cmp(&b.at));
        let (mut instances, dropped, seconds) = (self.instances, self.dropped, self.end);
        join(&mut instances, &mut all.jobs);
        let (arrivals, jobs, unfinished) = (all.arrivals, all.jobs, !self.ended);
        Ok(Recording {
            model: name,
            title,
            versions,
            seconds,
            arrivals,
            jobs,
            instances,
            dropped,
            unfinished,
        })
    }
}

impl Of {
    /// The name with the version.
    fn full(&self) -> String {
        if self.version.is_empty() { self.name.clone() } else { format!("{}/{}", self.name, self.version) }
    }
}

/// Keeps the first of equal texts.
fn distinct(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    texts.filter(|text| seen.insert(text.clone())).collect()
}

/// Gives the jobs of an instance that restarted its first number, and removes its other numbers. A frontend numbers an instance
/// anew when it comes back. Numbers with one address are one instance, unless they served at the same moment: several
/// instances can share an address, as the pods of a Kubernetes Service do.
fn join(instances: &mut BTreeMap<u32, String>, jobs: &mut [Job]) {
    let first = first_numbers(instances, jobs);
    for job in jobs {
        job.instance = first.get(&job.instance).copied().unwrap_or(job.instance);
    }
    instances.retain(|number, _| !first.contains_key(number));
}

/// Returns the numbers of restarted instances, with their first number.
fn first_numbers(instances: &BTreeMap<u32, String>, jobs: &[Job]) -> BTreeMap<u32, u32> {
    let mut served: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    // A failed job ends when its loss is noticed, which can be after the restart.
    for job in jobs.iter().filter(|job| job.ok) {
        let (from, to) = served.entry(job.instance).or_insert((job.at, job.at));
        *from = f64::min(*from, job.at);
        *to = f64::max(*to, job.at + job.took);
    }
    let mut spans: Vec<(f64, f64, u32)> =
        served.into_iter().map(|(number, (from, to))| (from, to, number)).collect();
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    // The first number of each instance of an address, and the time until which it served.
    let mut known: BTreeMap<&str, Vec<(u32, f64)>> = BTreeMap::new();
    let mut first = BTreeMap::new();
    for (from, to, number) in spans {
        let Some(name) = instances.get(&number).filter(|name| !name.is_empty()) else { continue };
        let same = known.entry(name.as_str()).or_default();
        match same.iter_mut().find(|(_, until)| *until <= from) {
            Some((one, until)) => {
                first.insert(number, *one);
                *until = to;
            }
            None => same.push((number, to)),
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"recording":{"format":1,"unix_ms":5}}
{"model":{"number":0,"name":"a","version":"1"}}
{"query":{"at_us":1000,"model":0,"rows":2}}
{"instance":{"number":3,"name":"http://x"}}
{"job":{"at_us":1500,"took_us":20000,"model":0,"instance":3,"rows":2,"role":"deployed","ok":true}}
{"model":{"number":1,"name":"b","version":"1"}}
{"query":{"at_us":2000,"model":1,"rows":1}}
{"dropped":{"notes":3}}
{"end":{"at_us":1000000}}
"#;

    fn read(text: &str, model: Option<&str>) -> Result<Recording, Error> {
        Recording::read(text.as_bytes(), model)
    }

    #[test]
    fn every_row_of_a_model_is_read_as_a_query() {
        let recording = read(TEXT, Some("a")).unwrap();
        assert_eq!(recording.arrivals, [0.001, 0.001]);
        assert_eq!((recording.seconds, recording.dropped, recording.jobs.len()), (1.0, 3, 1));
        assert_eq!(recording.instances[&3], "http://x");
        assert!((recording.jobs[0].took - 0.020).abs() < 1e-12);
    }

    #[test]
    fn invalid_line_is_named_in_the_error() {
        assert_eq!(read(TEXT, None), Err(Error::WhichModel { models: "a, b".into() }));
        let missing = Error::NoSuchModel { model: "c".into(), models: "a, b".into() };
        assert_eq!(read(TEXT, Some("c")), Err(missing));
        let newer = TEXT.replace("\"format\":1", "\"format\":2");
        assert_eq!(read(&newer, Some("a")), Err(Error::OtherFormat { format: 2, known: 1 }));
        let broken = TEXT.replace("\"took_us\"", "\"took\"");
        assert!(matches!(read(&broken, Some("a")), Err(Error::BadLine { line: 5, .. })));
        assert!(matches!(read("", None), Err(Error::EmptyRecording { .. })));
        let long = "x".repeat(5000);
        assert!(matches!(read(&long, None), Err(Error::BadLine { line: 1, .. })));
    }

    const ROLLOUT: &str = r#"{"recording":{"format":1,"unix_ms":5}}
{"model":{"number":0,"name":"ver","version":"1"}}
{"query":{"at_us":1000,"model":0,"rows":1}}
{"job":{"at_us":1500,"took_us":20000,"model":0,"instance":3,"rows":1,"role":"deployed","ok":true}}
{"model":{"number":1,"name":"ver","version":"2"}}
{"query":{"at_us":2000,"model":1,"rows":1}}
{"query":{"at_us":3000,"model":1,"rows":1}}
{"job":{"at_us":3500,"took_us":90000,"model":1,"instance":3,"rows":1,"role":"deployed","ok":true}}
"#;

    #[test]
    fn versions_of_a_rollout_are_told_apart() {
        assert_eq!(read(ROLLOUT, None), Err(Error::WhichModel { models: "ver/1, ver/2".into() }));
        let missing = Error::NoSuchModel { model: "ver/3".into(), models: "ver/1, ver/2".into() };
        assert_eq!(read(ROLLOUT, Some("ver/3")), Err(missing));
        let one = read(ROLLOUT, Some("ver/2")).unwrap();
        assert_eq!((one.model.as_str(), one.title.as_str()), ("ver", "ver/2"));
        assert_eq!((one.arrivals.len(), one.jobs.len()), (2, 1));
        assert!((one.jobs[0].took - 0.090).abs() < 1e-12, "the other version's job is left out");
        assert_eq!(one.merged(), None);
    }

    #[test]
    fn versions_under_one_name_are_said_to_count_as_one() {
        let both = read(ROLLOUT, Some("ver")).unwrap();
        assert_eq!((both.arrivals.len(), both.jobs.len()), (3, 2));
        let said = both.merged().unwrap();
        assert_eq!(said, "versions 1 and 2 of ver count as one model: --model ver/2 picks one");
        let one = ROLLOUT.replace("\"version\":\"2\"", "\"version\":\"1\"");
        assert_eq!(read(&one, None).unwrap().arrivals.len(), 3, "a version that came again is one");
        assert_eq!(read(TEXT, Some("a/1")).unwrap().arrivals.len(), 2);
    }

    #[test]
    fn recording_is_rejected_when_a_line_claims_too_much() {
        let with = |line: &str| read(&format!("{TEXT}{line}\n"), Some("a"));
        let job = |at_us: u64, took_us: u64| {
            format!(
                r#"{{"job":{{"at_us":{at_us},"took_us":{took_us},"model":0,"instance":3,"rows":1,"role":"deployed","ok":true}}}}"#
            )
        };
        let many = r#"{"query":{"at_us":1,"model":0,"rows":4294967295}}"#;
        assert_eq!(with(many), Err(Error::ManyQueries { limit: QUERIES }));
        let most = u64::MAX;
        for line in [
            format!(r#"{{"query":{{"at_us":{most},"model":0,"rows":1}}}}"#),
            format!(r#"{{"end":{{"at_us":{most}}}}}"#),
            job(most, 1),
            job(1, most),
        ] {
            assert!(matches!(with(&line), Err(Error::BadLine { line: 10, .. })), "{line}");
        }
        for line in ["[", "{}", "{\"query\":{\"at_us\":-1}}", "{\"end\":{\"at_us\":1e400}}", "\0"] {
            assert!(matches!(with(line), Err(Error::BadLine { .. })), "{line}");
        }
        let dropped = format!("{{\"dropped\":{{\"notes\":{most}}}}}\n").repeat(2);
        assert_eq!(with(dropped.trim_end()).unwrap().dropped, most);
    }

    #[test]
    fn profile_is_rejected_when_jobs_took_no_time() {
        let job = |at: u64| {
            format!(
                "{{\"job\":{{\"at_us\":{at},\"took_us\":0,\"model\":0,\"instance\":3,\"rows\":1,\"role\":\"deployed\",\"ok\":true}}}}\n"
            )
        };
        let text = TEXT.to_owned() + &(0..2000).map(job).collect::<String>();
        assert_eq!(crate::tuner::fit(&read(&text, Some("a")).unwrap()), Err(Error::NoTime));
    }

    #[test]
    fn incomplete_last_line_is_ignored() {
        let cut = &TEXT[..TEXT.len() - 12];
        assert_eq!(read(cut, Some("a")).unwrap().arrivals.len(), 2);
    }

    /// Joins jobs of 10 ms, given as number, time and success. Numbers 1 to 4 have one address, and 0 another.
    fn joined(jobs: &[(u32, f64, bool)]) -> (Vec<u32>, Vec<u32>) {
        let role = RecordedRole::Deployed;
        let job = |&(instance, at, ok): &(u32, f64, bool)| Job {
            instance,
            at,
            took: 0.01,
            rows: 1,
            role,
            ok,
            arrived: None,
        };
        let mut jobs: Vec<Job> = jobs.iter().map(job).collect();
        let name = |number: u32| (number, if number == 0 { "http://a" } else { "http://b" }.to_owned());
        let mut instances: BTreeMap<u32, String> = (0..5).map(name).collect();
        join(&mut instances, &mut jobs);
        (jobs.iter().map(|job| job.instance).collect(), instances.into_keys().collect())
    }

    #[test]
    fn restarted_instance_is_one_instance() {
        let jobs =
            [(0, 0.0, true), (1, 0.0, true), (0, 5.0, true), (2, 6.0, true), (3, 8.0, true), (4, 9.0, true)];
        assert_eq!(joined(&jobs), (vec![0, 1, 0, 1, 1, 1], vec![0, 1]));
        // The job that a kill interrupted is known to be lost only after the restart.
        let late = [(1, 0.0, true), (2, 6.0, true), (1, 6.005, false), (3, 8.0, true), (4, 9.0, true)];
        assert_eq!(joined(&late), (vec![1; 5], vec![0, 1]));
    }

    #[test]
    fn instances_of_one_address_that_overlap_stay_apart() {
        let jobs =
            [(1, 0.0, true), (2, 0.5, true), (1, 1.0, true), (2, 1.5, true), (3, 2.0, true), (4, 3.0, true)];
        assert_eq!(joined(&jobs), (vec![1, 2, 1, 2, 1, 1], vec![0, 1, 2]));
    }
}
