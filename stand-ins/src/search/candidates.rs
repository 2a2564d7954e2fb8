//! Makes candidates of every family from a few rows.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parm_parity_models::bundle::{Meaning, Signature, misfit, misplaced};
use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{Limits, Model};
use parm_protocol::Tensor;

use super::{Refused, answers};
use crate::Error;
use crate::exact::{quicken, rewrite};
use crate::graph::{Links, Survey, raise};
use crate::int8::{Cuts, Ranges, Steps, gather, kinds, measured, quantise};
use crate::layers::{Shortcuts, repeats};
use crate::measure::mean_distance;
use crate::prune::{Depth, Pruning};
use crate::rows::Rows;
use crate::workshop::{Progress, Stored, Workshop};

/// Tolerance for a rewritten graph: sums in another order are rounded differently.
const ROUNDING: f64 = 1e-4;
/// Shares of the channels inside of blocks that candidates keep, in percent.
const KEPT: [u32; 3] = [75, 50, 25];
/// The same if streams are cut too: a layer that reads from a stream inside of a block is cut at both ends.
const KEPT_OF_ALL: [u32; 4] = [94, 88, 75, 50];

/// Shares of the values that ranges leave out. The first is usually right; the others are tried if there is time.
const LEFT_OUT: [f64; 5] = [1e-4, 1e-3, 3e-4, 1e-5, 0.0];
/// Up to this many values, each range is chosen alone. With more, a single range matters little, and trying all takes
/// long.
const FEW_VALUES: usize = 4;
/// Number of best choices that are kept while the next value's range is sought: ranges depend on one another.
const KEPT_ON: usize = 3;
/// Weights with half the steps are coarser. They come this much nearer to the deployed model only if sums of products
/// saturated.
const FAR_NEARER: f64 = 0.7;
/// Time limit for the search of ranges; later ones matter little.
const PATIENCE: Duration = Duration::from_secs(60);

/// Maximum size of all candidates' files, which are stored until the end.
const MOST_BYTES: u64 = 2 << 30;

type Copied = (Cuts, Made);

/// A candidate. It is loaded whenever it runs, since an engine keeps the memory of a model's largest run.
pub(super) struct Made {
    pub(super) name: String,
    /// How it was made, in a few words.
    pub(super) how: String,
    pub(super) model: Stored,
    /// The graph in 32 bits to teach, if there is a school; only of candidates with fewer channels or layers, and of
    /// supplied models.
    pub(super) float: Option<Draft>,
    /// Distance of its outputs on calibration rows from the deployed model's, relative to their size, by their
    /// meaning.
    pub(super) distance: f64,
    /// The same for the plain numbers.
    pub(super) apart: f64,
}

/// The candidates that are made, and those that could not be made, with the reason.
#[derive(Default)]
pub(super) struct Candidates {
    pub(super) made: Vec<Made>,
    pub(super) refused: Vec<Refused>,
}

impl Candidates {
    pub(super) fn refuse(&mut self, name: &str, reason: impl Into<String>) {
        self.refused.push(Refused { name: name.into(), reason: reason.into() });
    }

    /// The result of a family. Any error except a stop becomes a refusal with that reason: other families go on.
    pub(super) fn unless_refused<T>(
        &mut self,
        name: &str,
        result: Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        match result {
            Ok(found) => return Ok(Some(found)),
            Err(Error::Stopped) => return Err(Error::Stopped),
            Err(error) => self.refuse(name, error.to_string()),
        }
        Ok(None)
    }
}

/// The inputs of the search for candidates.
pub(super) struct Bench<'a> {
    pub(super) workshop: &'a Workshop,
    pub(super) deployed: Draft,
    /// Calibration rows, with the deployed model's answers and their meaning.
    pub(super) rows: Rows,
    pub(super) said: Vec<Tensor>,
    pub(super) meanings: Vec<Meaning>,
    /// Rows for refitting weights: the calibration rows, and more if there are more.
    pub(super) fitted: Rows,
    pub(super) brought: &'a [(String, Bytes)],
    pub(super) teaches: bool,
    pub(super) progress: &'a dyn Progress,
    /// Whether 8-bit copies of smaller graphs are worth making.
    pub(super) is_light_faster: Cell<bool>,
    /// The best steps of 8-bit weights on this processor.
    pub(super) steps: Cell<Steps>,
}

