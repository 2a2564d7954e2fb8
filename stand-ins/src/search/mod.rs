//! Searches a stand-in: makes candidates, measures and judges them on rows that none was made from.

mod candidates;
mod frontier;
mod grades;
mod school;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parm_parity_models::onnx::Model;
use parm_parity_models::onnx::rewrite::Draft;
use parm_protocol::{MEASURED_ROWS, Tensor};
use parm_random::Random;

pub use frontier::{Candidate, Frontier, Interruption, Refused, Setting};
pub use grades::{Apart, Grade, Grades, grade};
pub use school::{Lessons, School};

use crate::exact::settle;
use crate::graph::{Survey, work};
use crate::measure::{
    Comparison, Costs, Given, Labelled, Meanings, Share, Shares, constant, costs, finite, judge, sureness,
};
use crate::memory::Need;
use crate::rows::Rows;
use crate::workshop::{Progress, Runner, Workshop};
use crate::{Error, unusable};
use candidates::{Bench, Candidates, Made};

/// Maximum nodes of a graph: families visit each of them many times.
const MOST_NODES: usize = 50_000;
/// Fewer rows leave none to judge on.
const FEWEST_ROWS: usize = 24;
/// A candidate is surely nearer to the deployed model if it is nearer by this factor. Candidates with fewer channels
/// were fitted to the calibration rows, so their distance there is too small.
const NEARER: f64 = 2.0;
/// A search is not begun if a constant answer agrees on this share of the rows and no candidate can surely be better.
const NEARLY_ALL: f64 = 0.95;

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
    /// Maximum rows that ranges and weights are made from, at most half. The others refit weights and judge.
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
    if nodes <= MOST_NODES {
        return Ok(());
    }
    unusable(format!(
        "the graph has {nodes} nodes, more than {MOST_NODES}: make a stand-in with the tools that exported it"
    ))
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
        (given, _, wanted) if given < wanted => {
            return unusable(format!(
                "{given} rows are too few: some calibrate and the others judge: give at least {wanted}"
            ));
        }
        (given, distinct, wanted) if distinct < wanted => {
            return unusable(format!(
                "{given} rows, of which only {distinct} are different, are too few: give at least {wanted} different rows"
            ));
        }
        (given, distinct, _) if distinct < given => {
            progress.tell(&format!("{distinct} of {given} rows are different: copies are left out"));
        }
        _ => {}
    }
    let (rows, labels) = (&given.select(&places)?, wish.labels.as_ref().map(|labels| at(labels, &places)));
    progress.doing("running the deployed model");
    let draft = settle(workshop, Draft::new(model)?, rows)?;
    let need = need(workshop, (model, &draft), rows, (wish, progress))?;
    let wish = &Wish { judged: need.judged(wish.judged), ..wish.clone() };
    let parts = Parts::draw(rows.len(), wish);
    let (calibration, judged) = (rows.select(&parts.calibration)?, rows.select(&parts.judged)?);
    let mut deployed = workshop.open(path)?;
    let signature = deployed.signature().clone();
    let started = Instant::now();
    let said = answers(&mut deployed, &judged, progress)?;
    let each = started.elapsed().as_secs_f64() / judged.len() as f64;
    check_finite(&said, |row| places[parts.judged[row]])?;
    let judged_labels = labels.as_ref().map(|labels| at(labels, &parts.judged));
    let labelled = Labelled { labels: judged_labels.as_deref(), output: wish.label_output.as_deref() };
    let meanings = Meanings::of(&signature.outputs, &said, &wish.meanings, labelled)?;
    for one in &meanings.outputs {
        progress.tell(&format!("output '{}' is taken for {}: {}", one.output, one.meaning, one.reason));
    }
    let (choices, constant) = constant(&said, &meanings.list());
    let usual = Share::of(&constant);
    progress.tell(&format!(
        "on the {} rows that judge, a constant answer agrees with the deployed model on {}",
        judged.len(),
        usual.percent(1, " %")
    ));
    // Then even a candidate that always agrees would not be chosen.
    if usual.value >= NEARLY_ALL && Share::gap(&vec![true; constant.len()], &constant).low <= 0.0 {
        return unusable(format!(
            "a constant answer agrees with the deployed model on {} of the {} rows that judge, so no stand-in could be surely \
             better: give rows with more different answers, or more rows",
            usual.percent(1, " %"),
            judged.len()
        ));
    }
    progress.tell(&format!("this takes about {}", in_words(estimate(each, &parts, wish))));
    let work = work(&draft, &Survey::of(workshop, &draft, &calibration)?);
    let until = wish.time.map(|time| Instant::now() + time);
    let limited = Limited { progress, until, is_final: false };
    let calibrating = answers(&mut deployed, &calibration, progress)?;
    check_finite(&calibrating, |row| places[parts.calibration[row]])?;
    let bench = Bench {
        teaches: school.is_some(),
        fitted: rows.select(&[parts.calibration.as_slice(), &parts.fitted].concat())?,
        brought: &wish.brought,
        ..Bench::new((workshop, &limited), draft, (calibration, calibrating), meanings.list())
    };
    // Its engine keeps the memory of its largest run.
    drop(deployed);
    let mut all = Candidates::default();
    let done = bench.candidates(&mut all);
    let mut interruption = limited.ended(done, all.made.len())?;
    let finishing = Limited { progress, until: None, is_final: true };
    if let Some(school) = school.filter(|_| interruption.is_none()) {
        let seen = match school.rows() {
            Some(given) => given.clone(),
            None => rows.select(&parts.free())?,
        };
        progress.doing("running the deployed model on the rows to teach with");
        let meaning = meanings.main();
        let lessons = Lessons {
            said: &answers(&mut workshop.open(path)?, &seen, progress)?,
            rows: &seen,
            meaning,
            together: need.taught(),
            progress,
        };
        let Costs { shares, .. } = measured((workshop, path), (&all.made, &need), &judged, (wish, progress))?;
        let done = bench.taught((school, lessons), (&shares, wish.cost), &mut all);
        interruption = limited.ended(done, all.made.len())?;
    }
    let Candidates { made, mut refused } = all;
    let progress: &dyn Progress = if interruption.is_some() { &finishing } else { progress };
    let costs = measured((workshop, path), (&made, &need), &judged, (wish, progress))?;
    let doubt = costs.doubt();
    if let Some(doubt) = &doubt {
        progress.tell(&format!("warning: {doubt}"));
    }
    let Costs { deployed: time, shares, .. } = costs;

    let (labels, list) = (judged_labels.as_deref(), meanings.list());
    let own = meanings.scores(&said);
    let truth = meanings.truth(own.clone(), labels);
    let judge = |made: Made, cost: Shares| -> Result<Candidate, Error> {
        let Made { name, how, model, .. } = made;
        progress.doing(&format!("judging {name}"));
        let answers = answers(&mut workshop.load_stored(&model)?, &judged, progress)?;
        let same = judge(&said, &answers, &list);
        let right = labels.map(|labels| meanings.right(&answers, labels));
        let compared = Comparison::of((&said, &answers), &list, (&same, right.as_deref()));
        let sureness = sureness(&meanings.scores(&answers), &truth);
        let is_no_better = Share::gap(&same, &constant).low <= 0.0;
        let agreement = compared.agreement.percent(1, " %");
        progress.tell(&format!("{name}: cost {:.3}, agrees on {agreement}", cost[0]));
        Ok(Candidate { name, how, cost, compared, is_no_better, sureness, model })
    };
    let reasons: Vec<Option<String>> = (0..made.len()).map(|at| refusal(&made, &shares, at)).collect();
    let mut candidates = Vec::new();
    for ((one, cost), reason) in made.into_iter().zip(shares).zip(reasons) {
        match reason {
            Some(reason) => refused.push(Refused { name: one.name, reason }),
            None => candidates.push(judge(one, cost)?),
        }
    }
    Ok(Frontier::new(
        workshop.engine(),
        wish.cost,
        Setting {
            deployed_us: time.as_secs_f64() * 1e6,
            rows: given.len(),
            distinct_rows: rows.len(),
            calibration_rows: parts.calibration.len(),
            fitted_rows: parts.fitted.len(),
            judged_rows: parts.judged.len(),
            meanings: meanings.clone(),
            answers: choices,
            constant: usual,
            work,
            accuracy: labels.map(|labels| Share::of(&meanings.right(&said, labels))),
            sureness: if truth.is_labelled() { sureness(&own, &truth) } else { None },
            interruption,
            doubt,
        },
        candidates,
        refused,
    ))
}

