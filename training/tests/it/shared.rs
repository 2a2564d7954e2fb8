//! Matrices in shares: the joined results equal those of one process.

use std::path::PathBuf;
use std::sync::Mutex;

use parm_grids::{Folder, Share, join};
use parm_training::fit::Stop;
use parm_training::matrix::{Cell, GRID, Matrix, MatrixObserver, Outcome, Place, Results, Runner};
use parm_training::{Device, Error};
use tempfile::TempDir;

use crate::matrix::{FILE, clock, matrix, nobody, write};

/// Counts the cells that begin, and requests the end when the second of them begins.
struct Watch<'a> {
    begun: Mutex<Vec<String>>,
    stop: Option<&'a Stop>,
}

impl MatrixObserver for Watch<'_> {
    fn began(&self, cell: &Cell, _: usize) {
        let mut begun = self.begun.lock().unwrap();
        begun.push(cell.to_string());
        // Its base model exists, and it stops at its first step.
        if let Some(stop) = self.stop
            && begun.len() == 2
        {
            stop.request();
        }
    }

    fn finished(&self, _: &Outcome) {}
}

struct Shared {
    folder: TempDir,
    matrix: Matrix,
}

impl Shared {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, rows, seed) in [("train", 400, 2), ("test", 120, 3)] {
            write(folder.path(), name, rows, seed);
        }
        Self { folder, matrix: matrix(FILE).expect("a matrix") }
    }

    fn results(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Calls `with` for a runner on a folder of results, and returns the cells that began.
    fn with<T>(&self, name: &str, stops: bool, with: impl FnOnce(&Runner<'_>) -> T) -> (T, Vec<String>) {
        let stop = Stop::default();
        let watch = Watch { begun: Mutex::default(), stop: stops.then_some(&stop) };
        let place = Place { data: self.folder.path().into(), results: self.results(name) };
        let result = with(&Runner {
            matrix: &self.matrix,
            place: &place,
            jobs: 1,
            device: Device::Cpu,
            ask: &nobody,
            clock: &clock,
            observer: &watch,
            stop: &stop,
        });
        (result, watch.begun.into_inner().unwrap())
    }

    fn share(&self, name: &str, share: &str, stops: bool) -> (Result<(), Error>, Vec<String>) {
        let folder = Folder::create(&self.results(name), GRID).expect("a folder");
        let share: Share = share.parse().expect("a share");
        let keys = share.of(&self.matrix.grid()).into_iter().map(|cell| cell.key).collect();
        self.with(name, stops, |runner| runner.run_share(&folder, share, &keys))
    }
}

/// The results without measured times.
fn numbers(results: &Results) -> Vec<Outcome> {
    results.all().map(|one| Outcome { seconds: 0.0, costs: Default::default(), ..one.clone() }).collect()
}

#[test]
fn matrix_in_two_shares_equals_that_of_one_process() {
    let shared = Shared::new();
    let one = shared.with("one", false, |runner| runner.run().expect("it runs")).0;
    let (first, second) = std::thread::scope(|scope| {
        let other = scope.spawn(|| shared.share("many", "0/2", false));
        (shared.share("many", "1/2", false), other.join().unwrap())
    });
    first.0.and(second.0).expect("both run");
    assert_eq!(first.1.len() + second.1.len(), one.all().count(), "every cell runs once");
    let cells = shared.matrix.grid();
    let joined = join(&[shared.results("many")], GRID, &cells).expect("a join");
    assert!(joined.problems.is_empty() && joined.foreign.is_empty(), "{:?}", joined.problems);
    let mut results = Results::open(&shared.results("joined")).expect("results");
    results.join(joined.records.values()).expect("they are kept");
    results.join(joined.records.values()).expect("they are there already");
    let again = Results::open(&shared.results("joined")).expect("results");
    assert_eq!((numbers(&results), numbers(&again)), (numbers(&one), numbers(&one)));
    let lines = std::fs::read_to_string(shared.results("joined").join("outcomes.jsonl")).expect("lines");
    assert_eq!(lines.lines().count(), 5);
    // A run of one process finds the results, and so does a page.
    assert_eq!(shared.with("many", false, |runner| runner.run().expect("it runs")).1, Vec::<String>::new());
}

#[test]
fn stopped_cell_continues_from_its_checkpoint() {
    let shared = Shared::new();
    let (stopped, begun) = shared.share("many", "0/1", true);
    assert!(stopped.is_err() && begun.len() == 2, "{stopped:?} {begun:?}");
    let folder = shared.results("many");
    let checkpoints = || {
        let files = std::fs::read_dir(folder.join("cells")).expect("a folder");
        let names = files.map(|file| file.expect("a file").file_name().into_string().expect("a name"));
        names.filter(|name| name.ends_with(".checkpoint")).count()
    };
    assert_eq!(checkpoints(), 1);
    let (ended, begun) = shared.share("many", "0/1", false);
    ended.expect("it runs");
    assert_eq!((begun.len(), checkpoints()), (4, 0));
    let one = shared.with("one", false, |runner| runner.run().expect("it runs")).0;
    assert_eq!(numbers(&Results::open(&folder).expect("results")), numbers(&one));
}

#[test]
fn results_from_other_data_are_not_continued() {
    let shared = Shared::new();
    shared.share("many", "0/1", false).0.expect("it runs");
    write(shared.folder.path(), "test", 120, 4);
    let error = shared.share("many", "0/1", false).0.expect_err("the data are others").to_string();
    assert!(error.contains("other inputs (data small)"), "{error}");
}

#[test]
fn data_of_two_files_join_under_one_name() {
    // As the small ResNets of the accuracy page, which learn from a part of the rows of the other networks.
    let mut shared = Shared::new();
    shared.share("many", "0/1", false).0.expect("it runs");
    let mut cells = shared.matrix.grid();
    let fewer = FILE.replace("train-labels\"", "train-labels?sample=300\"");
    shared.matrix = matrix(&fewer).expect("a matrix");
    shared.share("many", "0/1", false).0.expect("it runs");
    cells.extend(shared.matrix.grid());
    let joined = join(&[shared.results("many")], GRID, &cells).expect("a join");
    assert_eq!((joined.problems.as_slice(), joined.records.len()), ([].as_slice(), 10));
}

#[test]
fn base_model_of_other_data_is_not_used() {
    let mut shared = Shared::new();
    shared.share("many", "0/1", false).0.expect("it runs");
    // Other rows, and cells without results that share base models with those before.
    write(shared.folder.path(), "train", 400, 5);
    shared.matrix =
        matrix(&FILE.replace("k = [2]", "k = [4]").replace("k = [3]", "k = [5]")).expect("a matrix");
    shared.share("many", "0/1", false).0.expect("it runs");
    shared.share("fresh", "0/1", false).0.expect("it runs");
    let results = |name| Results::open(&shared.results(name)).expect("results");
    let (many, fresh) = (numbers(&results("many")), numbers(&results("fresh")));
    assert!(fresh.iter().all(|one| many.contains(one)), "{many:?}\n{fresh:?}");
}
