//! Makes 8-bit copies in which the most sensitive layers stay in 32 bits.
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

use super::Refused;
use super::answers;
use super::candidates::{Bench, Made, found};
use crate::Error;
use crate::graph::Survey;
use crate::int8::{Cuts, Part, Ranges, Scope, parts, quantise};
use crate::measure::mean_distance;

/// Shares of the layers' work that stay in 8 bits, in percent.
const LIGHT: [u32; 3] = [95, 85, 70];
/// Rows that measure the effect of a layer.
const ROWS: usize = 16;
/// Approximate time limit for trying layers: with many layers, neighbours are tried together.
const PATIENCE: Duration = Duration::from_secs(60);
/// Sparing layers must reduce the distance to this share, otherwise it is not worth its time.
const NEARER: f64 = 0.8;

impl Bench<'_> {
    /// Copies in which some layers stay in 32 bits, for a `whole` 8-bit copy that does not always agree with the
    /// deployed model.
    pub(super) fn spared(
        &self,
        base: &Draft,
        (ranges, cuts): (&Ranges, &Cuts),
        whole: &Made,
        made: &mut Vec<Made>,
        refused: &mut Vec<Refused>,
    ) -> Result<(), Error> {
        if whole.alike == 1.0 {
            return Ok(());
        }
        let survey = Survey::of(self.workshop, base, &self.rows)?;
        let parts = parts(base, &survey);
        if parts.len() < 2 {
            return Ok(());
        }
        let harmful = self.harmful(base, (ranges, cuts), parts);
        let Some(harmful) = found("int8-of-parts", harmful, refused)? else { return Ok(()) };
        let mut nearest = whole.distance;
        let mut last = BTreeSet::new();
        for percent in LIGHT {
            let left = chosen(&harmful, 1.0 - f64::from(percent) / 100.0);
            if left.is_empty() || left == last {
                continue;
            }
            let (name, cuts) = (format!("int8-{percent}"), cuts.leaving(&left));
            self.progress.doing(&format!("quantising: {name}"));
            last = left;
            let settings = (ranges, Scope::All, &cuts);
            let copy = self
                .copy(&name, base, settings)
                .and_then(|copy| copy.map(|copy| self.corrected(base, settings, copy)).transpose());
            let Some(Some(copy)) = found(&name, copy, refused)? else { continue };
            if copy.distance < NEARER * nearest {
                nearest = copy.distance;
                made.push(copy);
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
        let most = (PATIENCE.as_secs_f64() / each.as_secs_f64()) as usize;
        parts = together(parts, most.max(2));
        let count = parts.len();
        let mut harmful = Vec::new();
        for (at, part) in parts.into_iter().enumerate() {
            self.progress.within(&format!("trying layers in 8 bits: {} of {count}", at + 1));
            let others = all.iter().filter(|name| !part.layers.contains(*name)).cloned().collect();
            let alone = quantise(base, ranges, Scope::All, &cuts.leaving(&others))?;
            // A timeout ends the trials if they take longer than the first one predicted. Untried layers have no
            // reason to stay.
            let moved = match alone.filter(|_| started.elapsed() < 2 * PATIENCE) {
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

    /// A bench for the network.
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
        let whole = bench.copy("int8", &base, (&ranges, Scope::All, &cuts)).unwrap().unwrap();
        assert!(whole.alike < 1.0, "{}", whole.alike);
        let (mut made, mut refused) = (Vec::new(), Vec::new());
        bench.spared(&base, (&ranges, &cuts), &whole, &mut made, &mut refused).unwrap();
        let found: Vec<(&str, bool)> =
            made.iter().map(|made| (made.name.as_str(), made.distance < 0.5 * whole.distance)).collect();
        // It is a tenth of the work, so 95 % cannot be in 8 bits without it.
        assert_eq!(found[0], ("int8-85", true));
        assert!(refused.is_empty());
        assert!(
            made[0].how.ends_with("one layer in 32 bits") || made[0].how.contains("one layer in 32 bits,")
        );
        // A copy with the same answer for every row spares no layer.
        let good = Made { alike: 1.0, ..whole };
        made.clear();
        bench.spared(&base, (&ranges, &cuts), &good, &mut made, &mut refused).unwrap();
        assert!(made.is_empty());
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
