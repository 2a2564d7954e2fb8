//! Folders that other programs damaged, and processes that pause at the worst moment.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use parm_grids::{
    Clock, Error, Folder, Found, Leases, Listing, Problem, Queue, ServerClock, State, Summary, join,
};
use tempfile::TempDir;

use crate::support::{cell, product, sealed};

const LIMIT: Duration = Duration::from_secs(60);

fn folder(results: &TempDir) -> Folder {
    Folder::open(results.path(), "test", LIMIT).unwrap()
}

fn lease_path(results: &TempDir, generation: u32) -> PathBuf {
    results.path().join(format!("cells/{}.lease.{generation}", cell(1).key))
}

/// The state of cell 1.
fn state(folder: &Folder) -> State {
    Summary::read(folder, &[cell(1)]).unwrap().cells.remove(0).state
}

/// Runs cell 1 of a folder.
fn run(folder: &Folder) -> Result<bool, Error> {
    let queue = Queue::new(folder, vec![cell(1)]);
    queue.next(&|| false)?.map_or(Ok(false), |held| held.finish(product(1)).map(|()| true))
}

/// A clock that runs a part of another process before the first stamp.
struct Interrupted {
    before: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Clock for Interrupted {
    fn stamp(&self, path: &Path, text: &str) -> io::Result<()> {
        if let Some(before) = self.before.lock().unwrap().take() {
            before();
        }
        fs::metadata(path)?;
        fs::write(path, text)
    }

    fn now(&self) -> io::Result<SystemTime> {
        Ok(SystemTime::now())
    }
}

/// Claims a cell, and pauses between the creation and the stamp of the lease, in which `other` runs.
fn claim_around(other: impl FnOnce(&Path) + Send + 'static) -> bool {
    let results = TempDir::new().unwrap();
    let leases = Leases::new(results.path(), LIMIT).unwrap();
    let path = results.path().to_owned();
    let before: Box<dyn FnOnce() + Send> = Box::new(move || other(&path));
    let leases = leases.with_clock(Arc::new(Interrupted { before: Mutex::new(Some(before)) }), "paused");
    leases.claim("cell", &Listing::default()).unwrap().is_some()
}

#[test]
fn process_that_pauses_in_a_claim_takes_nothing() {
    assert!(claim_around(|_| ()));
    assert!(!claim_around(|path| fs::write(path.join("cell.lease.2"), "held by another").unwrap()));
    assert!(!claim_around(|path| fs::remove_file(path.join("cell.lease.1")).unwrap()));
}

#[test]
fn freed_lease_is_not_that_of_another_process() {
    let results = TempDir::new().unwrap();
    let (one, two) = (folder(&results), folder(&results));
    let queue = Queue::new(&one, vec![cell(1)]);
    let paused = queue.next(&|| false).unwrap().unwrap();
    // Its lease expired, another process finished the cell, the result was removed, and a third process runs it.
    fs::remove_file(lease_path(&results, 1)).unwrap();
    let other = Queue::new(&two, vec![cell(1)]);
    let third = other.next(&|| false).unwrap().unwrap();
    drop(paused);
    assert!(matches!(state(&one), State::Held { .. }), "the third process still runs it");
    third.finish(product(1)).unwrap();
}

#[test]
fn abandoned_cell_stays_free_and_gets_no_result() {
    let results = TempDir::new().unwrap();
    let folder = Folder::open(results.path(), "test", Duration::from_millis(80)).unwrap();
    let queue = Queue::new(&folder, vec![cell(1)]);
    let held = queue.next(&|| false).unwrap().unwrap();
    queue.abandon();
    // The text of a free lease never changes, however many heartbeats would have passed.
    let text = fs::read_to_string(lease_path(&results, 1)).unwrap();
    assert!(text.starts_with("left by "), "{text}");
    assert_eq!(held.finish(product(1)), Err(Error::Lost { name: "cell 1".into() }));
    assert_eq!(state(&folder), State::Free);
}

#[test]
fn lease_file_with_the_largest_number_is_an_error() {
    let results = TempDir::new().unwrap();
    let folder = folder(&results);
    fs::write(lease_path(&results, u32::MAX), "left by a test").unwrap();
    let error = run(&folder).unwrap_err().to_string();
    assert!(error.contains("lease"), "{error}");
}

#[test]
fn lease_file_with_a_huge_number_does_not_delay_a_result() {
    let results = TempDir::new().unwrap();
    let path = results.path().to_owned();
    fs::create_dir(path.join("cells")).unwrap();
    for generation in [1, 4_000_000_000] {
        fs::write(lease_path(&results, generation), "left by a test").unwrap();
    }
    // It would take an hour.
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let ran = run(&Folder::open(&path, "test", LIMIT).unwrap());
        tell.send(ran).unwrap();
    });
    assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(Ok(true)));
    let files = fs::read_dir(results.path().join("cells")).unwrap();
    let names: Vec<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(names.iter().filter(|name| name.contains(".lease.")).count(), 0, "{names:?}");
}

fn pipe(path: &Path) {
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
}

