//! Meanings of a model's outputs: given, or found from its answers, each with the reason.
//!
//! A wrong meaning makes every figure untrue: the best of three quality scores is always the same one, and the best of
//! one probability always agrees. Therefore floats are only taken for classes if their rows are probabilities or logarithms
//! of these, or if the labels, the bundle or the user say so; others without a given meaning are values. All else is a label.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use parm_backend::engine::Declared;
use parm_parity_models::bundle::{Meaning, best};
use parm_protocol::{DataType, Tensor};
use serde::Serialize;

use super::agreement::{Share, finite, numbers};
use super::sureness::{ScoredRows, Truth};
use crate::{Error, unusable};

/// Fewer rows do not tell a model from chance.
const TELLING: usize = 30;
/// Standard deviations by which a model must be better than with shuffled labels: chance reaches it once in a thousand.
const BEYOND_CHANCE: f64 = 3.0;

/// The sum of probabilities may differ from 1 by this.
const SUM: f64 = 1e-2;

/// A meaning that is known before the search.
#[derive(Clone, Debug, PartialEq)]
pub struct Given {
    /// The output; all if `None`.
    pub output: Option<String>,
    /// Its meaning.
    pub meaning: Meaning,
    /// Source of the meaning.
    pub source: Source,
}

/// Source of a known meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The user.
    Flag,
    /// The bundle, which an earlier version may have written.
    Bundle,
    /// The form of the model: pooled vectors of texts are embeddings.
    Texts,
}

/// The meaning of one output.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Meant {
    /// The output.
    pub output: String,
    /// Its meaning.
    pub meaning: Meaning,
    /// The reason.
    pub reason: String,
}

/// The meanings of all outputs, in the model's order.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Meanings {
    /// The meanings.
    pub outputs: Vec<Meant>,
    /// The output that labels belong to.
    #[serde(skip)]
    labelled: Option<usize>,
    /// The column of each label, if an output of labels stands next to scores.
    #[serde(skip)]
    columns: Option<BTreeMap<usize, usize>>,
}

/// Labels of rows, and the output that they belong to if the user named it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Labelled<'a> {
    pub(crate) labels: Option<&'a [usize]>,
    pub(crate) output: Option<&'a str>,
}

impl Meanings {
    /// Finds the meanings of outputs from answers.
    pub(crate) fn of(
        declared: &[Declared],
        answers: &[Tensor],
        given: &[Given],
        labelled: Labelled<'_>,
    ) -> Result<Self, Error> {
        let known = || declared.iter().map(|output| output.name.clone()).collect::<Vec<_>>().join(", ");
        let place = |name: &str| {
            let found = declared.iter().position(|output| output.name == name);
            found.ok_or_else(|| {
                Error::Unusable(format!("the model has no output '{name}': it has {}", known()))
            })
        };
        for given in given {
            given.output.as_deref().map(place).transpose()?;
        }
        let chosen = labelled.output.map(place).transpose()?;
        let mut outputs = Vec::new();
        for (at, (declared, answer)) in declared.iter().zip(answers).enumerate() {
            let own = given.iter().find(|given| given.output.as_deref() == Some(declared.name.as_str()));
            let own = own.or_else(|| given.iter().find(|given| given.output.is_none()));
            let is_labelled = chosen.is_none_or(|chosen| chosen == at);
            let (meaning, reason) = match own {
                _ if !is_float(answer) => (Meaning::Label, "it has no fractions".into()),
                Some(Given { meaning, source: Source::Flag, .. })
                    if meaning.has_classes() && columns(answer) < 2 =>
                {
                    let output = &declared.name;
                    return unusable(format!(
                        "output '{output}' has one column, whose best class is always the same, so it is not {meaning}: use \
                         --meaning {output}=decision:THRESHOLD or {output}=values"
                    ));
                }
                Some(Given { meaning, source: Source::Flag, .. }) => {
                    let doubt = doubt(&declared.name, *meaning, answer);
                    (*meaning, format!("--meaning says so{doubt}"))
                }
                Some(Given { meaning, source: Source::Texts, .. }) => {
                    (*meaning, "it is the vector of a text".into())
                }
                Some(Given { meaning, .. }) if !meaning.has_classes() || columns(answer) > 1 => {
                    (*meaning, "its bundle says so".into())
                }
                _ => found(answer, labelled.labels.filter(|_| is_labelled)),
            };
            outputs.push(Meant { output: declared.name.clone(), meaning, reason });
        }
        let first = |wanted: fn(Meaning) -> bool| outputs.iter().position(|one| wanted(one.meaning));
        let scores = first(Meaning::has_classes);
        let label = first(|meaning| meaning == Meaning::Label)
            .filter(|at| answers[*at].datatype() != DataType::Bytes);
        let decision = first(|meaning| matches!(meaning, Meaning::Decision(_)));
        let columns = match (scores, label) {
            (Some(scores), Some(label)) => columns_of(&answers[label], &answers[scores]),
            _ => None,
        };
        let found = Self { labelled: chosen.or(scores).or(label).or(decision), outputs, columns };
        found.check(answers, labelled.labels)?;
        Ok(found)
    }

