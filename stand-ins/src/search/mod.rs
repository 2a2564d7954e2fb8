//! Searches a stand-in: makes candidates, measures and judges them on rows that none was made from.

mod bar;
mod candidates;
mod confidence;
#[cfg(test)]
mod defects;
#[cfg(test)]
mod exported;
mod frontier;
mod grades;
mod light;
mod parts;
mod picture;
mod school;
mod spared;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parm_parity_models::onnx::Model;
use parm_parity_models::onnx::rewrite::Draft;
use parm_protocol::Tensor;

pub use frontier::{Candidate, Frontier, Refused, Setting};
pub use grades::{Apart, Grade, Grades, grade};
pub use school::{Lessons, School};

use crate::Error;
use crate::exact::unpack;
use crate::graph::{Survey, work};
use crate::measure::{Costs, Given, Labelled, Meanings, Share, Shares, Truth, constant, costs, sureness};
use crate::rows::Rows;
use crate::workshop::{Progress, Runner, Workshop};
use bar::Bar;
use candidates::{Bench, Made};
use confidence::Left;
use parts::Parts;

/// Maximum nodes of a graph: families visit each of them many times.
const MOST_NODES: usize = 50_000;
/// Fewer rows leave none to judge on.
const FEWEST_ROWS: usize = 24;
/// A candidate is surely nearer to the deployed model if it is nearer by this factor. Candidates with fewer channels
/// were fitted to the calibration rows, so their distance there is too small.
const NEARER: f64 = 2.0;
/// Rows per run while answers are gathered.
const TOGETHER: usize = 8;

/// Settings of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// The maximum cost of a stand-in, as a share of a query on the deployed model.
    pub cost: f64,
    /// Known meanings of the deployed model's outputs; the others are found from its answers.
    pub meanings: Vec<Given>,
    /// The output that labels belong to; found if `None`.
    pub label_output: Option<String>,
    /// The class of each row, if known.
    pub labels: Option<Vec<usize>>,
    /// Rows that ranges and weights are made from. The others are for judging.
    pub calibration: usize,
    /// Maximum rows that candidates are judged on.
    pub judged: usize,
    /// Maximum additional rows that weights are refitted on; at most as many as judge.
    pub fitted: usize,
    /// Whether rows are in order of time: then the newest ones judge, since future rows resemble them most.
    pub in_time: bool,
    /// Seed for the division of the rows.
    pub seed: u64,
    /// Approximate time for measuring costs.
    pub measure: Duration,
    /// Time limit for making candidates.
    pub time: Option<Duration>,
    /// ONNX files that the user supplied, by name: they are measured with the others, and in 8 bits too.
    pub brought: Vec<(String, Bytes)>,
}

/// Checks the size of a graph. To be called before an engine loads it, which takes far more memory.
pub fn check_size(model: &Model) -> Result<(), Error> {
    let nodes = model.proto().graph.as_ref().map_or(0, |graph| graph.node.len());
    if nodes > MOST_NODES { Err(Error::TooManyNodes { nodes, limit: MOST_NODES }) } else { Ok(()) }
}

