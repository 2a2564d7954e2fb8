//! The search: candidates are made, measured beside the deployed model, and judged on rows that made none of them.

mod candidates;
#[cfg(test)]
mod exported;
mod frontier;
mod picture;

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use parm_parity_models::bundle::Meaning;
use parm_parity_models::onnx::Model;
use parm_parity_models::onnx::rewrite::Draft;
use parm_protocol::{MEASURED_ROWS, Tensor};
use parm_random::Random;

pub use frontier::{Candidate, Frontier, Refused, Setting};

use crate::Error;
use crate::graph::{Survey, work};
use crate::measure::{Costs, Share, Shares, costs, judge, meaning, right};
use crate::rows::Rows;
use crate::workshop::{Progress, Runner, Workshop};
use candidates::{Bench, Made};

/// Most nodes of a graph: families look at each of them many times.
const MOST_NODES: usize = 50_000;
/// Rows below which there is nothing to judge on.
const FEWEST_ROWS: usize = 24;
/// So many times nearer to the deployed model is nearer for sure. Those with fewer channels were fitted to the rows that tell
/// how far they are, so they seem nearer than they are.
const NEARER: f64 = 2.0;
/// Rows that run together while answers are gathered.
const TOGETHER: usize = 8;

/// What is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// The most that a stand-in may cost, as a share of a query on the deployed model.
    pub cost: f64,
    /// What the deployed model's output means; found from its answers unless given.
    pub meaning: Option<Meaning>,
    /// The class of each row, where it is known.
    pub labels: Option<Vec<usize>>,
    /// Rows that ranges and weights are made from. The others are for judging.
    pub calibration: usize,
    /// Rows that candidates are judged on at most.
    pub judged: usize,
    /// Rows more that weights are refitted on at most; no more than there are to judge on.
    pub fitted: usize,
    /// Whether rows are in the order of time: then the newest are for judging, as those that come later will be.
    pub in_time: bool,
    /// Decides which rows are which.
    pub seed: u64,
    /// How long costs are measured, about.
    pub measure: Duration,
}

/// Whether a graph is small enough to be looked through: to be asked before an engine loads it, which takes far more memory.
pub fn check_size(model: &Model) -> Result<(), Error> {
    let nodes = model.proto().graph.as_ref().map_or(0, |graph| graph.node.len());
    if nodes > MOST_NODES { Err(Error::TooManyNodes { nodes, limit: MOST_NODES }) } else { Ok(()) }
}

/// Searches a stand-in for the model in a file.
pub fn make(
    workshop: &Workshop,
    (path, model): (&Path, &Model),
    rows: &Rows,
    wish: &Wish,
    progress: &dyn Progress,
) -> Result<Frontier, Error> {
    check_size(model)?;
    if rows.len() < FEWEST_ROWS {
        return Err(Error::TooFewRows { given: rows.len(), wanted: FEWEST_ROWS });
    }
    progress.doing("asking the deployed model");
    let parts = Parts::draw(rows.len(), wish);
    let (calibration, judged) = (rows.select(&parts.calibration)?, rows.select(&parts.judged)?);
    let mut deployed = workshop.open(path)?;
    let said = answers(&mut deployed, &judged, progress)?;
    let draft = Draft::new(model)?;
    let work = work(&draft, &Survey::of(workshop, &draft, &calibration)?);
    let meaning = wish.meaning.unwrap_or_else(|| meaning(&said));
    let bench = Bench {
        workshop,
        deployed: draft,
        said: answers(&mut deployed, &calibration, progress)?,
        meaning,
        rows: calibration,
        fitted: rows.select(&[parts.calibration.as_slice(), &parts.fitted].concat())?,
        progress,
        is_light_faster: Cell::new(false),
    };
    let (mut made, mut refused) = bench.candidates()?;

    progress.doing("measuring costs");
    let mut runners: Vec<&mut Runner> = vec![&mut deployed];
    runners.extend(made.iter_mut().map(|made| &mut made.runner));
    let Costs { deployed: time, shares } = costs(&mut runners, &judged, wish.measure, progress)?;

    let labels =
        wish.labels.as_ref().map(|labels| parts.judged.iter().map(|&row| labels[row]).collect::<Vec<_>>());
    let bar = Bar { rows: &judged, said: &said, meaning, labels: labels.as_deref(), progress };
    let reasons: Vec<Option<String>> = (0..made.len()).map(|at| refusal(&made, &shares, at)).collect();
    let mut candidates = Vec::new();
    for ((one, cost), reason) in made.into_iter().zip(shares).zip(reasons) {
        match reason {
            Some(reason) => refused.push(Refused { name: one.name, reason }),
            None => candidates.push(bar.judge(one, cost)?),
        }
    }
    Ok(Frontier::new(
        workshop.engine(),
        wish.cost,
        Setting {
            deployed_us: time.as_secs_f64() * 1e6,
            calibration_rows: parts.calibration.len(),
            fitted_rows: parts.fitted.len(),
            judged_rows: parts.judged.len(),
            meaning,
            work,
            accuracy: labels.map(|labels| Share::of(&right(&said, &labels))),
        },
        candidates,
        refused,
    ))
}