impl<'a> Bench<'a> {
    /// A bench for calibration rows with the deployed model's answers.
    pub(super) fn new(
        (workshop, progress): (&'a Workshop, &'a dyn Progress),
        deployed: Draft,
        (rows, said): (Rows, Vec<Tensor>),
        meanings: Vec<Meaning>,
    ) -> Self {
        Self {
            workshop,
            deployed,
            fitted: rows.clone(),
            rows,
            said,
            meanings,
            brought: &[],
            teaches: false,
            progress,
            is_light_faster: Cell::new(false),
            steps: Cell::default(),
        }
    }

    /// Makes all candidates. They are added one by one, so that a search that is stopped keeps them.
    pub(super) fn candidates(&self, all: &mut Candidates) -> Result<(), Error> {
        self.progress.doing("rewriting");
        let base = self.rewritten(all)?;
        self.eight_bits(&base, all)?;
        self.pruned(&base, all)?;
        self.shortened(&base, all)?;
        self.brought(all)
    }

    /// Models that the user supplied, if their inputs and outputs are the deployed model's.
    fn brought(&self, all: &mut Candidates) -> Result<(), Error> {
        let deployed = Signature::from(&self.deployed.clone().finish()?.inspect());
        for (name, file) in self.brought {
            let model = Model::from_bytes(file.clone(), &Limits::default())?;
            let own = Signature::from(&model.inspect());
            if let Some(problem) = misfit(&deployed, &own, name) {
                all.refuse(name, problem);
            } else if let Some(side) = misplaced(&deployed, &own) {
                let reason = format!(
                    "its {side} are in another order than the deployed model's: export it with the same order"
                );
                all.refuse(name, reason);
            } else {
                self.smaller((name, "brought".into(), &Draft::new(&model)?), all)?;
            }
        }
        Ok(())
    }

    /// Fewer channels inside of blocks, and of streams.
    fn pruned(&self, base: &Draft, all: &mut Candidates) -> Result<(), Error> {
        self.progress.doing("choosing channels");
        let pruning = Pruning::of(self.workshop, base, &self.fitted, self.progress);
        let Some(pruning) = all.unless_refused("pruned", pruning)? else { return Ok(()) };
        let depths = [("pruned", Depth::Inside, &KEPT[..]), ("narrowed", Depth::Streams, &KEPT_OF_ALL)];
        let depths: Vec<_> = depths.into_iter().filter(|(_, depth, _)| pruning.reaches(*depth)).collect();
        if depths.is_empty() {
            all.refuse("pruned", pruning.refusal());
        }
        for (name, depth, shares) in depths {
            let shares = shares.iter().map(|&percent| (percent, f64::from(percent) / 100.0));
            for (percent, share) in shares.filter(|(_, share)| pruning.narrows(*share, depth)) {
                let (draft, how) = pruning.cut(share, depth)?;
                self.smaller((&format!("{name}-{percent}"), how, &draft), all)?;
            }
        }
        Ok(())
    }

    /// Fewer layers, if the graph repeats.
    fn shortened(&self, base: &Draft, all: &mut Candidates) -> Result<(), Error> {
        self.progress.doing("looking for layers that repeat");
        let survey = Survey::of(self.workshop, base, &self.rows)?;
        let Some(repeats) = repeats(base, &Links::of(base), &survey) else { return Ok(()) };
        let shortcuts = Shortcuts::of(self.workshop, base, &self.fitted, (repeats, &survey, self.progress));
        let Some(Some(shortcuts)) = all.unless_refused("layers", shortcuts)? else { return Ok(()) };
        for (name, how, draft) in shortcuts.cut(base)? {
            self.smaller((&name, how, &draft), all)?;
        }
        Ok(())
    }