/// Searches a stand-in for the model in a file. With a school, the best candidates are also taught.
///
/// Only different rows count: a copy of a row that candidates are made from says nothing about unseen rows. A search that
/// is stopped while candidates are made measures those that it has.
pub fn make(
    workshop: &Workshop,
    (path, model): (&Path, &Model),
    given: &Rows,
    wish: &Wish,
    progress: &dyn Progress,
    school: Option<&dyn School>,
) -> Result<Frontier, Error> {
    check_size(model)?;
    let places = given.distinct(wish.in_time);
    match (given.len(), places.len(), FEWEST_ROWS) {
        (given, _, wanted) if given < wanted => return Err(Error::TooFewRows { given, wanted }),
        (given, distinct, wanted) if distinct < wanted => {
            return Err(Error::TooFewDistinct { given, distinct, wanted });
        }
        (given, distinct, _) if distinct < given => {
            progress.tell(&format!("{distinct} of {given} rows are different: copies are left out"));
        }
        _ => {}
    }
    let (rows, labels) = (&given.select(&places)?, wish.labels.as_ref().map(|labels| at(labels, &places)));
    progress.doing("running the deployed model");
    let parts = Parts::draw(rows.len(), wish);
    let (calibration, judged) = (rows.select(&parts.calibration)?, rows.select(&parts.judged)?);
    let mut deployed = workshop.open(path)?;
    let started = Instant::now();
    let said = answers(&mut deployed, &judged, progress)?;
    let each = started.elapsed().as_secs_f64() / judged.len() as f64;
    if let Some(row) = first_nan(&said) {
        return Err(Error::NotFinite { row: places[parts.judged[row]] });
    }
    let judged_labels = labels.as_ref().map(|labels| at(labels, &parts.judged));
    let labelled = Labelled { labels: judged_labels.as_deref(), output: wish.label_output.as_deref() };
    let meanings = Meanings::of(&deployed.signature().outputs, &said, &wish.meanings, labelled)?;
    for one in &meanings.outputs {
        progress.tell(&format!("output '{}' is taken for {}: {}", one.output, one.meaning, one.reason));
    }
    let (choices, constant) = constant(&said, &meanings.list());
    let usual = Share::of(&constant);
    progress.tell(&format!(
        "on the {} rows that judge, a constant answer agrees with the deployed model on {}",
        judged.len(),
        bar::percents(&usual)
    ));
    progress.tell(&format!("this takes about {}", in_words(estimate(each, &parts, wish))));
    let draft = unpack(Draft::new(model)?)?;
    let work = work(&draft, &Survey::of(workshop, &draft, &calibration)?);
    let limited = Limited { progress, until: wish.time.map(|time| Instant::now() + time) };
    let bench = Bench {
        workshop,
        deployed: draft,
        said: answers(&mut deployed, &calibration, progress)?,
        meanings: meanings.list(),
        rows: calibration,
        fitted: rows.select(&[parts.calibration.as_slice(), &parts.fitted].concat())?,
        brought: &wish.brought,
        progress: &limited,
        is_light_faster: Cell::new(false),
        steps: Cell::default(),
    };
    let (mut made, mut refused) = (Vec::new(), Vec::new());
    let done = bench.candidates(&mut made, &mut refused);
    let is_stopped = matches!(done, Err(Error::Stopped)) && !made.is_empty();
    if is_stopped {
        progress.tell(&format!("stopped: measuring the {} candidates that are made", made.len()));
    } else {
        done?;
    }
    let finishing = Finishing(progress);
    let progress: &dyn Progress = if is_stopped { &finishing } else { progress };
    if let Some(school) = school.filter(|_| !is_stopped) {
        let seen = match school.rows() {
            Some(given) => given.clone(),
            None => rows.select(&parts.free())?,
        };
        progress.doing("running the deployed model on the rows to teach with");
        let meaning = meanings.main();
        let lessons =
            Lessons { said: &answers(&mut deployed, &seen, progress)?, rows: &seen, meaning, progress };
        let Costs { shares, .. } = measured(&mut deployed, &mut made, &judged, (wish, progress))?;
        bench.taught((school, lessons), (&shares, wish.cost), &mut made, &mut refused)?;
    }
    let Costs { deployed: time, shares } = measured(&mut deployed, &mut made, &judged, (wish, progress))?;

    let labels = judged_labels;
    let bar = Bar {
        rows: &judged,
        said: &said,
        meanings: &meanings,
        constant: &constant,
        labels: labels.as_deref(),
        progress,
    };
    let reasons: Vec<Option<String>> = (0..made.len()).map(|at| refusal(&made, &shares, at)).collect();
    let (mut candidates, mut said_by) = (Vec::new(), BTreeMap::new());
    for ((one, cost), reason) in made.into_iter().zip(shares).zip(reasons) {
        match reason {
            Some(reason) => refused.push(Refused { name: one.name, reason }),
            None => candidates.push(bar.judge(one, cost, &mut said_by)?),
        }
    }
    let (own, columns) =
        (meanings.scores(&said), labels.as_deref().map(|labels| meanings.columns_of(labels)));
    let mut frontier = Frontier::new(
        workshop.engine(),
        wish.cost,
        Setting {
            deployed_us: time.as_secs_f64() * 1e6,
            rows: given.len(),
            distinct_rows: rows.len(),
            calibration_rows: parts.calibration.len(),
            fitted_rows: parts.fitted.len(),
            judged_rows: parts.judged.len(),
            confidence_rows: parts.judged.len(),
            meanings: meanings.clone(),
            answers: choices,
            constant: usual,
            work,
            accuracy: labels.as_deref().map(|labels| Share::of(&meanings.right(&said, labels))),
            sureness: columns
                .as_deref()
                .and_then(|labels| sureness(&own, &own, &Truth::Labels(labels), meanings.main())),
        },
        candidates,
        refused,
    );
    // Without rows of its own, the school has used all the remaining rows.
    if !is_stopped && school.is_none_or(|school| school.rows().is_some()) {
        let all = Wish { labels: wish.labels.as_ref().map(|labels| at(labels, &places)), ..wish.clone() };
        let left = Left::of(rows, (&parts, time), &all)?;
        left.fit(workshop, (&mut deployed, &said_by), &bar, &mut frontier)?;
    }
    Ok(frontier)
}