/// What candidates are judged by.
struct Bar<'a> {
    rows: &'a Rows,
    /// What the deployed model says of them, and what that means.
    said: &'a [Tensor],
    meaning: Meaning,
    labels: Option<&'a [usize]>,
    progress: &'a dyn Progress,
}

impl Bar<'_> {
    fn judge(&self, made: Made, cost: Shares) -> Result<Candidate, Error> {
        let Made { name, how, model, mut runner, .. } = made;
        self.progress.doing(&format!("judging {name}"));
        let answers = answers(&mut runner, self.rows, self.progress)?;
        let agreement = Share::of(&judge(self.said, &answers, self.meaning));
        let accuracy = self.labels.map(|labels| Share::of(&right(&answers, labels)));
        Ok(Candidate { name, how, cost, agreement, accuracy, model })
    }
}

/// Why a candidate need not be judged: it is not faster, or another costs no more and is far nearer to the deployed model on the
/// rows that both were made from. Judging takes most of the time.
fn refusal(made: &[Made], shares: &[Shares], at: usize) -> Option<String> {
    let (own, cost) = (&made[at], shares[at][0]);
    if cost >= 1.0 {
        return Some(format!("not faster: it takes {cost:.2} of the deployed model's time"));
    }
    let mut others = made.iter().zip(shares).filter(|(other, _)| other.name != own.name);
    let better = others.find(|(other, shares)| shares[0] <= cost && NEARER * other.distance < own.distance);
    better.map(|(other, shares)| {
        format!(
            "it takes {cost:.2}, and {} takes {:.2} and is much nearer to the deployed model",
            other.name, shares[0]
        )
    })
}

/// Which rows are for what.
struct Parts {
    calibration: Vec<usize>,
    fitted: Vec<usize>,
    judged: Vec<usize>,
}

impl Parts {
    /// Some rows for making, at most half of them. Of the others half, at most, is for refitting weights, and the rest for
    /// judging: enough to measure costs on. Which are which is random, or decided by time.
    fn draw(rows: usize, wish: &Wish) -> Self {
        let calibration = wish.calibration.min(rows / 2).max(1).min(rows);
        let others = rows - calibration;
        let fitted = wish.fitted.min(others / 2).min(others.saturating_sub(MEASURED_ROWS[3]));
        let judged = (others - fitted).min(wish.judged.max(MEASURED_ROWS[3]));
        let mut random = Random::new(wish.seed);
        let mut places: Vec<usize> = (0..rows).collect();
        if !wish.in_time {
            random.shuffle(&mut places);
        }
        let judged = places.split_off(rows - judged);
        random.shuffle(&mut places);
        places.truncate(calibration + fitted);
        let fitted = places.split_off(calibration);
        Self { calibration: places, fitted, judged }
    }
}

