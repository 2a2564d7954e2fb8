//! Candidates in 8 bits: which ranges, which weights, and which layers stay in 32.

use std::time::{Duration, Instant};

use parm_parity_models::onnx::rewrite::Draft;

use super::Refused;
use super::candidates::{Bench, Made, found};
use crate::Error;
use crate::exact::quicken;
use crate::graph::raise;
use crate::int8::{Cuts, Ranges, Scope, Steps, correct, gather, measured, quantise};

/// Shares of the values that ranges leave out. The first is what mostly serves; the others are tried where there is time.
const LEFT_OUT: [f64; 5] = [1e-4, 1e-3, 3e-4, 1e-5, 0.0];
/// Of so few values the range of each is chosen by itself. Of more, none decides much alone, and all would take long to try.
const FEW_VALUES: usize = 4;
/// So many of the best choices are kept while the next value's is sought: the best range of one depends on that of another.
const KEPT_ON: usize = 3;
/// Weights of half the steps are rougher: they are nearer to the deployed model only where sums of products were cut off, and then by far.
const FAR_NEARER: f64 = 0.7;
/// The best ranges are sought for so long; those that were not tried by then are not missed much.
const PATIENCE: Duration = Duration::from_secs(60);

/// A copy in 8 bits, and what is cut off in it.
pub(super) type Copied = (Cuts, Made);

impl Bench<'_> {
    /// Copies of a whole graph.
    pub(super) fn eight_bits(
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
            let Some(Some((cuts, mut best))) = found(name, best, refused)? else { continue };
            if scope == Scope::All {
                self.is_light_faster.set(self.is_faster(&mut best, base)?);
                if self.is_light_faster.get() {
                    self.spared(base, (&ranges, &cuts), &best, made, refused)?;
                }
            }
            made.push(best);
        }
        if seen.is_empty() {
            let reason = "no convolution or product with constant weights whose values are known".into();
            refused.push(Refused { name: "int8".into(), reason });
        }
        Ok(())
    }

    /// A copy of a smaller graph, where that of the whole is worth it.
    pub(super) fn lighter(
        &self,
        (name, how, draft): (&str, &str, &Draft),
        made: &mut Vec<Made>,
        refused: &mut Vec<Refused>,
    ) -> Result<(), Error> {
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
        if let Some(Some((_, light))) = found(&name, light, refused)? {
            made.push(Made { how: format!("{how}, in 8 bits; {}", light.how), ..light });
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
    ) -> Result<Option<Copied>, Error> {
        let copy = |cuts: &Cuts| self.copy(name, base, (ranges, scope, cuts));
        let started = Instant::now();
        let in_steps = |steps: Steps| -> Result<Vec<Copied>, Error> {
            let mut made = Vec::new();
            for cuts in shares.iter().map(|&share| Cuts::of(share).in_steps(steps)) {
                if made.is_empty() || started.elapsed() < PATIENCE {
                    made.extend(copy(&cuts)?.map(|made| (cuts, made)));
                }
            }
            nearest(&mut made);
            Ok(made)
        };
        let mut best = in_steps(self.steps.get())?;
        // What the whole graph wants, its parts and smaller ones want too: it is the processor that decides.
        if let Some((cuts, first)) =
            best.first().filter(|(cuts, _)| cuts.steps == Steps::All && shares.len() > 1)
        {
            let half = copy(&cuts.in_steps(Steps::Half))?;
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
                best.extend(copy(&cuts)?.map(|made| (cuts, made)));
            }
            nearest(&mut best);
        }
        let Some((cuts, best)) = best.into_iter().next() else { return Ok(None) };
        let best = self.corrected(base, (ranges, scope, &cuts), best)?;
        Ok(Some((cuts, best)))
    }

    /// The same copy with corrected biases, where that brings its answers nearer.
    pub(super) fn corrected(
        &self,
        base: &Draft,
        (ranges, scope, cuts): (&Ranges, Scope, &Cuts),
        made: Made,
    ) -> Result<Made, Error> {
        let corrected = match correct(self.workshop, base, &self.rows, (ranges, scope, cuts)) {
            Ok(corrected) => corrected,
            Err(Error::Stopped) => return Err(Error::Stopped),
            // A copy whose errors cannot be averaged, as where a row is made one long list, is a copy all the same.
            Err(_) => return Ok(made),
        };
        let better = self.copy(&made.name, &corrected, (ranges, scope, cuts))?;
        let better = better.filter(|better| better.distance < made.distance);
        Ok(better.map_or(made, |better| Made { how: format!("{}, biases corrected", better.how), ..better }))
    }

    /// A graph in 8 bits, loaded.
    pub(super) fn copy(
        &self,
        name: &str,
        of: &Draft,
        (ranges, scope, cuts): (&Ranges, Scope, &Cuts),
    ) -> Result<Option<Made>, Error> {
        let Some(draft) = quantise(of, ranges, scope, cuts)? else { return Ok(None) };
        self.load(name, cuts.to_string(), &draft).map(Some)
    }
}

/// Leaves the copies that are nearest to the deployed model, the nearest first.
fn nearest(copies: &mut Vec<Copied>) {
    copies.sort_by(|(_, a), (_, b)| a.distance.total_cmp(&b.distance));
    copies.truncate(KEPT_ON);
}
