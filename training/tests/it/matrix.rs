//! Matrices of runs, in one process and in shares.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use parm_grids::{Share, join};
use parm_parity_models::onnx::{Limits, Model};
use parm_random::Random;
use parm_training::data::Samples;
use parm_training::fit::Stop;
use parm_training::matrix::{
    Cell, GRID, Matrix, MatrixObserver, OpenTeacher, Outcome, Place, Results, Runner, Runs,
};
use parm_training::{Array, Device, Error, Network, Teacher};
use tempfile::TempDir;

use crate::task::samples;

const FILE: &str = r#"
[data.small]
train = "npy:{}/train/inputs.npy,{}/train/labels.npy"
test = "npy:{}/test/inputs.npy,{}/test/labels.npy"
note = "Made up."

[base.mlp]
held_out = 60
run = { epochs = 2, batch = 16, rate = 0.003 }

[recipe.slots]
held_out = 60
run = { epochs = 2, batch = 16, rate = 0.003 }

[recipe.weighted]
encoder = "weighted"
held_out = 60
run = { epochs = 2, batch = 16, rate = 0.003 }

[code.learned]
held_out = 60
run = { epochs = 2, batch = 16, rate = 0.003 }

[[cells]]
data = ["small"]
base = ["mlp"]
recipe = ["slots", "learned"]
k = [2]
seed = [1, 2]

[[cells]]
data = ["small"]
base = ["mlp"]
recipe = ["weighted"]
k = [3]
r = [2]
seed = [1]
"#;

fn matrix(text: &str) -> Result<Matrix, Error> {
    Matrix::parse(text, Path::new("small.toml"))
}

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

    fn finished(&self, outcome: &Outcome) {
        assert!(outcome.degraded > 0.0 && outcome.available > 0.8, "{outcome:?}");
    }
}

/// A matrix with its data, and folders of results.
struct Fixture {
    folder: TempDir,
    matrix: Matrix,
}

