//! Candidates in 8 bits: chooses ranges, steps of weights, and layers that stay in 32 bits.
//!
//! A few layers often cause most of the error of 8 bits: the first, whose inputs have no common scale, the last,
//! whose outputs are the answers, one with far outliers. They seldom take the most time. Each layer is tried in 8
//! bits alone, with all others in 32; the layers with the largest change of the answers per unit of work stay in 32
//! bits. Errors of layers add up in squares, as noise does, so one pass over the layers estimates the value of any
//! choice.
//!
//! Rejected: the rounding error of each layer's own outputs, which one run gives. It does not show the effect on
//! later layers: a layer before a softmax may be coarse without harm, a layer that all others build on may not.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use parm_parity_models::onnx::rewrite::Draft;

use super::answers;
use super::candidates::{Bench, Candidates, Made};
use crate::Error;
use crate::exact::quicken;
use crate::graph::{Survey, raise};
use crate::int8::{Cuts, Part, Ranges, Steps, correct, gather, kinds, measured, parts, quantise};
use crate::measure::mean_distance;

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
            let Some(Some((cuts, best))) = all.unless_refused(name, best)? else { continue };
            let mut done = Ok(());
            if left.is_empty() {
                self.is_light_faster.set(self.is_faster(&best, base)?);
                if self.is_light_faster.get() {
                    done = self.spared(base, (&ranges, &cuts), &best, all);
                }
            }
            // A search that is stopped while it tries layers keeps the copies that are made.
            all.made.push(best);
            done?;
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
        if let Some(Some((_, light))) = all.unless_refused(&name, light)? {
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
    ) -> Result<Option<Copied>, Error> {
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
        let Some((cuts, best)) = best.into_iter().next() else { return Ok(None) };
        let best = self.corrected(base, (ranges, &cuts), best)?;
        Ok(Some((cuts, best)))
    }

    /// The same copy with corrected biases, if that brings its outputs nearer.
    fn corrected(&self, base: &Draft, (ranges, cuts): (&Ranges, &Cuts), made: Made) -> Result<Made, Error> {
        let rows = (&self.rows, self.progress);
        let corrected = match correct(self.workshop, base, rows, (ranges, cuts)) {
            Ok(corrected) => corrected,
            Err(Error::Stopped) => return Err(Error::Stopped),
            // If errors cannot be averaged, for example because a row becomes one long list, the uncorrected copy is
            // used.
            Err(_) => return Ok(made),
        };
        let better = self.copy(&made.name, &corrected, (ranges, cuts))?;
        let better = better.filter(|better| better.distance < made.distance);
        Ok(better.map_or(made, |better| Made { how: format!("{}, biases corrected", better.how), ..better }))
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

/// Shares of the layers' work that stay in 8 bits, in percent.
const LIGHT: [u32; 3] = [95, 85, 70];
/// Rows that measure the effect of a layer.
const ROWS: usize = 16;
/// Approximate time limit for trying layers: with many layers, neighbours are tried together.
const TRYING: Duration = Duration::from_secs(60);
/// Sparing layers must reduce the distance to this share, otherwise it is not worth its time.
const NEARER: f64 = 0.8;

impl Bench<'_> {
    /// Copies in which some layers stay in 32 bits, for a `whole` 8-bit copy that does not always agree with the
    /// deployed model.
    fn spared(
        &self,
        base: &Draft,
        (ranges, cuts): (&Ranges, &Cuts),
        whole: &Made,
        all: &mut Candidates,
    ) -> Result<(), Error> {
        let parts = parts(base, &Survey::of(self.workshop, base, &self.rows)?);
        if whole.alike == 1.0 || parts.len() < 2 {
            return Ok(());
        }
        let harmful = self.harmful(base, (ranges, cuts), parts);
        let Some(harmful) = all.unless_refused("int8-of-parts", harmful)? else { return Ok(()) };
        let (mut nearest, mut last) = (whole.distance, BTreeSet::new());
        for percent in LIGHT {
            let left = chosen(&harmful, 1.0 - f64::from(percent) / 100.0);
            if left.is_empty() || left == last {
                continue;
            }
            let (name, cuts) = (format!("int8-{percent}"), cuts.leaving(&left));
            self.progress.doing(&format!("quantising: {name}"));
            last = left;
            let settings = (ranges, &cuts);
            let copy = self
                .copy(&name, base, settings)
                .and_then(|copy| copy.map(|copy| self.corrected(base, settings, copy)).transpose());
            let Some(Some(copy)) = all.unless_refused(&name, copy)? else { continue };
            if copy.distance < NEARER * nearest {
                nearest = copy.distance;
                all.made.push(copy);
            }
        }
        Ok(())
    }

    /// The squared change of the answers by each part alone. Neighbours form one part if trying each would take too
    /// long.
    fn harmful(
        &self,
        base: &Draft,
        (ranges, cuts): (&Ranges, &Cuts),
        mut parts: Vec<Part>,
    ) -> Result<Vec<(Part, f64)>, Error> {
        let rows = self.rows.select(&(0..ROWS.min(self.rows.len())).collect::<Vec<_>>())?;
        let all: BTreeSet<String> = parts.iter().flat_map(|part| part.layers.clone()).collect();
        let moved = |draft: Draft| -> Result<f64, Error> {
            let mut runner = self.workshop.load("part", draft.finish()?.bytes())?;
            let answers = answers(&mut runner, &rows, self.progress)?;
            Ok(mean_distance(&self.said, &answers, &self.meanings).powi(2))
        };
        // The distance with every layer in 32 bits is not caused by a layer.
        let started = Instant::now();
        let none = moved(base.clone())?;
        let each = started.elapsed().max(Duration::from_micros(1));
        let most = (TRYING.as_secs_f64() / each.as_secs_f64()) as usize;
        parts = together(parts, most.max(2));
        let count = parts.len();
        let mut harmful = Vec::new();
        for (at, part) in parts.into_iter().enumerate() {
            self.progress.within(&format!("trying layers in 8 bits: {} of {count}", at + 1));
            let others = all.iter().filter(|name| !part.layers.contains(*name)).cloned().collect();
            let alone = quantise(base, ranges, &cuts.leaving(&others))?;
            // A timeout ends the trials if they take longer than the first one predicted. Untried layers have no
            // reason to stay.
            let moved = match alone.filter(|_| started.elapsed() < 2 * TRYING) {
                Some(alone) => moved(alone)?,
                None => none,
            };
            harmful.push((part, (moved - none).max(0.0)));
        }
        Ok(harmful)
    }
}

