//! Agreement: the share of rows for which a candidate gives the deployed model's answer.

use std::collections::BTreeMap;

use parm_parity_models::bundle::{Meaning, TOLERANCE, best, cosine, distance, floats};
use parm_protocol::{DataType, Tensor};
use serde::Serialize;

use super::meanings::{columns, is_float};

/// Probabilities below this are treated as equal.
const UNLIKELY: f32 = 1e-6;
/// The quantile of the normal distribution for 95 % intervals.
const Z: f64 = 1.96;

/// A share of the rows, or a difference of two, with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Share {
    /// The share.
    pub value: f64,
    /// The interval's lower bound.
    pub low: f64,
    /// The interval's upper bound.
    pub high: f64,
}

impl Share {
    /// The share of `true` (Wilson's interval, which holds near 0 and 1).
    pub(crate) fn of(judged: &[bool]) -> Self {
        let count = judged.len().max(1) as f64;
        let value = judged.iter().filter(|same| **same).count() as f64 / count;
        let spread = Z * Z / count;
        let middle = (value + spread / 2.0) / (1.0 + spread);
        let half = Z * (value * (1.0 - value) / count + spread / count / 4.0).sqrt() / (1.0 + spread);
        Self { value, low: (middle - half).max(0.0), high: (middle + half).min(1.0) }
    }

    /// How much more often the deployed model is right, or agrees, than the other on the same rows. Rows on which both are
    /// right, or both wrong, do not affect it, so the interval is far narrower than those of the shares. Half a row more on
    /// either side keeps it valid if few rows differ (Agresti and Min).
    pub(crate) fn gap(deployed: &[bool], other: &[bool]) -> Self {
        let count = |wanted: (bool, bool)| {
            deployed.iter().zip(other).filter(|(a, b)| (**a, **b) == wanted).count() as f64
        };
        let (only_deployed, only_other, rows) =
            (count((true, false)), count((false, true)), deployed.len() as f64);
        let (more, less, all) = (only_deployed + 0.5, only_other + 0.5, rows + 2.0);
        let middle = (more - less) / all;
        let half = Z * ((more + less - (more - less).powi(2) / all).max(0.0)).sqrt() / all;
        Self { value: (only_deployed - only_other) / rows.max(1.0), low: middle - half, high: middle + half }
    }

    /// In percent with so many decimals, followed by the unit and the interval.
    pub(crate) fn percent(&self, decimals: usize, unit: &str) -> String {
        let [value, low, high] = [self.value, self.low, self.high].map(|share| 100.0 * share);
        format!("{value:.decimals$}{unit} ({low:.decimals$}-{high:.decimals$})")
    }
}

/// How a model's answers compare with the deployed model's on the same rows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Share of the rows on which it agrees with the deployed model.
    pub agreement: Share,
    /// How far its numbers are from the deployed model's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
    /// Share of the rows on which it agrees with the labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<Share>,
    /// The mean cosine between its outputs and the deployed model's, if these are embeddings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cosine: Option<f64>,
    /// The share of ten nearest neighbours that it keeps, if outputs are embeddings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub neighbours: Option<f64>,
}

impl Comparison {
    /// Compares answers; `same` tells for each row whether they agree, and `right` whether they are the label.
    pub(crate) fn of(
        (deployed, other): (&[Tensor], &[Tensor]),
        meanings: &[Meaning],
        (same, right): (&[bool], Option<&[bool]>),
    ) -> Self {
        Self {
            agreement: Share::of(same),
            difference: difference(deployed, other),
            accuracy: right.map(Share::of),
            cosine: mean_cosine(deployed, other, meanings),
            neighbours: neighbours_kept(deployed, other, meanings),
        }
    }
}

/// For each row, whether two models agree in every output. Outputs without a meaning are values.
pub(crate) fn judge(deployed: &[Tensor], other: &[Tensor], meanings: &[Meaning]) -> Vec<bool> {
    let rows = deployed.first().map_or(0, Tensor::rows);
    let mut same = vec![deployed.len() == other.len(); rows];
    for (at, (a, b)) in deployed.iter().zip(other).enumerate() {
        let meaning = meanings.get(at).copied().unwrap_or(Meaning::Values);
        let is_alike = alike(a, b, meaning);
        same.iter_mut().zip(is_alike).for_each(|(same, alike)| *same &= alike);
    }
    same
}