    /// The same meaning for all outputs, for tests.
    #[cfg(test)]
    pub(crate) fn all(meaning: Meaning) -> Self {
        let one = Meant { output: "y".into(), meaning, reason: "given".into() };
        Self { outputs: vec![one], labelled: Some(0), columns: None }
    }

    pub(crate) fn list(&self) -> Vec<Meaning> {
        self.outputs.iter().map(|output| output.meaning).collect()
    }

    /// The meaning of the scores of classes, otherwise of the first output.
    pub(crate) fn main(&self) -> Meaning {
        let classes = self.outputs.iter().map(|output| output.meaning).find(|meaning| meaning.has_classes());
        classes.or_else(|| Some(self.outputs.first()?.meaning)).unwrap_or(Meaning::Values)
    }

    pub(crate) fn scores(&self, answers: &[Tensor]) -> ScoredRows {
        ScoredRows::of(answers, &self.list())
    }

    /// The true classes of rows to which the deployed model gives these scores.
    pub(crate) fn truth(&self, said: ScoredRows, labels: Option<&[usize]>) -> Truth {
        let of_output = self.labelled.and_then(|at| match self.outputs[at].meaning {
            meaning if meaning.has_classes() => {
                Some(self.outputs[..at].iter().filter(|before| before.meaning.has_classes()).count())
            }
            // Labels next to scores are mapped to columns of the first ones.
            Meaning::Label => self.columns.as_ref().map(|_| 0),
            _ => None,
        });
        // A label is for a row, so it is not the class of one of several positions.
        let is_single = |at: &usize| said.outputs.get(*at).is_some_and(|output| output.is_single);
        let labels = of_output.filter(is_single).zip(labels);
        Truth { labels: labels.map(|(at, labels)| (at, self.columns_of(labels))), said }
    }

    pub(crate) fn columns_of(&self, labels: &[usize]) -> Vec<usize> {
        let column = |label: &usize| match &self.columns {
            Some(columns) => columns.get(label).copied().unwrap_or(usize::MAX),
            None => *label,
        };
        labels.iter().map(column).collect()
    }

    /// For each row, whether the answer is the label. One that servers would withhold is not.
    pub(crate) fn right(&self, answers: &[Tensor], labels: &[usize]) -> Vec<bool> {
        let (said, labels) = self.said(answers, labels);
        let rows = said.iter().zip(&labels).zip(finite(answers));
        rows.map(|((said, label), is_finite)| is_finite && *said == Some(*label)).collect()
    }