impl Fixture {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, rows, seed) in [("train", 400, 2), ("test", 120, 3)] {
            samples(rows, seed).save(&folder.path().join(name)).expect("rows");
        }
        Self { folder, matrix: matrix(text).expect("a matrix") }
    }

    fn results(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn open(&self, name: &str) -> Results {
        Results::open(&self.results(name)).expect("results")
    }

    /// Calls `with` for a runner on a folder of results, and returns the cells that began.
    fn with<T>(
        &self,
        name: &str,
        ask: &OpenTeacher<'_>,
        stops: bool,
        with: impl FnOnce(&Runner<'_>) -> T,
    ) -> (T, Vec<String>) {
        let stop = Stop::default();
        let watch = Watch { begun: Mutex::default(), stop: stops.then_some(&stop) };
        let place = Place { data: self.folder.path().into(), results: self.results(name) };
        let result = with(&Runner {
            matrix: &self.matrix,
            place: &place,
            device: Device::Cpu,
            ask,
            clock: &clock,
            observer: &watch,
            stop: &stop,
        });
        (result, watch.begun.into_inner().unwrap())
    }

    /// Runs all missing cells.
    fn run(&self, name: &str) -> (Results, Vec<String>) {
        self.with(name, &nobody, false, |runner| runner.run().expect("it runs"))
    }

    fn share(&self, name: &str, share: &str, stops: bool) -> (Result<(), Error>, Vec<String>) {
        let share: Share = share.parse().expect("a share");
        let keys = share.of(&self.matrix.grid()).into_iter().map(|cell| cell.key).collect();
        self.with(name, &nobody, stops, |runner| runner.run_share(&keys))
    }
}

/// The results without measured times.
fn numbers(results: &Results) -> Vec<Outcome> {
    results.all().map(|one| Outcome { seconds: 0.0, costs: Default::default(), ..one.clone() }).collect()
}

#[test]
fn matrix_runs_the_missing_cells() {
    let fixture = Fixture::new(FILE);
    // An unusable checkpoint, such as another version's, leads to a new start.
    let key = fixture.matrix.cells()[0].key(&fixture.matrix);
    let folder = fixture.results("one");
    fs::create_dir_all(folder.join("cells")).expect("a folder");
    fs::write(folder.join(format!("cells/{key}.checkpoint")), "of another time").expect("a file");
    let (results, begun) = fixture.run("one");
    assert_eq!((results.all().count(), begun.len()), (5, 5));
    // An incomplete line, as after a crash of the machine, is ignored and does not affect other results.
    let path = folder.join("outcomes.jsonl");
    let text = fs::read_to_string(&path).expect("results");
    let (rest, last) = text.trim_end().rsplit_once('\n').expect("lines");
    fs::write(&path, format!("{rest}\n{}", &last[..last.len() / 2])).expect("a torn file");
    assert_eq!(fixture.run("one").1, Vec::<String>::new());
    assert!(fs::read_to_string(&path).expect("results").ends_with(&format!("{last}\n")));

    // Pairs and costs are kept; with slots a coded query is as long as two.
    for outcome in results.all() {
        assert!(outcome.gap_error.is_some_and(|error| error < 0.2), "{outcome:?}");
        assert_eq!(outcome.agreement.is_some(), outcome.cell.recipe != "learned");
        let cost = match &*outcome.cell.recipe {
            "slots" => Some(&2.0),
            "weighted" => Some(&1.0),
            _ => None,
        };
        assert_eq!(outcome.costs.get("tract"), cost, "{outcome:?}");
    }
    let ends = fs::read_dir(folder.join("cells")).expect("a folder").map(|file| file.expect("a file").path());
    assert!(!ends.into_iter().any(|path| path.extension().is_some_and(|ending| ending == "onnx")));
}

#[test]
fn key_of_existing_results_stays_the_same() {
    // A change of this number would invalidate all existing results.
    let files = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/matrix")).expect("a folder");
    let read = |file: std::io::Result<fs::DirEntry>| {
        let path = file.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("text");
        let matrix = Matrix::parse(&text, &path).expect("a matrix");
        (path.file_stem().unwrap_or_default().to_owned(), matrix.cells()[0].key(&matrix))
    };
    let keys: BTreeMap<_, _> = files.map(read).collect();
    assert!(keys.len() > 5, "{keys:?}");
    assert_eq!(keys[std::ffi::OsStr::new("mlp")], "8eca4ce386d6991b");
}

#[test]
fn key_depends_on_the_rows_but_not_on_their_folder() {
    let key = |text: &str| {
        let matrix = matrix(text).expect("a matrix");
        matrix.cells()[0].key(&matrix)
    };
    let plain = key(FILE);
    assert_eq!(key(&FILE.replace("{}/train/inputs", "{}/elsewhere/train/inputs")), plain);
    let fewer = key(&FILE.replace("train/labels.npy", "train/labels.npy?rows=0..300"));
    assert_ne!(fewer, plain);
    assert_ne!(key(&FILE.replace("train/labels.npy", "train/labels.npy?rows=0..200")), fewer);
    assert_ne!(key(&FILE.replace("note =", "measure = \"agreement\"\nnote =")), plain);
}

const GIVEN: &str = r#"
[data.small]
train = "npy:{}/train/inputs.npy,{}/train/labels.npy"
test = "npy:{}/test/inputs.npy,{}/test/labels.npy"
measure = "agreement"

[deployed.theirs]
file = "{}/theirs.onnx"
network = "mlp"

[recipe.slots]
start = "scratch"
held_out = 60
run = { epochs = 6, batch = 16, rate = 0.003 }

[[cells]]
data = ["small"]
base = ["theirs"]
recipe = ["slots"]
k = [2]
seed = [1]
"#;

#[test]
fn answers_of_a_supplied_model_are_the_truth() {
    let fixture = Fixture::new(GIVEN);
    fs::write(fixture.results("theirs.onnx"), crate::task::deployed()).expect("a model");
    let asked = AtomicUsize::new(0);
    let ask = |path: &Path| -> Result<Box<dyn Teacher>, Error> {
        asked.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Network::new(Model::open(path, &Limits::default())?, Device::Cpu)?))
    };
    let results = fixture.with("results", &ask, false, |runner| runner.run().expect("it runs")).0;
    let outcome = results.all().next().expect("a result");
    assert_eq!((outcome.available, asked.into_inner()), (1.0, 1));
    assert!(outcome.degraded > outcome.constant + 0.2, "{outcome:?}");
}

