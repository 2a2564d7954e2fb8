//! Candidates of every family, made from a few rows.

use std::cell::Cell;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parm_parity_models::bundle::{Meaning, Signature, misfit, misplaced};
use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{Limits, Model};
use parm_protocol::Tensor;

use super::{Refused, answers};
use crate::Error;
use crate::exact::{Maxima, quicken, rewrite};
use crate::graph::{Links, Survey, raise};
use crate::int8::{Cuts, Ranges, Scope, Steps, correct, gather, measured, quantise};
use crate::layers::{Shortcuts, repeats};
use crate::measure::mean_distance;
use crate::prune::{Depth, Pruning};
use crate::rows::Rows;
use crate::workshop::{Progress, Runner, Workshop};

/// A rewritten graph may be this far from the deployed one: sums in another order are rounded differently.
const ROUNDING: f64 = 1e-4;
/// Shares of the values that ranges leave out. The first is what mostly serves; the others are tried where there is time.
const LEFT_OUT: [f64; 5] = [1e-4, 1e-3, 3e-4, 1e-5, 0.0];
/// Of so few values the range of each is chosen by itself. Of more, none decides much alone, and all would take long to try.
const FEW_VALUES: usize = 4;
/// So many of the best choices are kept while the next value's is sought: the best range of one depends on that of another.
const KEPT_ON: usize = 3;
/// Weights of half the steps are rougher: they are nearer to the deployed model only where sums of products were cut off, and then by far.
const FAR_NEARER: f64 = 0.7;
/// Ranges of single values are sought for so long.
const PATIENCE: Duration = Duration::from_secs(60);
/// Shares of the channels inside of blocks that candidates keep, in percent.
const KEPT: [u32; 3] = [75, 50, 25];
/// The same where streams are cut too: what is inside of a block and reads from a stream is cut at both ends.
const KEPT_OF_ALL: [u32; 4] = [94, 88, 75, 50];

/// Most bytes of candidates' files together: all are loaded while costs are measured.
const MOST_BYTES: usize = 2 << 30;

/// A candidate, loaded.
pub(super) struct Made {
    pub(super) name: String,
    /// How it was made, in a few words.
    pub(super) how: String,
    pub(super) model: Bytes,
    /// What it can be taught from, in 32 bits: of what has fewer channels or layers, or was brought.
    pub(super) float: Option<Draft>,
    /// How far its answers on calibration rows are from the deployed model's, by what they mean, as a share of their size.
    pub(super) distance: f64,
    /// The same for the numbers as they are.
    apart: f64,
    pub(super) runner: Runner,
}

/// What candidates are made with.
pub(super) struct Bench<'a> {
    pub(super) workshop: &'a Workshop,
    pub(super) deployed: Draft,
    /// Calibration rows, what the deployed model says of them, and what that means.
    pub(super) rows: Rows,
    pub(super) said: Vec<Tensor>,
    pub(super) meaning: Meaning,
    /// Rows that weights are refitted on: those, and more where there are more.
    pub(super) fitted: Rows,
    /// ONNX files that somebody else made, by name.
    pub(super) brought: &'a [(String, Bytes)],
    pub(super) progress: &'a dyn Progress,
    /// Whether 8-bit copies are worth making of smaller graphs too.
    pub(super) is_light_faster: Cell<bool>,
    /// Steps of weights in 8 bits that serve here.
    pub(super) steps: Cell<Steps>,
}