/// For each row, whether all its floats are finite. Servers withhold other answers of a stand-in.
pub(crate) fn finite(answers: &[Tensor]) -> Vec<bool> {
    let mut finite = vec![true; answers.first().map_or(0, Tensor::rows)];
    for answer in answers {
        let Some(values) = floats(answer) else { continue };
        let each = (values.len() / answer.rows().max(1)).max(1);
        let is_finite = |row: &[f32]| row.iter().all(|value| value.is_finite());
        finite.iter_mut().zip(values.chunks(each)).for_each(|(finite, row)| *finite &= is_finite(row));
    }
    finite
}

fn alike(a: &Tensor, b: &Tensor, meaning: Meaning) -> Vec<bool> {
    let rows = a.rows();
    if a.datatype() != b.datatype() || a.shape() != b.shape() {
        return vec![false; rows];
    }
    let Some((a_values, b_values)) = floats(a).zip(floats(b)) else {
        let row = |at: usize| a.slice_rows(at, 1).ok() == b.slice_rows(at, 1).ok();
        return (0..rows).map(row).collect();
    };
    let each = (a_values.len() / rows.max(1)).max(1);
    let pairs = a_values.chunks(each).zip(b_values.chunks(each));
    pairs.map(|(a_row, b_row)| meaning.agree(a_row, b_row, columns(a), TOLERANCE)).collect()
}

/// The numbers of a tensor; `None` for strings.
pub(super) fn numbers(tensor: &Tensor) -> Option<Vec<f32>> {
    parm_arrays::numbers(tensor).map(|numbers| numbers.map(|number| number as f32).collect())
}

/// The mean cosine between all embeddings; `None` if there are none.
fn mean_cosine(deployed: &[Tensor], other: &[Tensor], meanings: &[Meaning]) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0usize);
    for (a, b) in embeddings(deployed, other, meanings) {
        let (Some(a_values), Some(b_values)) = (floats(a), floats(b)) else { continue };
        for (a, b) in a_values.chunks(columns(a)).zip(b_values.chunks(columns(a))) {
            sum += f64::from(cosine(a, b));
            count += 1;
        }
    }
    (count > 0).then(|| sum / count as f64)
}

fn embeddings<'a>(
    deployed: &'a [Tensor],
    other: &'a [Tensor],
    meanings: &'a [Meaning],
) -> impl Iterator<Item = (&'a Tensor, &'a Tensor)> {
    let all = deployed.iter().zip(other).zip(meanings);
    all.filter(|(_, meaning)| **meaning == Meaning::Embedding).map(|(pair, _)| pair)
}

/// Neighbours of a row, and the most rows among which they are searched.
const NEIGHBOURS: usize = 10;
const MOST_NEIGHBOURS: usize = 1_000;

/// The share of a row's ten nearest rows by the deployed model's embeddings that the other model's keep; `None` without
/// embeddings of whole rows, or with too few rows.
fn neighbours_kept(deployed: &[Tensor], other: &[Tensor], meanings: &[Meaning]) -> Option<f64> {
    let (a, b) = embeddings(deployed, other, meanings)
        .find(|(a, b)| a.shape().len() == 2 && a.shape() == b.shape())?;
    let rows = a.rows().min(MOST_NEIGHBOURS);
    if rows <= 2 * NEIGHBOURS {
        return None;
    }
    let (a, b) = (nearest(&floats(a)?, columns(a), rows), nearest(&floats(b)?, columns(b), rows));
    let kept = a.iter().zip(&b).map(|(a, b)| a.iter().filter(|row| b.contains(row)).count()).sum::<usize>();
    Some(kept as f64 / (rows * NEIGHBOURS) as f64)
}

/// The nearest rows of each row by cosine.
fn nearest(values: &[f32], size: usize, rows: usize) -> Vec<Vec<usize>> {
    let units: Vec<Vec<f32>> = values.chunks(size).take(rows).map(unit).collect();
    let closest = |(at, own): (usize, &Vec<f32>)| {
        let product = |other: &Vec<f32>| own.iter().zip(other).map(|(a, b)| a * b).sum::<f32>();
        let mut others: Vec<(f32, usize)> = units
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != at)
            .map(|(at, one)| (product(one), at))
            .collect();
        others.select_nth_unstable_by(NEIGHBOURS - 1, |a, b| b.0.total_cmp(&a.0));
        others.into_iter().take(NEIGHBOURS).map(|(_, at)| at).collect()
    };
    units.iter().enumerate().map(closest).collect()
}

