//! Format of a recording: one JSON object a line, with one member that names its kind.
//!
//! The format is text because people inspect and cut recordings with standard tools. Lines are short and compress
//! well. Models and instances are introduced by a line of their own and are numbers afterwards.

use serde::{Deserialize, Serialize};

/// The format that this version writes and reads.
pub const FORMAT: u32 = 1;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The first line.
    Recording {
        /// The format.
        format: u32,
        /// When it began, in milliseconds since 1970. All other times count from then.
        unix_ms: u64,
    },
    /// The number of a model from now on.
    Model {
        /// The number.
        number: u32,
        /// Its name.
        name: String,
        /// Its version; empty where instances name none.
        version: String,
    },
    /// The number of an instance from now on.
    Instance {
        /// The number.
        number: u32,
        /// Its address.
        name: String,
    },
    /// A request arrived.
    Query(RecordedQuery),
    /// An instance finished a job.
    Job(RecordedJob),
    /// Notes were lost because the writer was too slow.
    Dropped {
        /// Lost notes since the last such line.
        notes: u64,
    },
    /// The last line.
    End {
        /// How long the recording is.
        at_us: u64,
    },
}

/// A request that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedQuery {
    /// When, in microseconds.
    pub at_us: u64,
    /// The model.
    pub model: u32,
    /// Its rows, each a query.
    pub rows: u32,
}

/// A job that an instance finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedJob {
    /// The time when it was sent, in microseconds.
    pub at_us: u64,
    /// Its duration in microseconds, the network included.
    pub took_us: u64,
    /// The model of the job.
    pub model: u32,
    /// The instance.
    pub instance: u32,
    /// Rows of the batch; 0 for a parity, whose rows belong to no query.
    pub rows: u32,
    /// Its purpose.
    pub role: RecordedRole,
    /// Whether it was answered.
    pub ok: bool,
    /// When its first query arrived, in microseconds, which shows the jobs of one query; absent for a parity, and before
    /// version 0.2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrived_us: Option<u64>,
}

/// The purpose of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordedRole {
    /// Queries that had no job so far.
    Deployed,
    /// The same queries once more.
    Copy,
    /// A parity.
    Parity,
    /// The cheaper model.
    Backup,
    /// The stand-in, spare or late.
    StandIn,
}

impl Line {
    /// Appends the line to a text.
    pub fn write(&self, text: &mut Vec<u8>) {
        serde_json::to_writer(&mut *text, self).expect("every field has a form in JSON");
        text.push(b'\n');
    }

    /// Reads a line.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_are_written() {
        let query = Line::Query(RecordedQuery { at_us: 12, model: 0, rows: 3 });
        let job = RecordedJob {
            at_us: 13,
            took_us: 20,
            model: 0,
            instance: 4,
            rows: 1,
            role: RecordedRole::Copy,
            ok: true,
            arrived_us: Some(12),
        };
        let lines = [
            Line::Recording { format: FORMAT, unix_ms: 1_700_000_000_000 },
            Line::Model { number: 0, name: "a \"quoted\"\nname".into(), version: "1".into() },
            Line::Instance { number: 4, name: "http://a:1".into() },
            query,
            Line::Job(job),
            Line::Dropped { notes: 7 },
            Line::End { at_us: 99 },
        ];
        let mut text = Vec::new();
        lines.iter().for_each(|line| line.write(&mut text));
        let text = String::from_utf8(text).unwrap();
        let read: Vec<Line> = text.lines().map(|line| Line::parse(line).unwrap()).collect();
        assert_eq!(read, lines);
        assert_eq!(text.lines().nth(3), Some(r#"{"query":{"at_us":12,"model":0,"rows":3}}"#));
        let older = text.lines().nth(4).unwrap().replace(",\"arrived_us\":12", "");
        assert_eq!(Line::parse(&older).unwrap(), Line::Job(RecordedJob { arrived_us: None, ..job }));
    }
}