/// What a model says of all rows. An answer of the deployed model that is no number is an error.
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
    use parm_parity_models::onnx::{Builder, Conv, Dense, Value};

    use super::*;
    use crate::testing::{Alone, Stage};

    const WISH: Wish = Wish {
        cost: 0.9,
        meaning: None,
        labels: None,
        calibration: 16,
        judged: 1_000,
        fitted: 20,
        in_time: false,
        seed: 1,
        measure: Duration::from_millis(100),
    };

    fn pictures(count: usize) -> Tensor {
        let values = Random::new(9).normals(count * 64);
        Tensor::from_f32([count, 1, 8, 8].as_slice(), &values).unwrap()
    }

    fn found(count: usize, wish: &Wish) -> Result<Frontier, Error> {
        let mut builder = Builder::new("classifier", 7);
        let x = builder.input(Value::batch_of_f32("x", &[1, 8, 8]));
        let conv = builder.conv("conv", &x, Conv::same(1, 4, 3)).unwrap();
        let idle = builder.node("Identity", "idle", &[&conv]);
        let flat = builder.node("Flatten", "flat", &[&idle]);
        builder.dense("y", &flat, Dense { inputs: 256, outputs: 3 }).unwrap();
        builder.output(Value::batch_of_f32("y", &[3]));
        let (model, stage) = (builder.build().unwrap(), Stage::new());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        std::fs::write(&path, model.bytes()).unwrap();
        let rows = stage.rows(&model, &[pictures(count)]);
        make(&stage.workshop, (&path, &model), &rows, wish, &Alone)
    }

    #[test]
    fn every_family_is_judged_or_refused_with_a_reason() {
        let labels = Some(vec![0; 60]);
        let found = found(60, &Wish { labels, ..WISH }).unwrap();
        let Setting { calibration_rows, fitted_rows, judged_rows, .. } = found.setting;
        assert_eq!((calibration_rows, fitted_rows, judged_rows), (16, 20, 24));
        assert_eq!(found.setting.meaning, Meaning::Logits);
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
    fn too_few_rows_are_refused() {
        assert_eq!(found(20, &WISH).unwrap_err(), Error::TooFewRows { given: 20, wanted: FEWEST_ROWS });
    }

    #[test]
    fn a_graph_of_endless_nodes_is_refused_before_anything_runs() {
        let mut builder = Builder::new("endless", 1);
        let mut last = builder.input(Value::batch_of_f32("x", &[1]));
        for at in 0..=MOST_NODES {
            last = builder.node("Relu", &format!("n{at}"), &[&last]);
        }
        builder.output(Value::batch_of_f32(&last, &[1]));
        let (model, stage) = (builder.build().unwrap(), Stage::new());
        let signature = parm_backend::engine::Signature::default();
        let rows = Rows::new(&signature, &[]).unwrap();
        let refused = make(&stage.workshop, (Path::new("none"), &model), &rows, &WISH, &Alone).unwrap_err();
        assert_eq!(refused, Error::TooManyNodes { nodes: MOST_NODES + 1, limit: MOST_NODES });
    }

    #[test]
    fn no_row_is_both_for_making_and_for_judging() {
        let parts = Parts::draw(100, &WISH);
        assert_eq!((parts.calibration.len(), parts.fitted.len(), parts.judged.len()), (16, 20, 64));
        let mut all = [parts.calibration, parts.fitted, parts.judged].concat();
        all.sort_unstable();
        assert_eq!(all, (0..100).collect::<Vec<_>>());
        let in_time = Parts::draw(100, &Wish { in_time: true, ..WISH });
        assert_eq!(in_time.judged, (36..100).collect::<Vec<_>>(), "the newest");
        let few = Parts::draw(20, &WISH);
        assert_eq!((few.calibration.len(), few.fitted.len(), few.judged.len()), (10, 2, 8));
    }
}
