//! Writes the recording of a simulated frontend.

use std::collections::BTreeSet;

use parm_lab::simulator::{Execution, Quiet, Run, Seen};
use parm_lab::tuner::Recording;
use parm_settings::recording::{FORMAT, Line, RecordedJob, RecordedQuery};

/// Records a run.
pub(crate) fn recorded(run: &Run) -> Recording {
    eprintln!("seed {}", run.seed);
    let (mut text, mut instances) = (Vec::new(), BTreeSet::new());
    let mut write = |line: Line| line.write(&mut text);
    write(Line::Recording { format: FORMAT, unix_ms: 0 });
    write(Line::Model { number: 0, name: "m".into(), version: "1".into() });
    let watched = run.watched(&Quiet, &mut |seen| match seen {
        Seen::Arrived(at) => {
            write(Line::Query(RecordedQuery { at_us: at.as_nanos() / 1000, model: 0, rows: 1 }));
        }
        Seen::Executed(Execution { instance, role, rows, given, ended, arrived }) => {
            if instances.insert(instance) {
                write(Line::Instance { number: instance, name: format!("test://{instance}") });
            }
            let (at_us, took_us) = (given.as_nanos() / 1000, ended.since(given).as_micros() as u64);
            let arrived_us = arrived.map(|at| at.as_nanos() / 1000);
            let rows = rows as u32;
            write(Line::Job(RecordedJob {
                at_us,
                took_us,
                model: 0,
                instance,
                rows,
                role,
                ok: true,
                arrived_us,
            }));
        }
        Seen::Answered(_) => {}
    });
    watched.unwrap();
    Recording::read(text.as_slice(), None).unwrap()
}
