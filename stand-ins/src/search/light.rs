//! Candidates in 8 bits: chooses ranges and steps of weights.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use parm_parity_models::onnx::rewrite::Draft;

use super::candidates::{Bench, Candidates, Made};
use crate::Error;
use crate::exact::quicken;
use crate::graph::raise;
use crate::int8::{Cuts, Ranges, Steps, gather, kinds, measured, quantise};

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

type Copied = (Cuts, Made);

impl Bench<'_> {
    pub(super) fn eight_bits(&self, base: &Draft, all: &mut Candidates) -> Result<(), Error> {
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
    pub(super) fn lighter(
        &self,
        (name, how, draft): (&str, &str, &Draft),
        all: &mut Candidates,
    ) -> Result<(), Error> {
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