fn unit(row: &[f32]) -> Vec<f32> {
    let length = row.iter().map(|value| value * value).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
    row.iter().map(|value| value / length).collect()
}

/// How far the numbers of two models are apart, in the unit of the outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Difference {
    /// The mean absolute difference of two numbers.
    pub mean: f64,
    /// The largest.
    pub largest: f64,
    /// Rows that are left out, since servers withhold such an answer: it has floats that are not finite. If all have, both
    /// differences are infinite.
    #[serde(skip_serializing_if = "is_none")]
    pub left_out: usize,
}

fn is_none(count: &usize) -> bool {
    *count == 0
}

/// The differences of all outputs of floats; `None` if there are none.
fn difference(deployed: &[Tensor], other: &[Tensor]) -> Option<Difference> {
    let served: Vec<bool> = finite(deployed).into_iter().zip(finite(other)).map(|(a, b)| a && b).collect();
    let left_out = served.iter().filter(|is_served| !**is_served).count();
    let (mut sum, mut count, mut largest, mut has_floats) = (0.0, 0usize, 0.0f64, false);
    for (a, b) in deployed.iter().zip(other) {
        let Some((a_values, b_values)) = floats(a).zip(floats(b)) else { continue };
        let each = (a_values.len() / a.rows().max(1)).max(1);
        let rows = a_values.chunks(each).zip(b_values.chunks(each)).zip(&served);
        has_floats |= !a_values.is_empty();
        for ((a, b), _) in rows.filter(|(_, is_served)| **is_served) {
            for (a, b) in a.iter().zip(b) {
                let apart = f64::from((a - b).abs());
                sum += apart;
                count += 1;
                largest = largest.max(apart);
            }
        }
    }
    let found = match count {
        0 => Difference { mean: f64::INFINITY, largest: f64::INFINITY, left_out },
        _ => Difference { mean: sum / count as f64, largest, left_out },
    };
    has_floats.then_some(found)
}

/// The number of different answers, and for each row whether a constant answer agrees with it: the most frequent choice,
/// and the mean of all outputs without a choice.
pub(crate) fn constant(deployed: &[Tensor], meanings: &[Meaning]) -> (usize, Vec<bool>) {
    let deployed: Vec<Tensor> = deployed.iter().map(as_compared).collect();
    let rows = deployed.first().map_or(0, Tensor::rows);
    let mut keys: Vec<Vec<Vec<u8>>> = vec![Vec::new(); rows];
    for (at, output) in deployed.iter().enumerate() {
        let meaning = meanings.get(at).copied().unwrap_or(Meaning::Values);
        choices(output, meaning).into_iter().flatten().zip(&mut keys).for_each(|(key, keys)| keys.push(key));
    }
    let mut counts: BTreeMap<&Vec<Vec<u8>>, usize> = BTreeMap::new();
    keys.iter().for_each(|key| *counts.entry(key).or_default() += 1);
    let usual = counts.iter().max_by_key(|(_, count)| **count).map(|(key, _)| (*key).clone());
    let usual = keys.iter().position(|key| Some(key) == usual.as_ref()).unwrap_or(0);
    let said: Vec<Tensor> = deployed
        .iter()
        .enumerate()
        .map(|(at, output)| {
            let meaning = meanings.get(at).copied().unwrap_or(Meaning::Values);
            let repeated = || {
                let row = output.slice_rows(usual, 1).ok()?;
                Tensor::concat_rows(&vec![row; rows]).ok()
            };
            if meaning.is_choice() || !is_float(output) { repeated() } else { mean(output) }
                .unwrap_or_else(|| output.clone())
        })
        .collect();
    (counts.len(), judge(&deployed, &said, meanings))
}

/// The output with its floats as FP32, as `judge` reads them: a mean has no other type.
fn as_compared(output: &Tensor) -> Tensor {
    let values = floats(output).filter(|_| output.datatype() != DataType::Fp32);
    let read = values.and_then(|values| Tensor::from_f32(output.shape(), &values).ok());
    read.unwrap_or_else(|| output.clone())
}

