//! Reads a frontend's recording of one model.

use std::collections::BTreeMap;
use std::io::{BufRead, Read};

use parm_dispatch::recording::{FORMAT, Line, RecordedRole};
use parm_workload::arrivals::Arrivals;

use crate::Error;

/// The recorded events of one model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// The model.
    pub model: String,
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
    /// Reads a recording. The model must be named if there are queries of several.
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
            Line::Model { number, name, .. } => self.models.entry(number).or_default().name = name,
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
        let names = || with.iter().map(|of| of.name.as_str()).collect::<Vec<_>>().join(", ");
        let chosen = match (model, with.len()) {
            (_, 0) => {
                return Err(Error::EmptyRecording { what: model.unwrap_or("any model").to_owned() });
            }
            (Some(model), _) => with
                .iter()
                .position(|of| of.name == model)
                .ok_or_else(|| Error::NoSuchModel { model: model.to_owned(), models: names() })?,
            (None, 1) => 0,
            (None, _) => return Err(Error::WhichModel { models: names() }),
        };
        let name = with[chosen].name.clone();
        // Versions of one model count as one model.
        let mut all = Of::default();
        for of in self.models.into_values().filter(|of| of.name == name) {
            all.arrivals.extend(of.arrivals);
            all.jobs.extend(of.jobs);
        }
        all.arrivals.sort_by(f64::total_cmp);
        all.jobs.sort_by(|a, b| a.at.total_cmp(&b.at));
        let (instances, dropped, seconds) = (self.instances, self.dropped, self.end);
        let (arrivals, jobs, unfinished) = (all.arrivals, all.jobs, !self.ended);
        Ok(Recording { model: name, seconds, arrivals, jobs, instances, dropped, unfinished })
    }
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
        assert_eq!(crate::fit(&read(&text, Some("a")).unwrap()), Err(Error::NoTime));
    }

    #[test]
    fn incomplete_last_line_is_ignored() {
        let cut = &TEXT[..TEXT.len() - 12];
        assert_eq!(read(cut, Some("a")).unwrap().arrivals.len(), 2);
    }
}