    /// The class of each answer, and the labels as such classes.
    fn said(&self, answers: &[Tensor], labels: &[usize]) -> (Vec<Option<usize>>, Vec<usize>) {
        let Some((at, answer)) = self.labelled.and_then(|at| Some((at, answers.get(at)?))) else {
            return (Vec::new(), Vec::new());
        };
        let values = numbers(answer).unwrap_or_default();
        let each = (values.len() / answer.rows().max(1)).max(1);
        let rows = values.chunks(each);
        let whole = |row: &[f32]| match row {
            [value] if *value >= 0.0 && value.fract() == 0.0 => Some(*value as usize),
            _ => None,
        };
        match self.outputs[at].meaning {
            // Answers are compared as 32-bit floats.
            Meaning::Label => {
                (rows.map(whole).collect(), labels.iter().map(|label| *label as f32 as usize).collect())
            }
            Meaning::Decision(least) => {
                (rows.map(|row| Some(usize::from(row[0] >= least))).collect(), labels.to_vec())
            }
            _ => (rows.map(best).collect(), self.columns_of(labels)),
        }
    }

    /// The share of the rows on which the answers would be right if the labels were shuffled: its mean and its standard
    /// deviation over all orders of the labels.
    fn chance(&self, answers: &[Tensor], labels: &[usize]) -> (f64, f64) {
        let (said, labels) = self.said(answers, labels);
        let mut counts = BTreeMap::<usize, (f64, f64)>::new();
        said.iter().flatten().for_each(|class| counts.entry(*class).or_default().0 += 1.0);
        labels.iter().for_each(|class| counts.entry(*class).or_default().1 += 1.0);
        let rows = labels.len().max(2) as f64;
        let (mut mean, mut both) = (0.0, 0.0);
        for (p, q) in counts.values().map(|(said, labelled)| (said / rows, labelled / rows)) {
            mean += p * q;
            both += p * q * (p + q);
        }
        let variance = (mean - both + mean * mean) / (rows - 1.0);
        (mean, variance.max(0.0).sqrt())
    }

    /// Refuses labels that no output answers, that contradict the answers, or that fit them by chance only: then every
    /// accuracy would be untrue.
    ///
    /// A constant answer with the most frequent label would be too strict a measure for the last: if 99 % of the rows have one
    /// class, a good model is hardly better.
    pub(crate) fn check(&self, answers: &[Tensor], labels: Option<&[usize]>) -> Result<(), Error> {
        let Some(labels) = labels else { return Ok(()) };
        let is_choice = |at: usize| self.outputs[at].meaning.is_choice();
        if !self.labelled.is_some_and(is_choice) {
            let scores = answers.iter().find(|answer| is_float(answer) && columns(answer) > 1);
            return Err(match scores {
                Some(scores) => contradiction(Share::of(&top_is(scores, labels)), labels),
                None => Error::Unusable(
                    "labels were given, but no output is a class: use --meaning OUTPUT=decision:THRESHOLD or OUTPUT=logits"
                        .into(),
                ),
            });
        }
        let right = Share::of(&self.right(answers, labels));
        if right.high < usual(labels).low {
            return Err(contradiction(right, labels));
        }
        let (chance, spread) = self.chance(answers, labels);
        if labels.len() >= TELLING && right.value < 1.0 && right.value <= chance + BEYOND_CHANCE * spread {
            let percent = |share: f64| format!("{:.1}", 100.0 * share);
            let (right, chance) = (percent(right.value), percent(chance));
            return unusable(format!(
                "the labels do not fit the model: it is right on {right} % of the rows, on {chance} % with shuffled labels: correct \
                 the labels and their order, name their output with --label-output, or leave them out"
            ));
        }
        Ok(())
    }
}

fn contradiction(right: Share, labels: &[usize]) -> Error {
    let (right, usual) = (100.0 * right.value, 100.0 * usual(labels).value);
    Error::Unusable(format!(
        "the labels contradict the model: it is right on {right:.1} %, the most frequent label would be on {usual:.1} %: correct \
         the labels, or name their output with --label-output"
    ))
}