/// The labels of these rows.
fn at(labels: &[usize], places: &[usize]) -> Vec<usize> {
    places.iter().map(|&place| labels[place]).collect()
}

/// The first row whose answer is not a number. Infinite scores exclude classes, so they are answers.
fn first_nan(said: &[Tensor]) -> Option<usize> {
    let rows = said.iter().filter_map(|output| {
        let each = (output.len() / output.rows().max(1)).max(1);
        output.as_f32().ok()?.iter().position(|value| value.is_nan()).map(|at| at / each)
    });
    rows.min()
}

/// About how long a search takes if a row takes the deployed model `each`, in seconds: most candidates run on all judged
/// rows, and ranges, layers and channels are tried on the rows that candidates are made from.
fn estimate(each: f64, parts: &Parts, wish: &Wish) -> Duration {
    let runs = 12 * parts.judged.len() + 60 * parts.calibration.len() + 6 * parts.fitted.len();
    Duration::from_secs_f64(each * runs as f64) + 2 * wish.measure
}

fn in_words(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        ..90.0 => format!("{seconds:.0} s"),
        ..5_400.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3_600.0),
    }
}

/// Stops the making of candidates at a time limit.
struct Limited<'a> {
    progress: &'a dyn Progress,
    until: Option<Instant>,
}

impl Progress for Limited<'_> {
    fn doing(&self, what: &str) {
        self.progress.doing(what);
    }

    fn tell(&self, what: &str) {
        self.progress.tell(what);
    }

    fn is_stopped(&self) -> bool {
        self.progress.is_stopped() || self.until.is_some_and(|until| Instant::now() >= until)
    }
}

/// Finishes a search that was stopped.
struct Finishing<'a>(&'a dyn Progress);

impl Progress for Finishing<'_> {
    fn doing(&self, what: &str) {
        self.0.doing(what);
    }

    fn tell(&self, what: &str) {
        self.0.tell(what);
    }

    fn is_stopped(&self) -> bool {
        false
    }
}

/// Measures the costs of all candidates.
fn measured(
    deployed: &mut Runner,
    made: &mut [Made],
    rows: &Rows,
    (wish, progress): (&Wish, &dyn Progress),
) -> Result<Costs, Error> {
    progress.doing("measuring costs");
    let mut runners: Vec<&mut Runner> = vec![deployed];
    runners.extend(made.iter_mut().map(|made| &mut made.runner));
    costs(&mut runners, rows, wish.measure, progress)
}