/// Joins neighbours until there are at most `most` parts.
fn together(parts: Vec<Part>, most: usize) -> Vec<Part> {
    let size = parts.len().div_ceil(most);
    let join = |parts: &[Part]| Part {
        layers: parts.iter().flat_map(|part| part.layers.clone()).collect(),
        work: parts.iter().map(|part| part.work).sum(),
    };
    parts.chunks(size.max(1)).map(join).collect()
}

/// The layers that stay in 32 bits: those with the largest effect for their work, up to this share of all work.
fn chosen(harmful: &[(Part, f64)], share: f64) -> BTreeSet<String> {
    let whole: f64 = harmful.iter().map(|(part, _)| part.work).sum();
    let mut order: Vec<&(Part, f64)> = harmful.iter().filter(|(_, moved)| *moved > 0.0).collect();
    order.sort_by(|(a, a_moves), (b, b_moves)| (b_moves * a.work).total_cmp(&(a_moves * b.work)));
    let (mut spent, mut chosen) = (0.0, BTreeSet::new());
    for (part, _) in order {
        if spent + part.work <= share * whole {
            spent += part.work;
            chosen.extend(part.layers.clone());
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use parm_parity_models::bundle::Meaning;
    use parm_parity_models::onnx::{Builder, Model, Tensor as OnnxTensor, Value};
    use parm_protocol::Tensor;
    use parm_random::Random;

    use super::*;
    use crate::int8::gather;
    use crate::rows::Rows;
    use crate::testing::{Alone, Stage};

    const WIDE: usize = 32;
    const INNER: usize = 256;

    /// A small layer that 8 bits spoil, since each of its columns has a weight that is a hundred times the others and
    /// never read; then a large layer that they do not spoil.
    fn network() -> Model {
        let mut builder = Builder::new("network", 1);
        let x = builder.input(Value::batch_of_f32("x", &[WIDE]));
        let mut random = Random::new(4);
        let mut spoiled = random.normals(WIDE * WIDE);
        spoiled[..WIDE].fill(100.0);
        let mut weight = |name: &str, dims: [usize; 2], values: &[f32]| {
            builder.constant(OnnxTensor::from_f32(name, &dims, values).unwrap())
        };
        let first = weight("w.1", [WIDE, WIDE], &spoiled);
        let second = weight("w.2", [WIDE, INNER], &random.normals(WIDE * INNER));
        let third = weight("w.3", [INNER, 3], &random.normals(INNER * 3));
        let small = builder.node("MatMul", "small", &[&x, &first]);
        let small = builder.node("Relu", "small.relu", &[&small]);
        let large = builder.node("MatMul", "large", &[&small, &second]);
        let large = builder.node("Relu", "large.relu", &[&large]);
        builder.node("MatMul", "y", &[&large, &third]);
        builder.output(Value::batch_of_f32("y", &[3]));
        builder.build().unwrap()
    }

    fn rows(stage: &Stage, model: &Model, count: usize) -> Rows {
        let mut values = Random::new(5).normals(count * WIDE);
        values.chunks_mut(WIDE).for_each(|row| row[0] = 0.0);
        stage.rows(model, &[Tensor::from_f32([count, WIDE].as_slice(), &values).unwrap()])
    }

    fn bench<'a>(stage: &'a Stage, model: &Model) -> Bench<'a> {
        let rows = rows(stage, model, 24);
        let mut deployed = stage.workshop.load("deployed", model.bytes()).unwrap();
        let said = answers(&mut deployed, &rows, &Alone).unwrap();
        let draft = Draft::new(model).unwrap();
        let bench = Bench::new((&stage.workshop, &Alone), draft, (rows, said), vec![Meaning::Logits]);
        bench.is_light_faster.set(true);
        bench
    }

    #[test]
    fn small_sensitive_layer_stays_in_32_bits() {
        let (stage, model) = (Stage::new(), network());
        let bench = bench(&stage, &model);
        let base = Draft::new(&model).unwrap();
        let ranges = gather(&stage.workshop, &base, &bench.rows, &Alone).unwrap();
        let cuts = Cuts::of(0.0);
        let whole = bench.copy("int8", &base, (&ranges, &cuts)).unwrap().unwrap();
        assert!(whole.alike < 1.0, "{}", whole.alike);
        let mut all = Candidates::default();
        bench.spared(&base, (&ranges, &cuts), &whole, &mut all).unwrap();
        let made = &all.made;
        let found: Vec<(&str, bool)> =
            made.iter().map(|made| (made.name.as_str(), made.distance < 0.5 * whole.distance)).collect();
        // It is a tenth of the work, so 95 % cannot be in 8 bits without it.
        assert_eq!(found[0], ("int8-85", true));
        assert!(all.refused.is_empty());
        assert!(
            made[0].how.ends_with("one layer in 32 bits") || made[0].how.contains("one layer in 32 bits,")
        );
        // A copy with the same answer for every row spares no layer.
        let good = Made { alike: 1.0, ..whole };
        let mut all = Candidates::default();
        bench.spared(&base, (&ranges, &cuts), &good, &mut all).unwrap();
        assert!(all.made.is_empty());
    }

    fn part(name: &str, work: f64) -> Part {
        Part { layers: BTreeSet::from([name.to_owned()]), work }
    }

    #[test]
    fn layers_with_most_effect_per_work_stay_within_the_share() {
        let harmful = [
            (part("first", 2.0), 8.0),
            (part("middle", 90.0), 9.0),
            (part("harmless", 1.0), 0.0),
            (part("last", 3.0), 3.0),
            (part("before", 4.0), 2.0),
        ];
        let names = |share: f64| chosen(&harmful, share).into_iter().collect::<Vec<_>>();
        assert_eq!(names(0.05), ["first", "last"]);
        assert_eq!(names(0.09), ["before", "first", "last"]);
        assert_eq!(names(0.02), ["first"]);
        assert!(names(0.001).is_empty());
        assert_eq!(names(1.0).len(), 4, "a layer without effect must not stay");
    }

    #[test]
    fn neighbours_are_tried_together_when_there_are_many() {
        let parts: Vec<Part> = (0..7).map(|at| part(&at.to_string(), 1.0)).collect();
        let joined = together(parts, 3);
        assert_eq!(joined.iter().map(|part| part.layers.len()).collect::<Vec<_>>(), [3, 3, 1]);
        assert_eq!(joined[0].work, 3.0);
    }
}