#[test]
fn pipe_in_place_of_a_lease_blocks_no_process() {
    let results = TempDir::new().unwrap();
    let path = results.path().to_owned();
    fs::create_dir(path.join("cells")).unwrap();
    pipe(&lease_path(&results, 1));
    let beaten = lease_path(&results, 2);
    let (tell, told) = std::sync::mpsc::sync_channel(3);
    std::thread::spawn(move || {
        let open = |limit| Folder::open(&path, "test", limit).unwrap();
        tell.send(matches!(state(&open(LIMIT)), State::Held { .. })).unwrap();
        // The lease of a pipe expires like a damaged one.
        tell.send(run(&open(Duration::from_millis(80))) == Ok(true)).unwrap();
        // A heartbeat that finds a pipe fails.
        pipe(&beaten);
        tell.send(ServerClock::new(&path).stamp(&beaten, "held").is_err()).unwrap();
    });
    for step in ["reading", "running", "renewing"] {
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(true), "{step}");
    }
    assert!(!lease_path(&results, 1).exists());
}

#[test]
fn result_of_another_version_is_reported_not_used() {
    let results = TempDir::new().unwrap();
    let folder = folder(&results);
    assert!(run(&folder).unwrap());
    let path = folder.result_path(&cell(1).key);
    fs::write(&path, sealed(&fs::read(&path).unwrap(), "0.0.1")).unwrap();
    assert!(matches!(folder.found(&cell(1)), Found::Whole(_)), "its digest is right");
    let joined = join(&[results.path().into()], "test", &[cell(1)]).unwrap();
    assert!(joined.records.is_empty());
    assert!(matches!(&joined.problems[0], Problem::OtherVersion { version, .. } if version == "0.0.1"));
    assert!(matches!(state(&folder), State::Damaged { .. }), "{:?}", state(&folder));
    let error = run(&folder).unwrap_err().to_string();
    assert!(error.contains("0.0.1") && error.contains("another folder"), "{error}");
    assert!(parm_grids::records(results.path(), "test").unwrap().is_empty());
}

#[test]
fn files_that_are_not_regular_are_not_read() {
    let results = TempDir::new().unwrap();
    let folder = folder(&results);
    let path = folder.result_path(&cell(1).key);
    // An endless file, a folder, a link in a circle, and one to nothing.
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    assert!(matches!(state(&folder), State::Damaged { .. }));
    let joined = join(&[results.path().into()], "test", &[cell(1)]).unwrap();
    assert!(matches!(joined.problems[0], Problem::Damaged { .. }), "{:?}", joined.problems);
    // The new result replaces the link, not the file behind it.
    assert!(run(&folder).unwrap() && !run(&folder).unwrap());
    assert!(fs::symlink_metadata(&path).unwrap().is_file());
    for target in [path.clone(), "/nothing/here".into()] {
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(target, &path).unwrap();
        assert!(run(&folder).unwrap());
    }
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(matches!(state(&folder), State::Damaged { .. }));
    let error = run(&folder).unwrap_err().to_string();
    assert!(error.contains(&cell(1).key), "{error}");
}

#[test]
fn equal_cells_run_once_and_join() {
    // Two cells with one key, as a hash collision or a repeated setting makes them.
    let results = TempDir::new().unwrap();
    let folder = folder(&results);
    let queue = Queue::new(&folder, vec![cell(1), cell(1)]);
    let held = queue.next(&|| false).unwrap().unwrap();
    let waits = OnceLock::new();
    assert!(queue.next(&|| waits.set(()).is_err()).unwrap().is_none(), "this process holds it already");
    held.finish(product(1)).unwrap();
    assert!(queue.next(&|| false).unwrap().is_none());
    assert_eq!(join(&[results.path().into()], "test", &[cell(1), cell(1)]).unwrap().problems, []);
    // Other settings under this key do not fit its result.
    let mut collided = cell(2);
    collided.key = cell(1).key;
    let joined = join(&[results.path().into()], "test", std::slice::from_ref(&collided)).unwrap();
    assert!(matches!(joined.problems[0], Problem::OtherInputs { .. }), "{:?}", joined.problems);
    assert!(Queue::new(&folder, vec![collided]).next(&|| false).is_err());
}

#[test]
fn two_processes_with_one_name_never_share_a_draft() {
    let results = TempDir::new().unwrap();
    let path = results.path().join("file");
    let (one, two) = (parm_grids::draft(&path), parm_grids::draft(&path));
    assert_ne!(one, two);
    std::thread::scope(|scope| {
        for number in 0..4u8 {
            let path = &path;
            scope.spawn(move || (0..50).try_for_each(|_| parm_grids::write(path, &[number; 4096])).unwrap());
        }
    });
    let bytes = fs::read(&path).unwrap();
    assert!(bytes.len() == 4096 && bytes.iter().all(|byte| *byte == bytes[0]));
    assert_eq!(fs::read_dir(results.path()).unwrap().count(), 1, "drafts are gone");
    assert!(File::open(one).is_err());
}
