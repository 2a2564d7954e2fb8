//! Candidates in 8 bits: chooses ranges, steps of weights, and layers that stay in 32 bits.

use std::time::{Duration, Instant};

use parm_parity_models::onnx::rewrite::Draft;

use super::Refused;
use super::candidates::{Bench, Made, found};
use crate::Error;
use crate::exact::quicken;
use crate::graph::raise;
use crate::int8::{Cuts, Ranges, Scope, Steps, correct, gather, measured, quantise};

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

/// An 8-bit copy with its settings.
pub(super) type Copied = (Cuts, Made);

impl Bench<'_> {
    /// Makes 8-bit copies of a whole graph.
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
        let ranges = gather(self.workshop, base, &self.rows, self.progress);
        let Some(ranges) = found("int8", ranges, refused)? else { return Ok(()) };
        let mut seen = Vec::new();
        for (name, scope) in [
            ("int8", Scope::All),
            ("int8-convolutions", Scope::Convolutions),
            ("int8-products", Scope::Products),
        ] {
            let Some(draft) = quantise(base, &ranges, scope, &Cuts::of(LEFT_OUT[0]))? else { continue };
            // In a graph without products, the convolutions are the whole graph.
            if seen.contains(&draft.nodes.len()) {
                continue;
            }
            seen.push(draft.nodes.len());
            self.progress.doing(&format!("quantising: {name}"));
            let best = self.best_range(name, base, (&ranges, scope), &LEFT_OUT);
            let Some(Some((cuts, best))) = found(name, best, refused)? else { continue };
            let (mut spared, mut done) = (Vec::new(), Ok(()));
            if scope == Scope::All {
                self.is_light_faster.set(self.is_faster(&best, base)?);
                if self.is_light_faster.get() {
                    done = self.spared(base, (&ranges, &cuts), &best, &mut spared, refused);
                }
            }
            // A search that is stopped while it tries layers keeps the copies that are made.
            made.extend(spared);
            made.push(best);
            done?;
        }
        if seen.is_empty() {
            let reason = "no convolution or product with constant weights whose values are known".into();
            refused.push(Refused { name: "int8".into(), reason });
        }
        Ok(())
    }

    /// An 8-bit copy of a smaller graph, if copies of the whole graph are faster.
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
            // For graphs made from the deployed model the obstacle was reported already.
            if draft.opset() != self.deployed.opset() {
                refused.push(Refused { name, reason });
            }
            return Ok(());
        }
        let light = gather(self.workshop, &raised, &self.rows, self.progress)
            .and_then(|ranges| self.best_range(&name, &raised, (&ranges, Scope::All), &LEFT_OUT[..1]));
        if let Some(Some((_, light))) = found(&name, light, refused)? {
            made.push(Made { how: format!("{how}, in 8 bits; {}", light.how), ..light });
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
    pub(super) fn best_range(
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
        let mut values = measured(base, scope);
        let Some((_, first)) = best.first() else { return Ok(None) };
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

    /// The same copy with corrected biases, if that brings its outputs nearer.
    pub(super) fn corrected(
        &self,
        base: &Draft,
        (ranges, scope, cuts): (&Ranges, Scope, &Cuts),
        made: Made,
    ) -> Result<Made, Error> {
        let rows = (&self.rows, self.progress);
        let corrected = match correct(self.workshop, base, rows, (ranges, scope, cuts)) {
            Ok(corrected) => corrected,
            Err(Error::Stopped) => return Err(Error::Stopped),
            // If errors cannot be averaged, for example because a row becomes one long list, the uncorrected copy is
            // used.
            Err(_) => return Ok(made),
        };
        let better = self.copy(&made.name, &corrected, (ranges, scope, cuts))?;
        let better = better.filter(|better| better.distance < made.distance);
        Ok(better.map_or(made, |better| Made { how: format!("{}, biases corrected", better.how), ..better }))
    }

    /// Makes and loads an 8-bit copy.
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

/// Keeps the copies nearest to the deployed model, the nearest first.
fn nearest(copies: &mut Vec<Copied>) {
    copies.sort_by(|(_, a), (_, b)| a.distance.total_cmp(&b.distance));
    copies.truncate(KEPT_ON);
}
