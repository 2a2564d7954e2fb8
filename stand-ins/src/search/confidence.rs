//! Fits the confidence of candidates on the frontier to more rows.
//!
//! Two thousand rows are enough to judge agreement, and every candidate must answer them. A confidence curve gains
//! from every row (a sentence classifier's error fell from 1.9 to 1.7 points between two and five thousand rows), but
//! only candidates on the frontier need one. Therefore they answer the remaining rows as well.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use parm_random::Random;

use super::bar::{Bar, MOST_KEPT};
use super::parts::Parts;
use super::{Frontier, Wish, answers};
use crate::Error;
use crate::measure::{ScoredRows, sureness};
use crate::rows::Rows;
use crate::workshop::Workshop;

/// Maximum number of rows, and maximum time of the deployed model for them.
const MOST_ROWS: usize = 6_000;
const MOST_TIME: Duration = Duration::from_secs(20);

/// Rows that no step used: not for making, refitting or judging.
pub(super) struct Left {
    rows: Rows,
    labels: Option<Vec<usize>>,
}

impl Left {
    /// Takes as many of the remaining rows as fit the time and the memory, if the deployed model takes `each` per row and
    /// its scores have `bytes`.
    pub(super) fn of(
        rows: &Rows,
        (parts, each, bytes): (&Parts, Duration, usize),
        wish: &Wish,
    ) -> Result<Self, Error> {
        let room = (MOST_KEPT / bytes.max(1)).saturating_sub(parts.judged.len());
        let soon = (MOST_TIME.as_secs_f64() / each.as_secs_f64().max(1e-9)) as usize;
        let mut places = parts.left();
        // The newest rows, since future rows resemble them most; or random ones, since files are often sorted by
        // class.
        match wish.in_time {
            true => places.reverse(),
            false => Random::named(wish.seed, "left over").shuffle(&mut places),
        }
        places.truncate(MOST_ROWS.min(soon).min(room));
        let labels = wish.labels.as_ref().map(|labels| places.iter().map(|&row| labels[row]).collect());
        // `select` rejects an empty choice.
        let rows = if places.is_empty() { Rows::default() } else { rows.select(&places)? };
        Ok(Self { rows, labels })
    }

    /// Fits the confidence of the frontier and of the deployed model to these rows and to the judged ones of `bar`,
    /// for which `said_by` has the answers.
    pub(super) fn fit(
        &self,
        workshop: &Workshop,
        (deployed, said_by): (&Path, &BTreeMap<String, ScoredRows>),
        bar: &Bar<'_>,
        frontier: &mut Frontier,
    ) -> Result<(), Error> {
        if self.rows.is_empty() || said_by.is_empty() {
            return Ok(());
        }
        let said = answers(&mut workshop.open(deployed)?, &self.rows, bar.progress)?;
        let said = bar.meanings.scores(bar.said).and(&bar.meanings.scores(&said))?;
        let labels = bar.labels.zip(self.labels.as_deref()).map(|(judged, left)| [judged, left].concat());
        let truth = bar.meanings.truth(said, labels.as_deref());
        let on: Vec<bool> = frontier.candidates.iter().map(|one| frontier.is_on(one)).collect();
        for (one, _) in frontier.candidates.iter_mut().zip(on).filter(|(_, is_on)| *is_on) {
            let Some(judged) = said_by.get(&one.name) else { continue };
            bar.progress.doing(&format!("fitting the confidence of {}", one.name));
            let left = answers(&mut workshop.load_stored(&one.model)?, &self.rows, bar.progress)?;
            one.sureness = sureness(&judged.and(&bar.meanings.scores(&left))?, &truth);
        }
        if truth.is_labelled() {
            frontier.setting.sureness = sureness(truth.said(), &truth);
        }
        frontier.setting.confidence_rows = bar.rows.len() + self.rows.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use parm_parity_models::onnx::{Builder, Value};
    use parm_protocol::Tensor;

    use super::super::tests::WISH;
    use super::*;
    use crate::testing::Stage;

    const COUNT: usize = 10_000;

    fn left(wish: &Wish, each: Duration, bytes: usize) -> (Left, Vec<f32>) {
        let mut builder = Builder::new("model", 1);
        let x = builder.input(Value::batch_of_f32("x", &[2]));
        builder.node("Relu", "y", &[&x]);
        builder.output(Value::batch_of_f32("y", &[2]));
        let stage = Stage::new();
        let values: Vec<f32> = (0..COUNT).flat_map(|row| [row as f32, 0.0]).collect();
        let array = Tensor::from_f32([COUNT, 2].as_slice(), &values).unwrap();
        let rows = stage.rows(&builder.build().unwrap(), &[array]);
        let left = Left::of(&rows, (&Parts::draw(COUNT, wish), each, bytes), wish).unwrap();
        let places = left.rows.inputs().unwrap()[0].as_f32().unwrap().chunks(2).map(|row| row[0]).collect();
        (left, places)
    }

    #[test]
    fn remaining_rows_cover_all_classes_of_a_sorted_file() {
        let labels: Vec<usize> = (0..COUNT).map(|row| row / 1_000).collect();
        let wish = Wish { labels: Some(labels), ..WISH };
        for (each, most) in [(Duration::from_micros(1), MOST_ROWS), (Duration::from_millis(10), 2_000)] {
            let (left, places) = left(&wish, each, 8);
            let labels = left.labels.unwrap();
            assert_eq!((labels.len(), places.len()), (most, most));
            assert!(labels.iter().zip(&places).all(|(label, place)| *label == *place as usize / 1_000));
            let of = |class: usize| labels.iter().filter(|label| **label == class).count();
            assert!((0..10).all(|class| of(class) > most / 20), "{each:?}");
        }
    }

    #[test]
    fn remaining_rows_are_the_newest_when_in_time() {
        let wish = Wish { in_time: true, ..WISH };
        let (_, places) = left(&wish, Duration::from_millis(10), 8);
        // The newest thousand rows judge.
        assert!(places.iter().all(|place| *place < 9_000.0 && *place > 6_900.0), "{places:?}");
    }

    #[test]
    fn remaining_rows_with_large_answers_fit_the_memory() {
        let judged = Parts::draw(COUNT, &WISH).judged.len();
        let (left, _) = left(&WISH, Duration::from_micros(1), MOST_KEPT / (judged + 300));
        assert_eq!(left.rows.len(), 300);
    }
}