/// The share of the most frequent label.
fn usual(labels: &[usize]) -> Share {
    let mut counts = BTreeMap::new();
    labels.iter().for_each(|label| *counts.entry(label).or_insert(0usize) += 1);
    let most = counts.into_iter().max_by_key(|(_, count)| *count).map(|(label, _)| label);
    Share::of(&labels.iter().map(|label| Some(label) == most).collect::<Vec<_>>())
}

/// For each row, whether the column of the largest number is the label.
fn top_is(answer: &Tensor, labels: &[usize]) -> Vec<bool> {
    let values = numbers(answer).unwrap_or_default();
    let each = (values.len() / answer.rows().max(1)).max(1);
    values.chunks(each).zip(labels).map(|(row, label)| best(row) == Some(*label)).collect()
}

/// The meaning of an output of floats, with the reason.
fn found(answer: &Tensor, labels: Option<&[usize]>) -> (Meaning, String) {
    let (columns, values) = (columns(answer), numbers(answer).unwrap_or_default());
    if columns < 2 || values.is_empty() {
        return (Meaning::Values, "it has one column".into());
    }
    let sums = |of: fn(f32) -> f64, range| sum_to_one(&values, columns, of, range);
    if sums(f64::from, 0.0..=f32::INFINITY) {
        return (Meaning::Probabilities, "its rows sum to 1".into());
    }
    if sums(|value| f64::from(value).exp(), f32::NEG_INFINITY..=0.0) {
        return (Meaning::Logits, "its rows are logarithms of probabilities".into());
    }
    if let Some(labels) = labels.filter(|_| answer.shape().len() == 2) {
        let right = Share::of(&top_is(answer, labels));
        if right.low > usual(labels).value {
            let reason =
                format!("its highest score is the label on {:.1} % of the rows", 100.0 * right.value);
            return (Meaning::Logits, reason);
        }
    }
    (Meaning::Values, "its rows do not sum to 1, so it may not be classes".into())
}

/// Whether all values are in the range, and their images in each row sum to 1.
fn sum_to_one(values: &[f32], columns: usize, of: fn(f32) -> f64, range: RangeInclusive<f32>) -> bool {
    values.chunks(columns).all(|row| {
        let is_within = row.iter().all(|value| range.contains(value));
        is_within && (row.iter().map(|value| of(*value)).sum::<f64>() - 1.0).abs() < SUM
    })
}

/// A warning if scores that the user calls logits are probabilities: their softmax is nearly the same for all rows.
fn doubt(output: &str, meaning: Meaning, answer: &Tensor) -> String {
    let values = numbers(answer).unwrap_or_default();
    let is_doubtful = meaning == Meaning::Logits && !values.is_empty();
    match is_doubtful && sum_to_one(&values, columns(answer), f64::from, 0.0..=1.0) {
        true => format!(
            "; warning: all rows are in 0 to 1 and sum to 1, so they are probabilities: use --meaning {output}=probabilities"
        ),
        false => String::new(),
    }
}

/// The column that the scores prefer where an output of labels has a value, for each value.
fn columns_of(label: &Tensor, scores: &Tensor) -> Option<BTreeMap<usize, usize>> {
    if label.datatype() == DataType::Bytes || label.len() != label.rows() || scores.shape().len() != 2 {
        return None;
    }
    let (labels, values) = (numbers(label)?, numbers(scores)?);
    let mut counts: BTreeMap<usize, BTreeMap<usize, usize>> = BTreeMap::new();
    for (label, row) in labels.iter().zip(values.chunks(columns(scores))) {
        let column = best(row)?;
        *counts.entry(*label as usize).or_default().entry(column).or_default() += 1;
    }
    let most = |columns: BTreeMap<usize, usize>| columns.into_iter().max_by_key(|(_, count)| *count);
    Some(counts.into_iter().filter_map(|(label, columns)| Some((label, most(columns)?.0))).collect())
}