#[test]
fn matrix_that_cannot_run_is_rejected_with_the_reason() {
    for (text, expected) in [
        (
            FILE.replace(r#"["weighted"]"#, r#"["wieghted"]"#),
            "small.toml' is not a valid matrix: unknown recipe 'wieghted'",
        ),
        (
            GIVEN.replace("held_out", "augment = { shift = 1 }\nheld_out"),
            "'theirs' is asked once about every row, but 'slots'",
        ),
        (GIVEN.replace("[recipe.slots]\nstart = \"scratch\"", "[code.slots]"), "goes through its graph"),
        (GIVEN.replace("\"npy:{}/train", "\"ids:{}/train"), "unknown kind 'ids'"),
    ] {
        let message = matrix(&text).expect_err("it must be rejected").to_string();
        assert!(message.contains(expected), "{message}");
    }
}

const BOXES: &str = r#"
[data.boxes]
train = "npy:{}/boxes/inputs.npy,{}/boxes/values.npy?rows=0..300"
test = "npy:{}/boxes/inputs.npy,{}/boxes/values.npy?rows=300..400"
measure = "iou"

[base.mlp]
held_out = 40
run = { epochs = 20, batch = 16, rate = 0.003 }

[recipe.slots]
meaning = "values"
held_out = 40
run = { epochs = 10, batch = 16, rate = 0.003 }

[[cells]]
data = ["boxes"]
base = ["mlp"]
recipe = ["slots"]
k = [2]
seed = [1]
"#;

#[test]
fn boxes_are_measured_by_intersection_over_union() {
    let fixture = Fixture::new(BOXES);
    // A row contains the place of its box; boxes have one size and are anywhere.
    let corners = Random::new(5).uniforms(0.3, 800);
    let boxes = corners.chunks(2).flat_map(|at| [at[0] + 0.3, at[1] + 0.3, at[0] + 0.7, at[1] + 0.7]);
    let boxes = Array::new(vec![400, 4], boxes.collect()).expect("boxes");
    let rows = Samples::with_values(Array::new(vec![400, 2], corners).expect("rows"), boxes);
    rows.expect("a box for each row").save(&fixture.results("boxes")).expect("files");
    let results = fixture.run("results").0;
    let outcome = results.all().next().expect("a result");
    assert!(outcome.available > 0.8 && outcome.degraded > outcome.constant + 0.1, "{outcome:?}");
}

#[test]
fn matrix_in_two_shares_equals_that_of_one_process() {
    let fixture = Fixture::new(FILE);
    let one = fixture.run("one").0;
    let (first, second) = std::thread::scope(|scope| {
        let other = scope.spawn(|| fixture.share("many", "0/2", false));
        (fixture.share("many", "1/2", false), other.join().unwrap())
    });
    first.0.and(second.0).expect("both run");
    assert_eq!(first.1.len() + second.1.len(), one.all().count(), "every cell runs once");
    let cells = fixture.matrix.grid();
    let joined = join(&[fixture.results("many")], GRID, &cells).expect("a join");
    assert!(joined.problems.is_empty() && joined.foreign.is_empty(), "{:?}", joined.problems);
    let mut results = fixture.open("joined");
    results.join(joined.records.values()).expect("they are kept");
    results.join(joined.records.values()).expect("they are there already");
    assert_eq!((numbers(&results), numbers(&fixture.open("joined"))), (numbers(&one), numbers(&one)));
    let lines = fs::read_to_string(fixture.results("joined").join("outcomes.jsonl")).expect("lines");
    assert_eq!(lines.lines().count(), 5);
    // A run of one process finds the results.
    assert_eq!(fixture.run("many").1, Vec::<String>::new());
}

#[test]
fn stopped_cell_continues_from_its_checkpoint() {
    let fixture = Fixture::new(FILE);
    let (stopped, begun) = fixture.share("many", "0/1", true);
    assert!(stopped.is_err() && begun.len() == 2, "{stopped:?} {begun:?}");
    let checkpoints = || {
        let files = fs::read_dir(fixture.results("many").join("cells")).expect("a folder");
        let names = files.map(|file| file.expect("a file").file_name().into_string().expect("a name"));
        names.filter(|name| name.ends_with(".checkpoint")).count()
    };
    assert_eq!(checkpoints(), 1);
    let (ended, begun) = fixture.share("many", "0/1", false);
    ended.expect("it runs");
    assert_eq!((begun.len(), checkpoints()), (4, 0));
    assert_eq!(numbers(&fixture.open("many")), numbers(&fixture.run("one").0));
}

#[test]
fn results_and_base_models_of_other_data_are_not_used() {
    let mut fixture = Fixture::new(FILE);
    fixture.share("many", "0/1", false).0.expect("it runs");
    samples(400, 5).save(&fixture.results("train")).expect("rows");
    let error = fixture.share("many", "0/1", false).0.expect_err("the data are others").to_string();
    assert!(error.contains("other inputs (data small)"), "{error}");
    // Cells without results that share base models with those before.
    fixture.matrix =
        matrix(&FILE.replace("k = [2]", "k = [4]").replace("k = [3]", "k = [5]")).expect("a matrix");
    fixture.share("many", "0/1", false).0.expect("it runs");
    fixture.share("fresh", "0/1", false).0.expect("it runs");
    let (many, fresh) = (numbers(&fixture.open("many")), numbers(&fixture.open("fresh")));
    assert!(fresh.iter().all(|one| many.contains(one)), "{many:?}\n{fresh:?}");
}

#[test]
fn data_of_two_files_join_under_one_name() {
    // As the small ResNets of the accuracy page, which learn from a part of the rows of the other networks.
    let mut fixture = Fixture::new(FILE);
    fixture.share("many", "0/1", false).0.expect("it runs");
    let mut cells = fixture.matrix.grid();
    let fewer = FILE.replace("train/labels.npy", "train/labels.npy?sample=300");
    fixture.matrix = matrix(&fewer).expect("a matrix");
    fixture.share("many", "0/1", false).0.expect("it runs");
    cells.extend(fixture.matrix.grid());
    let joined = join(&[fixture.results("many")], GRID, &cells).expect("a join");
    assert_eq!((joined.problems.as_slice(), joined.records.len()), ([].as_slice(), 10));
}

/// Returns the length of a coded query relative to a query as the cost, if the models' files exist.
fn clock(runs: Runs<'_>) -> BTreeMap<String, f64> {
    for file in [runs.deployed, runs.parity] {
        Model::open(file, &Limits::default()).expect("a model");
    }
    let share = runs.coded.data().len() as f64 / runs.query.data().len() as f64;
    BTreeMap::from([("tract".into(), share)])
}

/// Fails if a supplied model is opened.
fn nobody(path: &Path) -> Result<Box<dyn Teacher>, Error> {
    panic!("{} was asked", path.display())
}
