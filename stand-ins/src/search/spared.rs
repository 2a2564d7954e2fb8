//! 8-bit copies that leave the layers alone which harm most.
//!
//! A few layers of a network often make most of what 8 bits move its answers by: the first, which reads what nobody has brought to a
//! common size, the last, whose numbers are the answers, one whose values reach far. They are seldom those that take the time. So
//! each layer is tried in 8 bits by itself, all others in 32, and those stay in 32 bits that move the answers most for the work that they
//! do. What layers move answers by adds up as noise does, in squares, so one pass over the layers says what any choice of them is about worth.
//!
//! Rejected: what rounding moves a layer's own outputs by, which is had in one run. It says nothing about what the layers
//! behind it make of that: a layer before a softmax may be rough and harmless, one on which all others build not.

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

/// Shares of the layers' work that is in 8 bits at least, in percent.
const LIGHT: [u32; 3] = [95, 85, 70];
/// Rows that tell what a layer moves answers by.
const ROWS: usize = 16;
/// Layers are tried for about so long: of many, neighbours are tried together.
const PATIENCE: Duration = Duration::from_secs(60);
/// What is spared must bring answers so much nearer, or it is not worth its time.
const NEARER: f64 = 0.8;

impl Bench<'_> {
    /// Copies in which some layers stay in 32 bits, beside a `whole` one that does not always say what the deployed model says.
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

    /// What each part by itself moves answers by, squared. Neighbours are one part where trying each would take too long.
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
            Ok(mean_distance(&self.said, &answers, self.meaning).powi(2))
        };
        // What is there with every layer in 32 bits is no layer's fault.
        let started = Instant::now();
        let none = moved(base.clone())?;
        let each = started.elapsed().max(Duration::from_micros(1));
        let most = (PATIENCE.as_secs_f64() / each.as_secs_f64()) as usize;
        parts = together(parts, most.max(2));
        let count = parts.len();
        let mut harmful = Vec::new();
        for (at, part) in parts.into_iter().enumerate() {
            self.progress.doing(&format!("trying layers in 8 bits: {} of {count}", at + 1));
            let others = all.iter().filter(|name| !part.layers.contains(*name)).cloned().collect();
            let alone = quantise(base, ranges, Scope::All, &cuts.leaving(&others))?;
            // What takes longer than the first try promised ends all the same; what was not tried has no reason to stay.
            let moved = match alone.filter(|_| started.elapsed() < 2 * PATIENCE) {
                Some(alone) => moved(alone)?,
                None => none,
            };
            harmful.push((part, (moved - none).max(0.0)));
        }
        Ok(harmful)
    }
}

/// Neighbours taken together until there are no more than so many parts.
fn together(parts: Vec<Part>, most: usize) -> Vec<Part> {
    let size = parts.len().div_ceil(most);
    let join = |parts: &[Part]| Part {
        layers: parts.iter().flat_map(|part| part.layers.clone()).collect(),
        work: parts.iter().map(|part| part.work).sum(),
    };
    parts.chunks(size.max(1)).map(join).collect()
}

/// The layers that stay in 32 bits: those that move answers most for their work, as far as their work is no more than this
/// share of all.
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
    use std::cell::{Cell, RefCell};

    use parm_parity_models::bundle::Meaning;
    use parm_parity_models::onnx::{Builder, Model, Tensor as OnnxTensor, Value};
    use parm_protocol::Tensor;
    use parm_random::Random;

    use super::*;
    use crate::int8::gather;
    use crate::rows::Rows;
    use crate::testing::{Alone, Stage};
    use crate::workshop::Progress;

    const WIDE: usize = 32;
    const INNER: usize = 256;

    /// A small layer that 8 bits spoil, as each of its columns has a weight that is a hundred times the others and never read; then a
    /// large one that they do not.
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

    /// A bench for the network, in whatever it takes.
    fn bench<'a>(stage: &'a Stage, model: &Model, progress: &'a dyn Progress) -> Bench<'a> {
        let rows = rows(stage, model, 24);
        let mut deployed = stage.workshop.load("deployed", model.bytes()).unwrap();
        let said = answers(&mut deployed, &rows, progress).unwrap();
        Bench {
            workshop: &stage.workshop,
            deployed: Draft::new(model).unwrap(),
            said,
            meaning: Meaning::Logits,
            fitted: rows.clone(),
            rows,
            brought: &[],
            progress,
            is_light_faster: Cell::new(true),
            steps: Cell::default(),
        }
    }

    #[test]
    fn the_small_layer_that_8_bits_spoil_stays_in_32() {
        let (stage, model) = (Stage::new(), network());
        let bench = bench(&stage, &model, &Alone);
        let base = Draft::new(&model).unwrap();
        let ranges = gather(&stage.workshop, &base, &bench.rows).unwrap();
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
        // What says the same of every row wants no layer spared.
        let good = Made { alike: 1.0, ..whole };
        made.clear();
        bench.spared(&base, (&ranges, &cuts), &good, &mut made, &mut refused).unwrap();
        assert!(made.is_empty());
    }

    /// Hears what is done.
    #[derive(Default)]
    struct Heard(RefCell<Vec<String>>);

    impl Progress for Heard {
        fn doing(&self, what: &str) {
            self.0.borrow_mut().push(what.to_owned());
        }

        fn is_stopped(&self) -> bool {
            false
        }
    }

    #[test]
    fn what_the_rewritten_graph_is_off_by_is_no_layers_fault() {
        let (stage, model, heard) = (Stage::new(), network(), Heard::default());
        let mut bench = bench(&stage, &model, &heard);
        // A deployed model that says something else than the graph, by as much for every row.
        let shifted: Vec<f32> = bench.said[0].as_f32().unwrap().iter().map(|value| value * 2.0).collect();
        bench.said = vec![Tensor::from_f32(bench.said[0].shape(), &shifted).unwrap()];
        let base = Draft::new(&model).unwrap();
        let ranges = gather(&stage.workshop, &base, &bench.rows).unwrap();
        let parts = parts(&base, &Survey::of(&stage.workshop, &base, &bench.rows).unwrap());
        let harmful = bench.harmful(&base, (&ranges, &Cuts::of(0.0)), parts).unwrap();
        assert_eq!(heard.0.borrow().len(), 3, "each layer was tried");
        assert!(harmful.iter().all(|(_, moved)| *moved < 0.1), "{harmful:?}");
        assert_eq!(harmful[0].0.work, (2 * WIDE * WIDE) as f64, "of two rows");
    }

    fn part(name: &str, work: f64) -> Part {
        Part { layers: BTreeSet::from([name.to_owned()]), work }
    }

    #[test]
    fn what_moves_answers_most_for_its_work_stays_as_far_as_there_is_work_to_spare() {
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
        assert_eq!(names(1.0).len(), 4, "what moves nothing has no reason to stay");
    }

    #[test]
    fn neighbours_are_tried_together_where_there_are_too_many() {
        let parts: Vec<Part> = (0..7).map(|at| part(&at.to_string(), 1.0)).collect();
        let joined = together(parts.clone(), 3);
        assert_eq!(joined.iter().map(|part| part.layers.len()).collect::<Vec<_>>(), [3, 3, 1]);
        assert_eq!(joined[0].work, 3.0);
        assert_eq!(together(parts, 100).len(), 7);
    }
}