/// A key of each row of an output whose answer is one of a few.
fn choices(output: &Tensor, meaning: Meaning) -> Option<Vec<Vec<u8>>> {
    let rows = output.rows();
    let Some(values) = floats(output) else {
        let row = |at: usize| output.slice_rows(at, 1).ok().map(|row| row.data().to_vec());
        return (0..rows).map(row).collect();
    };
    let each = (values.len() / rows.max(1)).max(1);
    let of = |row: &[f32]| -> Vec<u8> {
        match meaning {
            Meaning::Decision(least) => row.iter().map(|value| u8::from(*value >= least)).collect(),
            Meaning::Label => row.iter().flat_map(|value| value.to_le_bytes()).collect(),
            _ => row
                .chunks(columns(output))
                .flat_map(|scores| best(scores).unwrap_or(0).to_le_bytes())
                .collect(),
        }
    };
    meaning.is_choice().then(|| values.chunks(each).map(of).collect())
}

/// The mean of all rows as FP32, in the place of each.
fn mean(output: &Tensor) -> Option<Tensor> {
    let (rows, values) = (output.rows(), floats(output)?);
    let each = values.len() / rows.max(1);
    let mut sums = vec![0f64; each];
    for row in values.chunks(each.max(1)) {
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += f64::from(*value) / rows as f64);
    }
    let row: Vec<f32> = sums.into_iter().map(|sum| sum as f32).collect();
    Tensor::from_f32(output.shape(), &row.repeat(rows)).ok()
}

/// The mean distance between two models' outputs, relative to their size. Scores and probabilities of classes are
/// compared by what decides between the classes: scores less their mean, which for probabilities are their
/// logarithms. Labels and texts count only if no output has floats: then the share of a row's values that differ counts.
pub(crate) fn mean_distance(deployed: &[Tensor], other: &[Tensor], meanings: &[Meaning]) -> f64 {
    let (mut sum, mut count) = (0.0, 0);
    for (at, (a, b)) in deployed.iter().zip(other).enumerate() {
        let (Some(a_values), Some(b_values)) = (floats(a), floats(b)) else { continue };
        let each = (a.len() / a.rows().max(1)).max(1);
        let (classes, meaning) = (columns(a), meanings.get(at).copied().unwrap_or(Meaning::Values));
        let (a_values, b_values) = (scores(&a_values, classes, meaning), scores(&b_values, classes, meaning));
        for (a, b) in a_values.chunks(each).zip(b_values.chunks(each)) {
            sum += f64::from(distance(a, b));
            count += 1;
        }
    }
    match count {
        0 => share_of_unequal(deployed, other),
        _ => sum / f64::from(count),
    }
}

/// The mean share of a row's values that differ; infinite without values.
fn share_of_unequal(deployed: &[Tensor], other: &[Tensor]) -> f64 {
    let rows = |(a, b): (&Tensor, &Tensor)| -> Vec<f64> {
        let count = a.rows().min(b.rows());
        if a.datatype() != b.datatype() || a.shape().get(1..) != b.shape().get(1..) {
            return vec![1.0; count];
        }
        let Some((a_values, b_values)) = parm_arrays::numbers(a).zip(parm_arrays::numbers(b)) else {
            let is_unequal = |at| a.slice_rows(at, 1).ok() != b.slice_rows(at, 1).ok();
            return (0..count).map(|at| f64::from(u8::from(is_unequal(at)))).collect();
        };
        let each = a.len() / a.rows().max(1);
        let unequal: Vec<bool> = a_values.zip(b_values).map(|(a, b)| a != b).collect();
        let share = |row: &[bool]| row.iter().filter(|is| **is).count() as f64 / row.len() as f64;
        unequal.chunks(each.max(1)).map(share).collect()
    };
    let all: Vec<f64> = deployed.iter().zip(other).flat_map(rows).collect();
    if all.is_empty() { f64::INFINITY } else { all.iter().sum::<f64>() / all.len() as f64 }
}