/// Why a candidate need not be judged: it is not faster, or another costs no more and is far nearer to the deployed
/// model on the calibration rows. Judging takes most of the time.
fn refusal(made: &[Made], shares: &[Shares], at: usize) -> Option<String> {
    let (own, cost) = (&made[at], shares[at][0]);
    if cost >= 1.0 {
        return Some(format!("not faster: it takes {cost:.2} of the deployed model's time"));
    }
    let mut others = made.iter().zip(shares).filter(|(other, _)| other.name != own.name);
    let better = others.find(|(other, shares)| shares[0] <= cost && NEARER * other.distance < own.distance);
    better.map(|(other, shares)| {
        format!(
            "costs {cost:.2}: {} costs {:.2} and is much nearer to the deployed model",
            other.name, shares[0]
        )
    })
}

/// A model's outputs for all rows. A deployed model's output that is not finite is an error.
fn answers(runner: &mut Runner, rows: &Rows, progress: &dyn Progress) -> Result<Vec<Tensor>, Error> {
    let mut parts: Vec<Vec<Tensor>> = Vec::new();
    for start in (0..rows.len()).step_by(TOGETHER) {
        if progress.is_stopped() {
            return Err(Error::Stopped);
        }
        let places = start..(start + TOGETHER).min(rows.len());
        let count = places.len();
        let outputs = runner.run(rows, places)?;
        parts.resize_with(outputs.len(), Vec::new);
        for (at, (parts, output)) in parts.iter_mut().zip(outputs).enumerate() {
            if output.rows() != count {
                let output_name = runner.signature().outputs.get(at).map(|output| output.name.clone());
                let (output, actual) = (output_name.unwrap_or_default(), output.rows());
                return Err(Error::Answers { output, count, actual });
            }
            parts.push(output);
        }
    }
    parts.iter().map(|parts| Ok(Tensor::concat_rows(parts)?)).collect()
}

#[cfg(test)]
mod tests {
    use parm_parity_models::bundle::{Calibration, Meaning};
    use parm_parity_models::onnx::{Builder, Conv, Dense, Value};
    use parm_random::Random;

    use super::*;
    use crate::measure::Sureness;
    use crate::testing::{Alone, Stage, candidate, setting};

    pub(super) const WISH: Wish = Wish {
        cost: 0.9,
        meanings: Vec::new(),
        label_output: None,
        labels: None,
        calibration: 16,
        judged: 1_000,
        fitted: 20,
        in_time: false,
        seed: 1,
        measure: Duration::from_millis(100),
        time: None,
        brought: Vec::new(),
    };

    fn pictures(count: usize) -> Tensor {
        let values = Random::new(9).normals(count * 64);
        Tensor::from_f32([count, 1, 8, 8].as_slice(), &values).unwrap()
    }

    fn classifier(classes: usize) -> Model {
        let mut builder = Builder::new("classifier", 7);
        let x = builder.input(Value::batch_of_f32("x", &[1, 8, 8]));
        let conv = builder.conv("conv", &x, Conv::same(1, 4, 3)).unwrap();
        let idle = builder.node("Identity", "idle", &[&conv]);
        let flat = builder.node("Flatten", "flat", &[&idle]);
        let scores = builder.dense("scores", &flat, Dense { inputs: 256, outputs: classes }).unwrap();
        builder.node("Softmax", "y", &[&scores]);
        builder.output(Value::batch_of_f32("y", &[classes]));
        builder.build().unwrap()
    }

    fn found(count: usize, wish: &Wish) -> Result<Frontier, Error> {
        at_school(count, wish, None)
    }

    fn at_school(count: usize, wish: &Wish, school: Option<&dyn School>) -> Result<Frontier, Error> {
        found_for(&classifier(3), count, wish, school)
    }

