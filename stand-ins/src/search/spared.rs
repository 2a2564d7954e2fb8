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
        let moved = |names: &BTreeSet<String>| -> Result<f64, Error> {
            let Some(draft) = quantise(base, ranges, Scope::All, &cuts.leaving(names))? else {
                return Ok(0.0);
            };
            let mut runner = self.workshop.load("part", draft.finish()?.bytes())?;
            let answers = answers(&mut runner, &rows, self.progress)?;
            Ok(mean_distance(&self.said, &answers, self.meaning).powi(2))
        };
        // What is there with every layer in 32 bits is no layer's fault.
        let started = Instant::now();
        let none = moved(&all)?;
        let each = started.elapsed().max(Duration::from_micros(1));
        let most = (PATIENCE.as_secs_f64() / each.as_secs_f64()) as usize;
        parts = together(parts, most.max(2));
        let count = parts.len();
        let mut harmful = Vec::new();
        for (at, part) in parts.into_iter().enumerate() {
            self.progress.doing(&format!("trying layers in 8 bits: {} of {count}", at + 1));
            let others = all.iter().filter(|name| !part.layers.contains(*name)).cloned().collect();
            let moved = moved(&others)?;
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
    use super::*;

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