pub(super) fn columns(tensor: &Tensor) -> usize {
    match tensor.shape() {
        [] | [_] => 1,
        [.., last] => (*last).max(1),
    }
}

pub(super) fn is_float(tensor: &Tensor) -> bool {
    matches!(tensor.datatype(), DataType::Fp16 | DataType::Bf16 | DataType::Fp32 | DataType::Fp64)
}

#[cfg(test)]
mod tests {
    use parm_random::Random;

    use super::*;

    fn declared(name: &str) -> Declared {
        Declared { name: name.into(), datatype: DataType::Fp32, shape: vec![-1, 2] }
    }

    fn floats(columns: usize, values: &[f32]) -> Tensor {
        Tensor::from_f32([values.len() / columns, columns].as_slice(), values).unwrap()
    }

    fn whole(values: &[i64]) -> Tensor {
        let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Tensor::new(DataType::Int64, [values.len()].as_slice(), data.into()).unwrap()
    }

    fn meaning(answer: Tensor, given: &[Given], labels: Option<&[usize]>) -> Result<Meaning, Error> {
        let labelled = Labelled { labels, output: None };
        Ok(Meanings::of(&[declared("y")], &[answer], given, labelled)?.outputs[0].meaning)
    }

    #[test]
    fn scores_are_values_unless_rows_sum_to_one_or_labels_fit() {
        assert_eq!(meaning(floats(2, &[0.6, 0.4, 0.1, 0.9]), &[], None), Ok(Meaning::Probabilities));
        let scores = floats(3, &[3.1, 2.8, 2.2].repeat(40));
        assert_eq!(meaning(scores, &[], None), Ok(Meaning::Values), "three grades are no classes");
        assert_eq!(meaning(floats(1, &[0.3, 0.7]), &[], None), Ok(Meaning::Values));
        let logs: Vec<f32> = [0.6f32, 0.4, 0.1, 0.9].map(f32::ln).to_vec();
        assert_eq!(meaning(floats(2, &logs), &[], None), Ok(Meaning::Logits));
        let scores = floats(2, &[5.0, 1.0, 1.0, 5.0].repeat(40));
        let labels = [0, 1].repeat(40);
        assert_eq!(meaning(scores.clone(), &[], Some(&labels)), Ok(Meaning::Logits));
        let wrong = [1, 0].repeat(40);
        let refused = meaning(scores, &[], Some(&wrong)).unwrap_err().to_string();
        assert!(refused.contains("right on 0.0 %") && refused.contains("50.0 %"), "{refused}");
    }

    #[test]
    fn labels_that_fit_by_chance_are_refused() {
        const ROWS: usize = 600;
        let mut random = Random::of(6, [1]);
        let truth: Vec<usize> = (0..ROWS).map(|_| random.below(10)).collect();
        // The model is right on nine rows of ten.
        let mut answers = vec![0.02f32; 10 * ROWS];
        for (at, label) in truth.iter().enumerate() {
            answers[10 * at + if at.is_multiple_of(10) { (label + 1) % 10 } else { *label }] = 0.82;
        }
        let answers = floats(10, &answers);
        let meant = |labels: &[usize]| meaning(answers.clone(), &[], Some(labels));
        assert_eq!(meant(&truth), Ok(Meaning::Probabilities));
        for round in 0..20 {
            let mut permuted = truth.clone();
            (1..ROWS).rev().for_each(|at| permuted.swap(at, random.below(at + 1)));
            let drawn: Vec<usize> = (0..ROWS).map(|_| random.below(10)).collect();
            for labels in [permuted, drawn] {
                let refused = meant(&labels).map_err(|error| error.to_string()).expect_err("by chance");
                assert!(refused.contains("the labels"), "{round}: {refused}");
            }
        }
        let (half, other) = truth.split_at(ROWS / 2);
        let noisy = [half, &other.iter().rev().copied().collect::<Vec<_>>()].concat();
        assert_eq!(meant(&noisy), Ok(Meaning::Probabilities), "half of the labels fit");
    }