impl Bench<'_> {
    /// All candidates, and what could not be made and why.
    pub(super) fn candidates(&self) -> Result<(Vec<Made>, Vec<Refused>), Error> {
        let (mut made, mut refused) = (Vec::new(), Vec::new());
        self.progress.doing("rewriting");
        let exact = self.rewritten(Maxima::Proven, &mut refused)?;
        let base = match self.rewritten(Maxima::Seen, &mut Vec::new())? {
            Some((base, _)) => base,
            None => exact.as_ref().map_or_else(|| self.deployed.clone(), |(draft, _)| draft.clone()),
        };
        made.extend(exact.map(|(_, made)| made));
        self.eight_bits(&base, &mut made, &mut refused)?;
        if let Some(light) = made.iter_mut().find(|made| made.name == "int8") {
            self.is_light_faster.set(self.is_faster(light, &base)?);
        }
        self.pruned(&base, &mut made, &mut refused)?;
        self.shortened(&base, &mut made, &mut refused)?;
        self.brought(&mut made, &mut refused)?;
        Ok((made, refused))
    }

    /// What somebody else made, if it takes and gives what the deployed model does.
    fn brought(&self, made: &mut Vec<Made>, refused: &mut Vec<Refused>) -> Result<(), Error> {
        let deployed = Signature::from(&self.deployed.clone().finish()?.inspect());
        for (name, file) in self.brought {
            let model = Model::from_bytes(file.clone(), &Limits::default())?;
            if let Some(problem) = misfit(&deployed, &Signature::from(&model.inspect()), name) {
                refused.push(Refused { name: name.clone(), reason: problem.to_string() });
                continue;
            }
            if let Some(side) = misplaced(&deployed, &Signature::from(&model.inspect())) {
                let reason = format!(
                    "its {side} are in another order than the deployed model's: export it with the same order"
                );
                refused.push(Refused { name: name.clone(), reason });
                continue;
            }
            self.smaller((name, "brought".into(), &Draft::new(&model)?), made, refused)?;
        }
        Ok(())
    }

    /// Fewer channels inside of blocks, and of streams.
    fn pruned(&self, base: &Draft, made: &mut Vec<Made>, refused: &mut Vec<Refused>) -> Result<(), Error> {
        self.progress.doing("choosing channels");
        let pruning = Pruning::of(self.workshop, base, &self.fitted, self.progress);
        let Some(pruning) = found("pruned", pruning, refused)? else { return Ok(()) };
        let depths = [("pruned", Depth::Inside, &KEPT[..]), ("narrowed", Depth::Streams, &KEPT_OF_ALL)];
        let depths: Vec<_> = depths.into_iter().filter(|(_, depth, _)| pruning.reaches(*depth)).collect();
        if depths.is_empty() {
            refused.push(Refused { name: "pruned".into(), reason: pruning.refusal() });
        }
        for (name, depth, shares) in depths {
            let shares = shares.iter().map(|&percent| (percent, f64::from(percent) / 100.0));
            for (percent, share) in shares.filter(|(_, share)| pruning.narrows(*share, depth)) {
                let (draft, how) = pruning.cut(share, depth)?;
                self.smaller((&format!("{name}-{percent}"), how, &draft), made, refused)?;
            }
        }
        Ok(())
    }

    /// Fewer layers, where the graph repeats.
    fn shortened(&self, base: &Draft, made: &mut Vec<Made>, refused: &mut Vec<Refused>) -> Result<(), Error> {
        self.progress.doing("looking for layers that repeat");
        let survey = Survey::of(self.workshop, base, &self.rows)?;
        let Some(repeats) = repeats(base, &Links::of(base), &survey) else { return Ok(()) };
        let shortcuts = Shortcuts::of(self.workshop, base, &self.fitted, (repeats, &survey, self.progress));
        let Some(Some(shortcuts)) = found("layers", shortcuts, refused)? else { return Ok(()) };
        for (name, how, draft) in shortcuts.cut(base)? {
            self.smaller((&name, how, &draft), made, refused)?;
        }
        Ok(())
    }

    /// A smaller graph in 32 bits and in 8.
    pub(super) fn smaller(
        &self,
        (name, how, draft): (&str, String, &Draft),
        made: &mut Vec<Made>,
        refused: &mut Vec<Refused>,
    ) -> Result<(), Error> {
        self.progress.doing(&format!("cutting: {name}"));
        if made.iter().map(|made| made.model.len()).sum::<usize>() > MOST_BYTES {
            let reason = "the candidates before it have more than 2 GiB together".into();
            refused.push(Refused { name: name.into(), reason });
            return Ok(());
        }
        let float = Some(draft.clone());
        let draft = &quicken(self.workshop, draft, &self.rows)?;
        let Some(smaller) = found(name, self.load(name, how.clone(), draft), refused)? else {
            return Ok(());
        };
        made.push(Made { float, ..smaller });
        if !self.is_light_faster.get() {
            return Ok(());
        }
        let name = format!("{name}-int8");
        let mut raised = draft.clone();
        if let Err(reason) = raise(&mut raised) {
            // Of what is made from the deployed model it was said what stands in the way.
            if draft.opset() != self.deployed.opset() {
                refused.push(Refused { name, reason });
            }
            return Ok(());
        }
        let light = gather(self.workshop, &raised, &self.rows)
            .and_then(|ranges| self.best_range(&name, &raised, (&ranges, Scope::All), &LEFT_OUT[..1]));
        if let Some(Some(light)) = found(&name, light, refused)? {
            made.push(Made { how: format!("{how}, in 8 bits; {}", light.how), ..light });
        }
        Ok(())
    }

    /// The graph with exact rewrites, if there are any and they hold.
    fn rewritten(&self, maxima: Maxima, refused: &mut Vec<Refused>) -> Result<Option<(Draft, Made)>, Error> {
        let name = "exact".to_owned();
        let draft = rewrite(self.workshop, &self.deployed, &self.rows, maxima)?;
        let quick = quicken(self.workshop, &draft, &self.rows)?;
        if quick.nodes == self.deployed.nodes {
            return Ok(None);
        }
        let how = format!("{} nodes of {}", quick.nodes.len(), self.deployed.nodes.len());
        let Some(made) = found(&name, self.load(&name, how, &quick), refused)? else { return Ok(None) };
        if made.apart > ROUNDING {
            let reason =
                format!("its answers are {:.1e} of their size away from the deployed model's", made.apart);
            refused.push(Refused { name, reason });
            return Ok(None);
        }
        Ok(Some((draft, made)))
    }

    fn eight_bits(
        &self,
        base: &Draft,
        made: &mut Vec<Made>,
        refused: &mut Vec<Refused>,
    ) -> Result<(), Error> {
        self.progress.doing("gathering ranges of values");
        let mut base = quicken(self.workshop, base, &self.rows)?;
        if let Err(reason) = raise(&mut base) {
            refused.push(Refused { name: "int8".into(), reason });
            return Ok(());
        }
        let base = &base;
        let ranges = gather(self.workshop, base, &self.rows);
        let Some(ranges) = found("int8", ranges, refused)? else { return Ok(()) };
        let mut seen = Vec::new();
        for (name, scope) in [
            ("int8", Scope::All),
            ("int8-convolutions", Scope::Convolutions),
            ("int8-products", Scope::Products),
        ] {
            let Some(draft) = quantise(base, &ranges, scope, &Cuts::of(LEFT_OUT[0]))? else { continue };
            // Of a graph without products, all of it are the convolutions.
            if seen.contains(&draft.nodes.len()) {
                continue;
            }
            seen.push(draft.nodes.len());
            self.progress.doing(&format!("quantising: {name}"));
            let best = self.best_range(name, base, (&ranges, scope), &LEFT_OUT);
            made.extend(found(name, best, refused)?.flatten());
        }
        if seen.is_empty() {
            let reason = "no convolution or product with constant weights whose values are known".into();
            refused.push(Refused { name: "int8".into(), reason });
        }
        Ok(())
    }

    /// Whether an 8-bit copy is faster than what it is a copy of: on many engines and processors it is not, and then its
    /// ranges need not be the best, nor copies of smaller graphs be made. The best of a few runs each; what candidates really cost is
    /// measured later.
    fn is_faster(&self, light: &mut Made, whole: &Draft) -> Result<bool, Error> {
        let mut whole = self.workshop.load("base", whole.clone().finish()?.bytes())?;
        let mut least = [Duration::MAX; 2];
        for _ in 0..5 {
            for (runner, least) in [&mut light.runner, &mut whole].into_iter().zip(&mut least) {
                let started = Instant::now();
                runner.run(&self.rows, 0..1)?;
                *least = started.elapsed().min(*least);
            }
        }
        Ok(least[0] < least[1])
    }

    /// The copy whose answers on calibration rows are nearest to the deployed model's.
    fn best_range(
        &self,
        name: &str,
        base: &Draft,
        (ranges, scope): (&Ranges, Scope),
        shares: &[f64],
    ) -> Result<Option<Made>, Error> {
        let copy = |cuts: &Cuts, of: &Draft, more: &str| -> Result<Option<Made>, Error> {
            let Some(draft) = quantise(of, ranges, scope, cuts)? else { return Ok(None) };
            self.load(name, format!("{cuts}{more}"), &draft).map(Some)
        };
        let started = Instant::now();
        let in_steps = |steps: Steps| -> Result<Vec<(Cuts, Made)>, Error> {
            let mut made = Vec::new();
            for cuts in shares.iter().map(|&share| Cuts::of(share).in_steps(steps)) {
                made.extend(copy(&cuts, base, "")?.map(|made| (cuts, made)));
            }
            nearest(&mut made);
            Ok(made)
        };
        let mut best = in_steps(self.steps.get())?;
        // What the whole graph wants, its parts and smaller ones want too: it is the processor that decides.
        if let Some((cuts, first)) =
            best.first().filter(|(cuts, _)| cuts.steps == Steps::All && shares.len() > 1)
        {
            let half = copy(&cuts.in_steps(Steps::Half), base, "")?;
            if half.is_some_and(|half| half.distance < FAR_NEARER * first.distance) {
                self.steps.set(Steps::Half);
                best = in_steps(Steps::Half)?;
            }
        }
        let mut values = measured(base, scope);
        let Some((_, first)) = best.first_mut() else { return Ok(None) };
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
                best.extend(copy(&cuts, base, "")?.map(|made| (cuts, made)));
            }
            nearest(&mut best);
        }
        let Some((cuts, best)) = best.into_iter().next() else { return Ok(None) };
        let corrected = correct(self.workshop, base, &self.rows, (ranges, scope, &cuts))?;
        let made = copy(&cuts, &corrected, ", biases corrected")?;
        Ok(made.filter(|made| made.distance < best.distance).or(Some(best)))
    }

    /// Loads a graph.
    fn load(&self, name: &str, how: String, draft: &Draft) -> Result<Made, Error> {
        let model = draft.clone().finish()?.bytes().clone();
        let mut runner = self.workshop.load(name, &model)?;
        let answers = answers(&mut runner, &self.rows, self.progress)?;
        let distance = mean_distance(&self.said, &answers, self.meaning);
        let apart = mean_distance(&self.said, &answers, Meaning::Values);
        Ok(Made { name: name.into(), how, model, float: None, distance, apart, runner })
    }
}

/// Leaves the copies that are nearest to the deployed model, the nearest first.
fn nearest(copies: &mut Vec<(Cuts, Made)>) {
    copies.sort_by(|(_, a), (_, b)| a.distance.total_cmp(&b.distance));
    copies.truncate(KEPT_ON);
}

/// What a family found; what it could not make for a reason of its own is refused with that.
fn found<T>(name: &str, made: Result<T, Error>, refused: &mut Vec<Refused>) -> Result<Option<T>, Error> {
    match made {
        Ok(found) => Ok(Some(found)),
        Err(Error::Stopped) => Err(Error::Stopped),
        Err(error) => {
            refused.push(Refused { name: name.into(), reason: error.to_string() });
            Ok(None)
        }
    }
}