fn at(labels: &[usize], places: &[usize]) -> Vec<usize> {
    places.iter().map(|&place| labels[place]).collect()
}

/// Refuses a deployed model whose answers have NaN or infinity: servers withhold such an answer of a stand-in, although
/// infinite scores may exclude classes.
fn check_finite(said: &[Tensor], place: impl Fn(usize) -> usize) -> Result<(), Error> {
    match finite(said).iter().position(|is_finite| !is_finite) {
        Some(row) => unusable(format!(
            "the deployed model answers row {} with NaN or infinity, which servers withhold: remove it, or export finite scores",
            place(row)
        )),
        None => Ok(()),
    }
}

/// Measures the costs of all candidates. Those that fit the memory take turns with the deployed model.
fn measured(
    (workshop, deployed): (&Workshop, &Path),
    (made, need): (&[Made], &Need),
    rows: &Rows,
    (wish, progress): (&Wish, &dyn Progress),
) -> Result<Costs, Error> {
    progress.doing("measuring costs");
    let largest = made.iter().map(|made| made.model.bytes()).max().unwrap_or(0);
    let mut groups: Vec<&[Made]> = made.chunks(need.together(largest)).collect();
    if groups.is_empty() {
        groups.push(made);
    }
    let counts = need.measured();
    let budget = wish.measure / groups.len() as u32;
    let mut all = Costs::default();
    for group in groups {
        let runners = group.iter().map(|made| workshop.load_stored(&made.model));
        let mut runners =
            std::iter::once(workshop.open(deployed)).chain(runners).collect::<Result<Vec<_>, _>>()?;
        all.extend(costs(&mut runners, (rows, workshop.clock(), counts), budget, progress)?);
    }
    Ok(all)
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

/// A model's outputs for all rows; an error if a run does not give one for each. They may be NaN.
fn answers(runner: &mut Runner, rows: &Rows, progress: &dyn Progress) -> Result<Vec<Tensor>, Error> {
    let names: Vec<String> = runner.signature().outputs.iter().map(|output| output.name.clone()).collect();
    let (mut parts, mut left): (Vec<Vec<Tensor>>, usize) = (Vec::new(), rows.len());
    let together = runner.together;
    runner.run_all(rows, (together, progress), |_, outputs| {
        let count = together.min(left);
        left -= count;
        parts.resize_with(outputs.len(), Vec::new);
        for (at, (parts, output)) in parts.iter_mut().zip(outputs).enumerate() {
            if output.rows() != count {
                let (name, actual) = (names.get(at).cloned().unwrap_or_default(), output.rows());
                return Err(Error::Failed(format!(
                    "{count} rows went into the model, {actual} answers came out of '{name}'"
                )));
            }
            parts.push(output);
        }
        Ok(())
    })?;
    parts.iter().map(|parts| Ok(Tensor::concat_rows(parts)?)).collect()
}

/// The use of each row.
struct Parts {
    calibration: Vec<usize>,
    fitted: Vec<usize>,
    judged: Vec<usize>,
    rows: usize,
}

impl Parts {
    /// Draws rows for making candidates, at most half. At most half of the others are for refitting weights, and the
    /// rest are for judging: enough to measure costs on. The division is random, or follows time.
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
        Self { calibration: places, fitted, judged, rows }
    }

    /// Rows to learn from: all except those that choose candidates and those that judge.
    fn free(&self) -> Vec<usize> {
        let decisive: BTreeSet<&usize> = self.calibration.iter().chain(&self.judged).collect();
        (0..self.rows).filter(|row| !decisive.contains(row)).collect()
    }
}