    /// A smaller graph in 32 bits and in 8.
    pub(super) fn smaller(
        &self,
        (name, how, draft): (&str, String, &Draft),
        all: &mut Candidates,
    ) -> Result<(), Error> {
        self.progress.doing(&format!("cutting: {name}"));
        if all.made.iter().map(|made| made.model.bytes()).sum::<u64>() > MOST_BYTES {
            all.refuse(name, "the candidates before it have more than 2 GiB together");
            return Ok(());
        }
        let float = self.teaches.then(|| draft.clone());
        let draft = &quicken(self.workshop, draft, &self.rows)?;
        let smaller = self.load(name, how.clone(), draft);
        let Some(smaller) = all.unless_refused(name, smaller)? else { return Ok(()) };
        all.made.push(Made { float, ..smaller });
        if self.is_light_faster.get() { self.lighter((name, &how, draft), all) } else { Ok(()) }
    }

    /// The graph with exact rewrites, which is a candidate too, if any applies and the outputs stay equal; otherwise as it
    /// is deployed.
    fn rewritten(&self, all: &mut Candidates) -> Result<Draft, Error> {
        let mut apart = 0.0;
        // Functions that fall before they reach a maximum must stay before it.
        for postpones in [true, false] {
            let draft = rewrite(self.workshop, &self.deployed, &self.rows, postpones)?;
            let quick = quicken(self.workshop, &draft, &self.rows)?;
            if quick.nodes == self.deployed.nodes {
                return Ok(self.deployed.clone());
            }
            let how = format!("{} nodes of {}", quick.nodes.len(), self.deployed.nodes.len());
            let Some(exact) = all.unless_refused("exact", self.load("exact", how, &quick))? else {
                return Ok(self.deployed.clone());
            };
            if exact.apart <= ROUNDING {
                all.made.push(exact);
                return Ok(draft);
            }
            apart = exact.apart;
        }
        let reason = format!("its outputs differ from the deployed model's by {apart:.1e} of their size");
        all.refuse("exact", reason);
        Ok(self.deployed.clone())
    }

    fn load(&self, name: &str, how: String, draft: &Draft) -> Result<Made, Error> {
        let model = self.workshop.store(name, draft.clone().finish()?.bytes())?;
        let mut runner = self.workshop.load_stored(&model)?;
        let answers = answers(&mut runner, &self.rows, self.progress)?;
        let distance = mean_distance(&self.said, &answers, &self.meanings);
        let apart = mean_distance(&self.said, &answers, &[]);
        Ok(Made { name: name.into(), how, model, float: None, distance, apart })
    }
}