    #[test]
    fn labels_of_one_frequent_class_are_accepted() {
        // One row in fifty has class 1, of which the model finds half. Always saying 0 is right on 98 % too.
        let labels: Vec<usize> = (0..500).map(|at| usize::from(at % 50 == 0)).collect();
        let of = |at: usize| {
            let found = [0, 7].contains(&(at % 100));
            if found { [0.1, 0.9] } else { [0.9, 0.1] }
        };
        let answers = floats(2, &(0..500).flat_map(of).collect::<Vec<f32>>());
        assert_eq!(meaning(answers, &[], Some(&labels)), Ok(Meaning::Probabilities));
    }

    #[test]
    fn classes_of_one_column_are_refused() {
        for meaning in [Meaning::Logits, Meaning::Probabilities] {
            let given = [Given { output: None, meaning, source: Source::Flag }];
            let refused = self::meaning(floats(1, &[0.3, 0.7]), &given, None).unwrap_err();
            assert!(refused.to_string().contains("--meaning y=decision"), "{refused}");
        }
        let given = [Given { output: Some("x".into()), meaning: Meaning::Values, source: Source::Flag }];
        let refused = meaning(floats(1, &[0.3]), &given, None).unwrap_err().to_string();
        assert!(refused.contains("'x'") && refused.contains('y'), "{refused}");
    }

    #[test]
    fn logits_that_are_probabilities_are_reported_with_a_warning() {
        let given = [Given { output: None, meaning: Meaning::Logits, source: Source::Flag }];
        let reason = |values: &[f32]| {
            let answers = [floats(2, values)];
            let found = Meanings::of(&[declared("y")], &answers, &given, Labelled::default()).unwrap();
            assert_eq!(found.list(), [Meaning::Logits]);
            found.outputs[0].reason.clone()
        };
        let warned = reason(&[0.6, 0.4, 0.1, 0.9]);
        assert!(warned.contains("warning") && warned.contains("--meaning y=probabilities"), "{warned}");
        for logits in [[0.6, 0.4, 0.1, 0.8], [1.5, -0.5, 0.1, 0.9]] {
            assert_eq!(reason(&logits), "--meaning says so");
        }
    }

    #[test]
    fn label_output_maps_labels_to_columns_of_scores() {
        // Classes 7 and 3, whose scores are in the columns 1 and 0.
        let answers = [whole(&[7, 3, 7, 3]), floats(2, &[0.1, 0.9, 0.8, 0.2, 0.3, 0.7, 0.6, 0.4])];
        let outputs = [declared("label"), declared("probabilities")];
        let labels = [7, 3, 7, 7];
        let found =
            Meanings::of(&outputs, &answers, &[], Labelled { labels: Some(&labels), output: None }).unwrap();
        assert_eq!(found.list(), [Meaning::Label, Meaning::Probabilities]);
        assert_eq!(found.right(&answers, &labels), [true, true, true, false]);
        assert_eq!(found.columns_of(&labels), [1, 0, 1, 1]);
        let own = Labelled { labels: Some(&labels), output: Some("label") };
        let found = Meanings::of(&outputs, &answers, &[], own).unwrap();
        assert_eq!(found.right(&answers, &labels), [true, true, true, false]);
    }

    #[test]
    fn labels_without_classes_are_refused() {
        let labels = [0, 1];
        let refused = meaning(floats(1, &[0.3, 0.7]), &[], Some(&labels)).unwrap_err();
        assert!(refused.to_string().contains("no output is a class"), "{refused}");
        let given = [Given { output: None, meaning: Meaning::Decision(0.5), source: Source::Flag }];
        assert_eq!(meaning(floats(1, &[0.3, 0.7]), &given, Some(&labels)), Ok(Meaning::Decision(0.5)));
    }
}