/// The numbers that decide between classes.
fn scores(values: &[f32], classes: usize, meaning: Meaning) -> Vec<f32> {
    let scores: Vec<f32> = match meaning {
        Meaning::Values | Meaning::Decision(_) | Meaning::Label => return values.to_vec(),
        Meaning::Embedding => return values.chunks(classes).flat_map(unit).collect(),
        Meaning::Logits => values.to_vec(),
        // `f32::max` would turn NaN into a number.
        Meaning::Probabilities => {
            values.iter().map(|&value| if value < UNLIKELY { UNLIKELY.ln() } else { value.ln() }).collect()
        }
    };
    let centred = |row: &[f32]| {
        let mean = row.iter().sum::<f32>() / row.len() as f32;
        row.iter().map(|score| score - mean).collect::<Vec<f32>>()
    };
    scores.chunks(classes).flat_map(centred).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(values: &[f32]) -> Vec<Tensor> {
        vec![Tensor::from_f32([values.len() / 2, 2].as_slice(), values).unwrap()]
    }

    #[test]
    fn agreement_depends_on_the_meaning_of_values() {
        let (a, b) = (rows(&[0.6, 0.4, 0.1, 0.9]), rows(&[0.9, 0.1, 0.6, 0.4]));
        assert_eq!(judge(&a, &b, &[Meaning::Probabilities]), [true, false]);
        assert_eq!(judge(&a, &b, &[Meaning::Values]), [false, false]);
        assert_eq!(judge(&a, &a, &[Meaning::Values]), [true, true]);
        assert_eq!(judge(&a, &[], &[Meaning::Values]), [false, false]);
    }

    #[test]
    fn interval_narrows_with_the_number_of_rows() {
        let few = Share::of(&[true; 50]);
        assert_eq!(few.value, 1.0);
        assert!(few.low > 0.9 && few.low < 0.95 && few.high == 1.0, "{few:?}");
        let many = Share::of(&[[true; 99].as_slice(), &[false]].concat().repeat(20));
        assert!(many.low > 0.984 && many.low < 0.99 && many.high < 0.995, "{many:?}");
    }

    #[test]
    fn distance_is_of_what_decides_and_infinite_to_nan() {
        let apart = |a: &[f32], b: &[f32], meaning| mean_distance(&rows(a), &rows(b), &[meaning]);
        assert!(apart(&[2.0, 1.0], &[7.0, 6.0], Meaning::Logits) < 1e-6, "a common offset");
        assert!(apart(&[1.0, 2.0], &[10.0, 20.0], Meaning::Embedding) < 1e-5, "the length");
        let [logarithms, plain] = [Meaning::Probabilities, Meaning::Values]
            .map(|meaning| apart(&[0.9, 0.1], &[0.99, 0.01], meaning));
        assert!(logarithms > 4.0 * plain, "{logarithms} {plain}");
        for meaning in [Meaning::Values, Meaning::Logits, Meaning::Probabilities] {
            assert_eq!(apart(&[1.0, 0.0], &[f32::NAN, 0.0], meaning), f64::INFINITY, "{meaning:?}");
        }
        assert_eq!(apart(&[2.0, 0.0], &[1.0, 0.0], Meaning::Values), 0.5);
    }

    #[test]
    fn distance_of_labels_is_the_share_that_differs() {
        let of = |labels: &[i64], columns: usize| {
            let data: Vec<u8> = labels.iter().flat_map(|label| label.to_le_bytes()).collect();
            vec![
                Tensor::new(DataType::Int64, [labels.len() / columns, columns].as_slice(), data.into())
                    .unwrap(),
            ]
        };
        let apart = |a: &[Tensor], b: &[Tensor]| mean_distance(a, b, &[Meaning::Label]);
        let said = of(&[1, 2, 3, 4], 1);
        assert_eq!(apart(&said, &said), 0.0);
        assert_eq!(apart(&said, &of(&[1, 2, 0, 4], 1)), 0.25);
        assert_eq!(apart(&said, &of(&[0, 2], 1)), 0.5, "of fewer rows");
        assert_eq!(apart(&of(&[1, 2, 3, 4], 2), &of(&[1, 0, 3, 4], 2)), 0.25);
        assert_eq!(apart(&said, &of(&[1, 2, 3, 4], 2)), 1.0, "in another form");
        assert_eq!(apart(&[], &[]), f64::INFINITY);
    }

    #[test]
    fn constant_answer_is_the_most_frequent_choice_or_the_mean() {
        let said = rows(&[[0.9, 0.1].repeat(6), [0.2, 0.8].repeat(4)].concat());
        let (answers, same) = constant(&said, &[Meaning::Probabilities]);
        assert_eq!((answers, Share::of(&same).value), (2, 0.6));
        // Grades that are nearly the same for all rows: a constant answer is within 5 % of each.
        let grades = rows(&[3.0, 4.0, 3.05, 4.05, 2.95, 3.95]);
        assert_eq!(constant(&grades, &[Meaning::Values]), (1, vec![true; 3]));
        let decisions = vec![Tensor::from_f32([4, 1].as_slice(), &[0.1, 0.2, 0.3, 0.9]).unwrap()];
        assert_eq!(constant(&decisions, &[Meaning::Decision(0.5)]).1, [true, true, true, false]);
    }

    #[test]
    fn constant_answer_is_the_mean_for_each_type_of_floats() {
        let values = [-3.0f32, 4.0, 0.5, -1.0, 2.0, 7.0];
        let of =
            |datatype, bytes: Vec<u8>| vec![Tensor::new(datatype, [3, 2].as_slice(), bytes.into()).unwrap()];
        let halves = values.iter().flat_map(|value| half::f16::from_f32(*value).to_le_bytes()).collect();
        let doubles = values.iter().flat_map(|value| f64::from(*value).to_le_bytes()).collect();
        let doubles = of(DataType::Fp64, doubles);
        // The first of two outputs agrees with a constant answer, the second does not.
        let two = [rows(&[0.9, 0.1].repeat(3)), doubles.clone()].concat();
        for said in [rows(&values), of(DataType::Fp16, halves), doubles, two] {
            let meanings = [Meaning::Values, Meaning::Values];
            assert_eq!(constant(&said, &meanings), (1, vec![false; 3]), "{said:?}");
        }
    }

    #[test]
    fn neighbours_kept_falls_when_embeddings_move() {
        let of = |turn: f32| {
            let values: Vec<f32> =
                (0..64).flat_map(|at| [(at as f32 * turn).cos(), (at as f32 * turn).sin()]).collect();
            rows(&values)
        };
        let kept = |a: f32, b: f32| neighbours_kept(&of(a), &of(b), &[Meaning::Embedding]);
        assert_eq!(kept(0.1, 0.1), Some(1.0));
        assert!(kept(0.1, 2.0).unwrap() < 0.6, "{:?}", kept(0.1, 2.0));
        assert_eq!(neighbours_kept(&of(0.1), &of(0.1), &[Meaning::Values]), None);
    }

    #[test]
    fn difference_leaves_out_rows_that_servers_withhold() {
        let label = Tensor::new(DataType::Int64, [3, 1].as_slice(), vec![0; 24].into()).unwrap();
        let of = |values: &[f32]| vec![label.clone(), rows(values).remove(0)];
        let said = of(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let found = difference(&said, &of(&[1.0, 2.5, f32::NAN, 9.0, 5.0, 6.5])).unwrap();
        assert_eq!(found, Difference { mean: 0.25, largest: 0.5, left_out: 1 });
        assert_eq!(difference(&said, &said), Some(Difference::default()));
        let all = difference(&rows(&[1.0, 2.0]), &rows(&[1.0, f32::NAN])).unwrap();
        assert_eq!(all.largest, f64::INFINITY, "all rows are withheld");
        assert_eq!(difference(std::slice::from_ref(&label), std::slice::from_ref(&label)), None);
    }

    #[test]
    fn only_rows_that_differ_make_the_interval_wide() {
        let deployed = [[true; 900].as_slice(), &[false; 100]].concat();
        let same = Share::gap(&deployed, &deployed);
        assert!(same.value == 0.0 && same.high < 0.003 && same.low > -0.003, "{same:?}");
        let mut other = deployed.clone();
        other[..20].fill(false);
        other[900..910].fill(true);
        let gap = Share::gap(&deployed, &other);
        // 30 of 1,000 rows differ: 1.0 points, and 1.96 * sqrt(31 / 1000^2) around it.
        assert!((gap.value - 0.010).abs() < 1e-12, "{gap:?}");
        assert!((gap.high - gap.low - 2.0 * 0.0109).abs() < 3e-4, "{gap:?}");
        assert_eq!(Share::gap(&[], &[]).value, 0.0);
    }
}
