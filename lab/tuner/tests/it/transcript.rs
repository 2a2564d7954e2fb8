//! Writes the recording of a simulated frontend.

use std::collections::BTreeSet;

use parm_settings::recording::{FORMAT, Line, RecordedJob, RecordedQuery};
use parm_simulator::{Execution, Quiet, Run, Witness};
use parm_tuner::Recording;
use parm_workload::clock::Moment;

/// Writes the recording of a frontend.
#[derive(Default)]
struct Transcript {
    text: Vec<u8>,
    instances: BTreeSet<u32>,
}

impl Transcript {
    fn line(&mut self, line: Line) {
        line.write(&mut self.text);
    }
}

impl Witness for Transcript {
    fn arrived(&mut self, at: Moment) {
        self.line(Line::Query(RecordedQuery { at_us: at.as_nanos() / 1000, model: 0, rows: 1 }));
    }

    fn executed(&mut self, execution: Execution) {
        let Execution { instance, role, rows, given, ended, arrived } = execution;
        if self.instances.insert(instance) {
            self.line(Line::Instance { number: instance, name: format!("test://{instance}") });
        }
        let (at_us, took_us) = (given.as_nanos() / 1000, ended.nanos_since(given) / 1000);
        let rows = rows as u32;
        let arrived_us = arrived.map(|at| at.as_nanos() / 1000);
        let job = RecordedJob { at_us, took_us, model: 0, instance, rows, role, ok: true, arrived_us };
        self.line(Line::Job(job));
    }
}

/// Returns the recording of a run, as JSON lines.
pub(crate) fn text(run: &Run) -> Vec<u8> {
    let mut transcript = Transcript::default();
    transcript.line(Line::Recording { format: FORMAT, unix_ms: 0 });
    transcript.line(Line::Model { number: 0, name: "m".into(), version: "1".into() });
    run.watched(&Quiet, &mut transcript).unwrap();
    transcript.text
}

/// Records a run.
pub(crate) fn recorded(run: &Run) -> Recording {
    eprintln!("seed {}", run.seed);
    Recording::read(text(run).as_slice(), None).unwrap()
}
