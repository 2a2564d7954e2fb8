//! Queues of several threads and processes over one folder.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parm_grids::{Error, Folder, Found, Queue, Selection, State, Summary};
use tempfile::TempDir;

use crate::support::{cell, product};

const LIMIT: Duration = Duration::from_secs(60);

fn folder(results: &TempDir) -> Folder {
    Folder::open(results.path(), "test", LIMIT).unwrap()
}

#[test]
fn each_cell_runs_once_on_many_queues_of_one_folder() {
    let results = TempDir::new().unwrap();
    let runs: Vec<AtomicU32> = (0..40).map(|_| AtomicU32::new(0)).collect();
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let folder = folder(&results);
                let queue = Queue::new(&folder, (0..40).map(cell).collect());
                while let Some(held) = queue.next(&|| false).unwrap() {
                    let number: u32 = held.cell().name.trim_start_matches("cell ").parse().unwrap();
                    runs[number as usize].fetch_add(1, Ordering::Relaxed);
                    held.finish(product(number)).unwrap();
                }
            });
        }
    });
    assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1), "{runs:?}");
    let left = std::fs::read_dir(results.path().join("cells")).unwrap();
    let names: Vec<_> = left.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.iter().all(|name| name.ends_with(".json")), "{names:?}");
    assert_eq!(names.len(), 40);
}

#[test]
fn cell_that_failed_is_free_for_another_process() {
    let results = TempDir::new().unwrap();
    let (one, two) = (folder(&results), folder(&results));
    let queue = Queue::new(&one, vec![cell(1)]);
    let held = queue.next(&|| false).unwrap().unwrap();
    let state = |folder: &Folder| Summary::read(folder, &[cell(1)]).unwrap().cells.remove(0).state;
    assert!(matches!(state(&two), State::Held { .. }));
    assert_eq!(queue.left(), 0);
    drop(held);
    assert_eq!(queue.left(), 1);
    assert_eq!(state(&two), State::Free);
    let other = Queue::new(&two, vec![cell(1)]);
    other.next(&|| false).unwrap().unwrap().finish(product(1)).unwrap();
    assert!(queue.next(&|| false).unwrap().is_none());
    assert_eq!(queue.left(), 0);
    assert_eq!(state(&one), State::Done { took_ms: 1 });
}

#[test]
fn holder_without_its_lease_writes_no_result() {
    let results = TempDir::new().unwrap();
    let folder = folder(&results);
    let queue = Queue::new(&folder, vec![cell(1)]);
    let held = queue.next(&|| false).unwrap().unwrap();
    // Another process took the cell after this one was paused.
    std::fs::write(results.path().join(format!("cells/{}.lease.2", cell(1).key)), "held by another").unwrap();
    assert_eq!(held.finish(product(1)), Err(Error::Lost { name: "cell 1".into() }));
    assert!(matches!(folder.found(&cell(1)), Found::Nothing));
}

#[test]
fn torn_result_is_reported_and_replaced() {
    let results = TempDir::new().unwrap();
    let folder = folder(&results);
    let run = || {
        let queue = Queue::new(&folder, vec![cell(1)]);
        let held = queue.next(&|| false).unwrap();
        held.is_some_and(|held| held.finish(product(1)).is_ok())
    };
    assert!(run() && !run());
    let path = folder.result_path(&cell(1).key);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, &text[..text.len() / 2]).unwrap();
    let summary = Summary::read(&folder, &[cell(1)]).unwrap();
    assert!(matches!(summary.cells[0].state, State::Damaged { .. }), "{summary}");
    assert!(run() && !run());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn result_from_other_inputs_stops_the_queue() {
    let results = TempDir::new().unwrap();
    let folder = folder(&results);
    Queue::new(&folder, vec![cell(1)]).next(&|| false).unwrap().unwrap().finish(product(1)).unwrap();
    let mut changed = cell(1);
    changed.inputs.insert("settings".into(), "changed".into());
    let error = Queue::new(&folder, vec![changed]).next(&|| false).err().unwrap();
    assert!(error.to_string().contains("other inputs (settings)"), "{error}");
}

#[test]
fn unknown_key_is_rejected_with_the_remedy() {
    let cells: Vec<_> = (0..3).map(cell).collect();
    let one = Selection::Keys(vec![cell(2).key]);
    assert_eq!(one.of(&cells).unwrap(), [cell(2)]);
    let error = Selection::Keys(vec!["none".into()]).of(&cells).unwrap_err().to_string();
    assert!(error.contains("'none'") && error.contains("--list"), "{error}");
}