    fn found_for(
        model: &Model,
        count: usize,
        wish: &Wish,
        school: Option<&dyn School>,
    ) -> Result<Frontier, Error> {
        let stage = Stage::new();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        std::fs::write(&path, model.bytes()).unwrap();
        let rows = stage.rows(model, &[pictures(count)]);
        make(&stage.workshop, (&path, model), &rows, wish, &Alone, school)
    }

    #[test]
    fn every_family_is_judged_or_rejected_with_a_reason() {
        let labels = Some(classes(60));
        let found = found(60, &Wish { labels, ..WISH }).unwrap();
        let Setting { calibration_rows, fitted_rows, judged_rows, .. } = found.setting;
        assert_eq!((calibration_rows, fitted_rows, judged_rows), (16, 20, 24));
        assert_eq!(found.setting.meanings.main(), Meaning::Probabilities);
        for family in ["exact", "int8", "int8-convolutions", "int8-products", "pruned"] {
            let judged = found.candidates.iter().find(|candidate| candidate.name == family);
            let refused = found.refused.iter().find(|refused| refused.name == family);
            assert!(judged.is_some() != refused.is_some(), "{family}: {found}");
            assert!(judged.is_none_or(|one| one.agreement.value > 0.7 && one.accuracy.is_some()), "{found}");
        }
        assert!(found.chosen().is_none_or(|chosen| chosen.cost[0] <= 0.9));
        assert!(found.to_svg().starts_with("<svg"));
    }

    #[test]
    fn supplied_model_is_measured_when_its_signature_matches() {
        let brought = [("from-same", 3), ("from-other", 4)]
            .map(|(name, classes)| (name.to_owned(), classifier(classes).bytes().clone()));
        let found = found(60, &Wish { brought: brought.to_vec(), ..WISH }).unwrap();
        let other = found.refused.iter().find(|refused| refused.name == "from-other").unwrap();
        assert!(other.reason.contains("from-other") && other.reason.contains('4'), "{}", other.reason);
        // Two runs of one network differ in time by chance.
        let judged = found.candidates.iter().find(|candidate| candidate.name == "from-same");
        assert!(judged.is_none_or(|one| one.agreement.value == 1.0 && one.sureness.is_some()), "{found}");
        assert!(judged.is_some() || found.refused.iter().any(|one| one.name == "from-same"), "{found}");
    }

    #[test]
    fn supplied_model_with_reordered_outputs_is_rejected() {
        let two = |names: [&str; 2]| {
            let mut builder = Builder::new("two", 5);
            let x = builder.input(Value::batch_of_f32("x", &[1, 8, 8]));
            let flat = builder.node("Flatten", "flat", &[&x]);
            for name in ["a", "b"] {
                builder.dense(name, &flat, Dense { inputs: 64, outputs: 3 }).unwrap();
            }
            for name in names {
                builder.output(Value::batch_of_f32(name, &[3]));
            }
            builder.build().unwrap()
        };
        let brought = vec![("from-turned".to_owned(), two(["b", "a"]).bytes().clone())];
        let found = found_for(&two(["a", "b"]), 60, &Wish { brought, ..WISH }, None).unwrap();
        let turned = found.refused.iter().find(|refused| refused.name == "from-turned").unwrap();
        assert!(turned.reason.starts_with("its outputs are in another order"), "{}", turned.reason);
    }

    /// A school that teaches nothing, or fails.
    struct Lazy(bool, Option<Rows>);

    impl School for Lazy {
        fn rows(&self) -> Option<&Rows> {
            self.1.as_ref()
        }