/// If an engine cannot tell the sizes of values, they are taken for so many times the input.
const INPUTS: u64 = 64;

/// The memory that a search needs, by a run of one row; the workshop's runs are bounded by it. Reports the measurements
/// that are left out for lack of memory.
fn need(
    workshop: &Workshop,
    (model, draft): (&Model, &Draft),
    rows: &Rows,
    (wish, progress): (&Wish, &dyn Progress),
) -> Result<Need, Error> {
    let (file, inner) = (model.bytes().len() as u64, INPUTS * rows.bytes());
    let unknown = Need { live: inner, values: inner, answers: 0, is_batched: rows.is_batched(), file };
    let need = Need { file, ..Survey::need(workshop, draft, &rows.first(1)?).unwrap_or(unknown) };
    workshop.bound(need.live);
    let (judged, wanted) = (need.judged(wish.judged), wish.judged.min(rows.len()));
    if judged < wanted {
        progress.tell(&format!(
            "at most {judged} rows judge instead of {wanted}, as the answers of more do not fit the memory"
        ));
    }
    let counts = need.measured();
    if let Some(&last) = counts.last().filter(|_| counts.len() < MEASURED_ROWS.len()) {
        progress.tell(&format!(
            "runs of more than {last} rows do not fit the memory: their costs are estimated from those of {last}"
        ));
    }
    Ok(need)
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

/// Stops the making of candidates at a time limit, or lets a search that was stopped finish.
struct Limited<'a> {
    progress: &'a dyn Progress,
    until: Option<Instant>,
    /// Whether nothing stops it.
    is_final: bool,
}

impl Limited<'_> {
    /// The reason if the making of candidates was stopped after these many: they are measured. An error if there are none.
    fn ended(&self, done: Result<(), Error>, made: usize) -> Result<Option<Interruption>, Error> {
        match done {
            Err(Error::Stopped) if made > 0 => {
                let by = match self.progress.is_stopped() {
                    true => Interruption::User,
                    false => Interruption::TimeLimit,
                };
                self.tell(&format!("{by}: measuring the candidates that are made, {made} so far"));
                Ok(Some(by))
            }
            Err(Error::Stopped) if !self.progress.is_stopped() => Err(Error::NothingMade),
            done => done.map(|()| None),
        }
    }
}

impl Progress for Limited<'_> {
    fn doing(&self, what: &str) {
        self.progress.doing(what);
    }

    fn tell(&self, what: &str) {
        self.progress.tell(what);
    }

    fn within(&self, what: &str) {
        self.progress.within(what);
    }

    fn is_stopped(&self) -> bool {
        let is_late = || self.until.is_some_and(|until| Instant::now() >= until);
        !self.is_final && (self.progress.is_stopped() || is_late())
    }
}