/// Candidates in 8 bits.
impl Bench<'_> {
    fn eight_bits(&self, base: &Draft, all: &mut Candidates) -> Result<(), Error> {
        self.progress.doing("gathering ranges of values");
        let mut base = quicken(self.workshop, base, &self.rows)?;
        if let Err(reason) = raise(&mut base) {
            all.refuse("int8", reason);
            return Ok(());
        }
        let base = &base;
        let ranges = gather(self.workshop, base, &self.rows, self.progress);
        let Some(ranges) = all.unless_refused("int8", ranges)? else { return Ok(()) };
        let mut seen = Vec::new();
        let [convolutions, products] = kinds(base);
        for (name, left) in
            [("int8", BTreeSet::new()), ("int8-convolutions", products), ("int8-products", convolutions)]
        {
            let cuts = Cuts::of(LEFT_OUT[0]).leaving(&left);
            let Some(draft) = quantise(base, &ranges, &cuts)? else { continue };
            // In a graph without products, the convolutions are the whole graph.
            if seen.contains(&draft.nodes.len()) {
                continue;
            }
            seen.push(draft.nodes.len());
            self.progress.doing(&format!("quantising: {name}"));
            let best = self.best_range(name, base, (&ranges, &left), &LEFT_OUT);
            let Some(Some(best)) = all.unless_refused(name, best)? else { continue };
            if left.is_empty() {
                self.is_light_faster.set(self.is_faster(&best, base)?);
            }
            all.made.push(best);
        }
        if seen.is_empty() {
            all.refuse("int8", "no convolution or product with constant weights whose values are known");
        }
        Ok(())
    }

    /// An 8-bit copy of a smaller graph, if copies of the whole graph are faster.
    fn lighter(&self, (name, how, draft): (&str, &str, &Draft), all: &mut Candidates) -> Result<(), Error> {
        let name = format!("{name}-int8");
        let mut raised = draft.clone();
        if let Err(reason) = raise(&mut raised) {
            // For graphs made from the deployed model the obstacle was reported already.
            if draft.opset() != self.deployed.opset() {
                all.refuse(&name, reason);
            }
            return Ok(());
        }
        let light = gather(self.workshop, &raised, &self.rows, self.progress)
            .and_then(|ranges| self.best_range(&name, &raised, (&ranges, &BTreeSet::new()), &LEFT_OUT[..1]));
        if let Some(Some(light)) = all.unless_refused(&name, light)? {
            all.made.push(Made { how: format!("{how}, in 8 bits; {}", light.how), ..light });
        }
        Ok(())
    }

    /// Whether an 8-bit copy is faster than its original. On many engines and processors it is not; then its ranges
    /// need not be the best, and smaller graphs need no copies. Compares the fastest of a few runs each; exact costs
    /// are measured later.
    fn is_faster(&self, light: &Made, whole: &Draft) -> Result<bool, Error> {
        let mut light = self.workshop.load_stored(&light.model)?;
        let mut whole = self.workshop.load("base", whole.clone().finish()?.bytes())?;
        let mut least = [Duration::MAX; 2];
        for _ in 0..5 {
            for (runner, least) in [&mut light, &mut whole].into_iter().zip(&mut least) {
                let started = Instant::now();
                runner.run(&self.rows, 0..1)?;
                *least = started.elapsed().min(*least);
            }
        }
        Ok(least[0] < least[1])
    }

    /// The copy whose outputs on calibration rows are nearest to the deployed model's.
    fn best_range(
        &self,
        name: &str,
        base: &Draft,
        (ranges, left): (&Ranges, &BTreeSet<String>),
        shares: &[f64],
    ) -> Result<Option<Made>, Error> {
        let copy = |cuts: &Cuts| self.copy(name, base, (ranges, cuts));
        let started = Instant::now();
        let in_steps = |steps: Steps| -> Result<Vec<Copied>, Error> {
            let mut made = Vec::new();
            for cuts in shares.iter().map(|&share| Cuts::of(share).in_steps(steps).leaving(left)) {
                if made.is_empty() || started.elapsed() < PATIENCE {
                    made.extend(copy(&cuts)?.map(|made| (cuts, made)));
                }
            }
            nearest(&mut made);
            Ok(made)
        };
        let mut best = in_steps(self.steps.get())?;
        // The best steps depend on the processor, so the result for the whole graph also serves its parts and smaller
        // graphs.
        if let Some((cuts, first)) =
            best.first().filter(|(cuts, _)| cuts.steps == Steps::All && shares.len() > 1)
        {
            let half = copy(&cuts.in_steps(Steps::Half))?;
            if half.is_some_and(|half| half.distance < FAR_NEARER * first.distance) {
                self.steps.set(Steps::Half);
                best = in_steps(Steps::Half)?;
            }
        }
        let Some((cuts, first)) = best.first() else { return Ok(None) };
        let mut values = measured(base, cuts);
        if values.len() > FEW_VALUES || shares.len() < 2 || !self.is_faster(first, base)? {
            values.clear();
        }
        for value in &values {
            let starts: Vec<Cuts> = best.iter().map(|(cuts, _)| cuts.clone()).collect();
            let tried = starts.iter().flat_map(|cuts| shares.iter().map(move |&share| (cuts, share)));
            for (cuts, share) in tried.filter(|(cuts, share)| cuts.share(value) != *share) {
                if started.elapsed() > PATIENCE {
                    break;
                }
                let cuts = cuts.with(value, share);
                best.extend(copy(&cuts)?.map(|made| (cuts, made)));
            }
            nearest(&mut best);
        }
        Ok(best.into_iter().next().map(|(_, best)| best))
    }

    fn copy(&self, name: &str, of: &Draft, (ranges, cuts): (&Ranges, &Cuts)) -> Result<Option<Made>, Error> {
        let Some(draft) = quantise(of, ranges, cuts)? else { return Ok(None) };
        self.load(name, cuts.to_string(), &draft).map(Some)
    }
}

/// Keeps the copies nearest to the deployed model, the nearest first.
fn nearest(copies: &mut Vec<Copied>) {
    copies.sort_by(|(_, a), (_, b)| a.distance.total_cmp(&b.distance));
    copies.truncate(KEPT_ON);
}