        fn teach(&self, name: &str, graph: &Bytes, lessons: &Lessons<'_>) -> Result<Bytes, String> {
            // The 60 rows split: 16 to make candidates, 24 to judge, the rest free.
            let rows = self.1.as_ref().map_or(20, Rows::len);
            assert_eq!((name, lessons.rows.len()), ("from-quick", rows));
            assert_eq!((lessons.said[0].shape(), lessons.meaning), (&[rows, 3][..], Meaning::Probabilities));
            if self.0 { Ok(graph.clone()) } else { Err("nobody teaches here".into()) }
        }
    }

    /// A classifier of the same pictures without a convolution.
    fn quick() -> Model {
        let mut builder = Builder::new("quick", 5);
        let x = builder.input(Value::batch_of_f32("x", &[1, 8, 8]));
        let flat = builder.node("Flatten", "flat", &[&x]);
        let scores = builder.dense("scores", &flat, Dense { inputs: 64, outputs: 3 }).unwrap();
        builder.node("Softmax", "y", &[&scores]);
        builder.output(Value::batch_of_f32("y", &[3]));
        builder.build().unwrap()
    }

    /// The classes of the classifier's answers.
    fn classes(count: usize) -> Vec<usize> {
        let (stage, model) = (Stage::new(), classifier(3));
        let said = stage.answers(&model, &stage.rows(&model, &[pictures(count)]));
        said.chunks(3).map(|row| (0..3).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap()).collect()
    }

    #[test]
    fn taught_candidates_are_added_and_failures_are_reported() {
        let brought = vec![("from-quick".to_owned(), quick().bytes().clone())];
        let wish = Wish { brought, ..WISH };
        let found = at_school(60, &wish, Some(&Lazy(true, None))).unwrap();
        let hows =
            found.candidates.iter().filter(|one| one.name == "taught-from-quick").map(|one| one.how.as_str());
        let refused = found.refused.iter().filter(|one| one.name == "taught-from-quick").count();
        let hows: Vec<&str> = hows.collect();
        assert!(
            hows == ["brought, then taught with 20 rows"] || (hows.is_empty() && refused == 1),
            "{found}"
        );
        let found = at_school(60, &wish, Some(&Lazy(false, None))).unwrap();
        let refused = found.refused.iter().find(|refused| refused.name == "taught-from-quick").unwrap();
        assert_eq!(refused.reason, "nobody teaches here");
    }

    #[test]
    fn school_teaches_with_its_own_rows() {
        let (stage, model) = (Stage::new(), classifier(3));
        let own = stage.rows(&model, &[pictures(33)]);
        let brought = vec![("from-quick".to_owned(), quick().bytes().clone())];
        let wish = Wish { brought, judged: 24, ..WISH };
        let left =
            |school: Option<&dyn School>| at_school(200, &wish, school).unwrap().setting.confidence_rows;
        // No other step used the remaining rows, so confidence may be fitted on them.
        assert_eq!(left(Some(&Lazy(true, Some(own)))), left(None));
        assert!(left(None) > 24);
    }

    #[test]
    fn confidence_on_the_frontier_uses_the_remaining_rows() {
        let brought = vec![("from-quick".to_owned(), quick().bytes().clone())];
        let few = Wish { judged: 24, fitted: 16, brought, ..WISH };
        let without = found(24 + 16 + 16, &few).unwrap();
        assert_eq!(without.setting.confidence_rows, 24);
        let found = found(900, &Wish { labels: Some((0..900).map(|row| row % 3).collect()), ..few }).unwrap();
        assert_eq!((found.setting.judged_rows, found.setting.confidence_rows), (24, 900 - 16 - 16));
        // Labels are random: with 24 rows the accuracy is a third give or take a fifth, with 868 it is known exactly.
        let sure = found.setting.sureness.unwrap();
        assert!(sure.expected_error < 0.08, "{sure:?}");
        let on: Vec<&Candidate> = found.candidates.iter().filter(|one| found.is_on(one)).collect();
        assert!(
            !on.is_empty() && on.iter().all(|one| one.sureness.unwrap().expected_error < 0.08),
            "{found}"
        );
    }

