//! Schools: teach candidates the deployed model's answers.
//!
//! Training with gradients is outside of this crate, behind [`School`]; this module chooses the candidates and the
//! rows. Training starts from pruned and refitted weights, so a few epochs are enough. Only a few candidates are
//! taught, since that takes minutes where everything else takes seconds: those within the wanted cost, because a
//! costlier one would not be used however well it learned.

use bytes::Bytes;
use parm_parity_models::bundle::Meaning;
use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{Limits, Model};
use parm_protocol::Tensor;

use super::candidates::{Bench, Candidates, Made};
use crate::Error;
use crate::measure::Shares;
use crate::memory::{STEP, in_words};
use crate::rows::Rows;
use crate::workshop::Progress;

/// The number of candidates that are taught.
const PUPILS: usize = 2;

/// Trains graphs.
pub trait School {
    /// Rows to teach with; if `None`, the search's rows that decide nothing are used.
    fn rows(&self) -> Option<&Rows>;

    /// Trains a candidate's graph and returns it with the same inputs and outputs, or why it cannot be taught.
    fn teach(&self, name: &str, graph: &Bytes, lessons: &Lessons<'_>) -> Result<Bytes, String>;
}

/// The material to teach with.
#[derive(Clone, Copy)]
pub struct Lessons<'a> {
    /// Rows that decide nothing about candidates.
    pub rows: &'a Rows,
    /// The deployed model's answers for them.
    pub said: &'a [Tensor],
    /// The meaning of these answers.
    pub meaning: Meaning,
    /// The most rows of a step that fit the memory.
    pub together: usize,
    /// Receives the progress, and can stop the training.
    pub progress: &'a dyn Progress,
}

impl Bench<'_> {
    /// Adds taught versions of the best candidates; `shares` are the costs of the existing candidates, `limit` is the
    /// wanted cost.
    pub(super) fn taught(
        &self,
        (school, lessons): (&dyn School, Lessons<'_>),
        (shares, limit): (&[Shares], f64),
        all: &mut Candidates,
    ) -> Result<(), Error> {
        // A lesson may take hours: the time limit ends it, as an interrupt does.
        let lessons = Lessons { progress: self.progress, ..lessons };
        let pupils = pupils(&all.made, shares, limit).into_iter().filter_map(|at| {
            let made = &all.made[at];
            Some((made.name.clone(), made.how.clone(), made.float.clone()?))
        });
        for (pupil, how, draft) in pupils.collect::<Vec<_>>() {
            let name = format!("taught-{pupil}");
            if lessons.together == 0 {
                let limit = in_words(STEP);
                let reason = format!(
                    "cannot teach it: one row needs more than {limit} of memory in a step: give smaller rows"
                );
                all.refuse(&name, reason);
                continue;
            }
            let taught = school.teach(&pupil, draft.finish()?.bytes(), &lessons);
            if lessons.progress.is_stopped() {
                return Err(Error::Stopped);
            }
            match taught {
                Ok(file) => {
                    let draft = Draft::new(&Model::from_bytes(file, &Limits::default())?)?;
                    let how = format!("{how}, then taught with {} rows", lessons.rows.len());
                    self.smaller((&name, how, &draft), all)?;
                }
                Err(reason) => all.refuse(&name, reason),
            }
        }
        Ok(())
    }
}

/// The candidates to teach: those nearest to the deployed model among the ones that lost agreement and fit the cost,
/// in 32 or 8 bits. If none fits, the cheapest.
fn pupils(made: &[Made], shares: &[Shares], limit: f64) -> Vec<usize> {
    let cost = |at: usize| {
        let light = format!("{}-int8", made[at].name);
        let light = made.iter().position(|other| other.name == light);
        light.map_or(shares[at][0], |light| shares[light][0].min(shares[at][0]))
    };
    let able = (0..made.len()).filter(|&at| made[at].float.is_some());
    chosen(able.map(|at| (at, cost(at), made[at].distance)).collect(), limit)
}

/// Chooses among candidates with their costs and distances.
fn chosen(mut able: Vec<(usize, f64, f64)>, limit: f64) -> Vec<usize> {
    able.sort_by(|(_, a, _), (_, b, _)| a.total_cmp(b));
    let fitting = able.iter().take_while(|(_, cost, _)| *cost <= limit).count();
    able.truncate(fitting.max(1));
    able.sort_by(|(.., a), (.., b)| a.total_cmp(b));
    able.iter().take(PUPILS).map(|(at, ..)| *at).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use parm_parity_models::onnx::{Builder, Value};

    use super::super::{Limited, answers};
    use super::*;
    use crate::testing::{Alone, Stage};
    use crate::workshop::Stored;

    /// A school that teaches until it is stopped.
    struct Patient;

    impl School for Patient {
        fn rows(&self) -> Option<&Rows> {
            None
        }

        fn teach(&self, _: &str, graph: &Bytes, lessons: &Lessons<'_>) -> Result<Bytes, String> {
            assert!(lessons.progress.is_stopped(), "the lesson would go on");
            Ok(graph.clone())
        }
    }

    #[test]
    fn lesson_ends_at_the_time_limit() {
        let (mut builder, x) = Builder::reading("model", 1, Value::batch_of_f32("x", &[2]));
        builder.node("Relu", "y", &[&x]);
        builder.output(Value::batch_of_f32("y", &[2]));
        let (stage, model) = (Stage::new(), builder.build().unwrap());
        let rows = stage.rows(&model, &[Tensor::from_f32([8, 2].as_slice(), &[1.0; 16]).unwrap()]);
        let mut deployed = stage.workshop.load("deployed", model.bytes()).unwrap();
        let said = answers(&mut deployed, &rows, &Alone).unwrap();
        let draft = Draft::new(&model).unwrap();
        let limited = Limited { progress: &Alone, until: Some(Instant::now()), is_final: false };
        let bench = Bench::new(
            (&stage.workshop, &limited),
            draft.clone(),
            (rows.clone(), said.clone()),
            vec![Meaning::Values],
        );
        let made = vec![Made {
            name: "pruned-50".into(),
            how: String::new(),
            model: Stored::default(),
            float: Some(draft),
            distance: 0.1,
            apart: 0.1,
        }];
        let lessons =
            Lessons { rows: &rows, said: &said, meaning: Meaning::Values, together: 64, progress: &Alone };
        let mut all = Candidates { made, refused: Vec::new() };
        let done = bench.taught((&Patient, lessons), (&[[0.5; 4]], 0.9), &mut all);
        assert_eq!((done, all.made.len()), (Err(Error::Stopped), 1));
    }

    #[test]
    fn pupils_are_the_nearest_that_fit_or_the_cheapest() {
        let able = vec![(0, 0.9, 0.01), (1, 0.5, 0.1), (2, 0.2, 0.3), (3, 0.25, 0.2), (4, 0.1, 0.4)];
        assert_eq!(chosen(able.clone(), 0.25), [3, 2]);
        assert_eq!(chosen(able.clone(), 0.1), [4]);
        assert_eq!(chosen(able, 0.05), [4]);
        assert!(chosen(Vec::new(), 0.5).is_empty());
    }
}