    #[test]
    fn grades_cover_the_frontier_with_paired_gaps() {
        let (model, stage) = (classifier(3), Stage::new());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        std::fs::write(&path, model.bytes()).unwrap();
        let rows = stage.rows(&model, &[pictures(40)]);
        let said = stage.answers(&model, &rows);
        let best = |row: &[f32]| (0..3).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap();
        // One row in ten has a label that neither model predicts.
        let label =
            |(at, row): (usize, &[f32])| if at.is_multiple_of(10) { (best(row) + 1) % 3 } else { best(row) };
        let labels: Vec<usize> = said.chunks(3).enumerate().map(label).collect();
        let candidate = |name: &str, cost, agreement| Candidate {
            model: model.bytes().clone(),
            ..candidate(name, cost, agreement)
        };
        let both = vec![candidate("dear", 0.5, 0.9), candidate("cheap", 0.2, 0.95)];
        let frontier = Frontier::new("tract", 0.25, setting(), both, Vec::new());
        let apart = Apart { rows: &rows, labels: Some(&labels) };
        let grades = grade(&stage.workshop, &path, &frontier, apart, &Alone).unwrap();
        let [cheap] = &grades.candidates[..] else { panic!("{grades}") };
        assert_eq!((cheap.name.as_str(), cheap.agreement.value, grades.rows), ("cheap", 1.0, 40));
        assert_eq!(grades.deployed.map(|share| share.value), Some(0.9));
        let gap = cheap.gap.unwrap();
        assert!(gap.value == 0.0 && gap.high < 0.05, "{gap:?}");
        assert!(grades.to_string().contains("right on 90.00 %"), "{grades}");
        let unlabelled = grade(&stage.workshop, &path, &frontier, Apart { labels: None, ..apart }, &Alone);
        assert_eq!(unlabelled.unwrap().candidates[0].gap, None);
    }

    #[test]
    fn confidence_from_labels_is_not_graded_without_labels() {
        let (model, stage) = (classifier(3), Stage::new());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        std::fs::write(&path, model.bytes()).unwrap();
        let rows = stage.rows(&model, &[pictures(40)]);
        let sureness = Some(Sureness { calibration: Calibration::default(), expected_error: 0.1 });
        let one = Candidate { sureness, model: model.bytes().clone(), ..candidate("one", 0.2, 0.9) };
        let share = Share { value: 0.9, low: 0.8, high: 1.0 };
        for accuracy in [None, Some(share)] {
            let setting = Setting { accuracy, ..setting() };
            let frontier = Frontier::new("tract", 0.25, setting, vec![one.clone()], Vec::new());
            let apart = Apart { rows: &rows, labels: None };
            let grades = grade(&stage.workshop, &path, &frontier, apart, &Alone).unwrap();
            assert_eq!(grades.candidates[0].calibration_error.is_some(), accuracy.is_none());
        }
    }

    #[test]
    fn make_rejects_too_few_rows() {
        assert_eq!(found(20, &WISH).unwrap_err(), Error::TooFewRows { given: 20, wanted: FEWEST_ROWS });
    }

    #[test]
    fn make_rejects_too_many_nodes_before_any_run() {
        let mut builder = Builder::new("endless", 1);
        let mut last = builder.input(Value::batch_of_f32("x", &[1]));
        for at in 0..=MOST_NODES {
            last = builder.node("Relu", &format!("n{at}"), &[&last]);
        }
        builder.output(Value::batch_of_f32(&last, &[1]));
        let (model, stage) = (builder.build().unwrap(), Stage::new());
        let signature = parm_backend::engine::Signature::default();
        let rows = Rows::new(&signature, &[]).unwrap();
        let refused =
            make(&stage.workshop, (Path::new("none"), &model), &rows, &WISH, &Alone, None).unwrap_err();
        assert_eq!(refused, Error::TooManyNodes { nodes: MOST_NODES + 1, limit: MOST_NODES });
    }
}
