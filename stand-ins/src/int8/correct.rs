//! Corrects biases for the mean error of an 8-bit copy.
//!
//! Rounded weights and cut ranges shift each output by a mean error over rows. That error is measured on calibration
//! rows and subtracted in the bias, which costs nothing. Each layer is compared with its own 8-bit copy on the values
//! of the 32-bit graph: no layer is corrected for another layer's error, one pass measures all layers, and the effect
//! of one layer's error on the next is small once its mean is zero. For a layer of which only maxima are read, the
//! maxima are compared.
//!
//! A mean over few rows is itself noisy. It is shrunk by its expected value under chance, from the variance between
//! rows.

use std::collections::BTreeMap;

use parm_parity_models::onnx::rewrite::{Draft, Names};
use parm_parity_models::onnx::{Attribute, Tensor as OnnxTensor};
use parm_protocol::Tensor;

use super::points::{Layer, to_maxima};
use super::write::{Layout, lay_out, lighten, pair, step};
use super::{Cuts, Ranges};
use crate::Error;
use crate::graph::{Links, add_bias, probe};
use crate::memory::COMPARED;
use crate::rows::Rows;
use crate::workshop::{Progress, Workshop};

/// The operator version from which reductions read their axes as an input.
const MEANS_READ_AXES: i64 = 18;
/// Rows per run, if their values fit the memory.
const TOGETHER: usize = 4;

/// A layer in 32 bits and its copy in 8.
struct Pair {
    at: usize,
    /// The value with the differences: the mean per row and channel, which the graph computes itself, as the full
    /// values of a large network fill the memory; for maxima, all differences.
    apart: String,
    channels: usize,
    /// Whether channels are the last axis; otherwise they follow the rows.
    is_last: bool,
}

/// The graph in 32 bits with biases that cancel the mean error of its 8-bit copy.
pub(crate) fn correct(
    workshop: &Workshop,
    draft: &Draft,
    (rows, progress): (&Rows, &dyn Progress),
    (ranges, cuts): (&Ranges, &Cuts),
) -> Result<Draft, Error> {
    let mut aside = draft.clone();
    let pairs = compare(&mut aside, ranges, cuts)?;
    aside.sort();
    let values: Vec<String> = pairs.iter().map(|pair| pair.apart.clone()).collect();
    let mut runner = workshop.load("biases", probe(&aside, &values)?.bytes())?;
    let mut means: Vec<Vec<Mean>> = pairs.iter().map(|pair| vec![Mean::default(); pair.channels]).collect();
    runner.run_all(rows, (workshop.together(TOGETHER, COMPARED), progress), |_, made| {
        let mut layers = pairs.iter().zip(&mut means).zip(&made);
        layers.try_for_each(|((pair, means), apart)| add(means, pair, apart))
    })?;
    let mut corrected = draft.clone();
    for (pair, means) in pairs.iter().zip(&means) {
        let shift: Vec<f32> = means.iter().map(|mean| mean.shrunk() as f32).collect();
        if shift.iter().any(|value| *value != 0.0) {
            add_bias(&mut corrected, pair.at, &shift)?;
        }
    }
    corrected.sort();
    Ok(corrected)
}

/// Adds an 8-bit copy of every layer, with the same input as the layer.
fn compare(aside: &mut Draft, ranges: &Ranges, cuts: &Cuts) -> Result<Vec<Pair>, Error> {
    let links = Links::of(aside);
    let Layout { layers, mappings } = lay_out(aside, &links, ranges, cuts)?;
    let mut rounded: BTreeMap<String, String> = BTreeMap::new();
    let mut pairs = Vec::new();
    for layer in layers {
        let (Some(read), Some(made)) =
            (aside.nodes[layer.at].at(0), aside.nodes[layer.at].only_output().map(str::to_owned))
        else {
            continue;
        };
        let (read, mapping) = (read.to_owned(), &mappings[read]);
        let name = match rounded.get(&read) {
            Some(name) => name.clone(),
            None => pair(aside, &read, mapping),
        };
        rounded.insert(read.clone(), name.clone());
        let channels = aside.constants[&aside.nodes[layer.at].input[1]].dims()[layer.axis];
        let is_last = !aside.nodes[layer.at].is(&["Conv"]);
        // The path to the maxima behind the layer is repeated behind the copy.
        let maxima = to_maxima(aside, &links, &made);
        let whole = maxima.last().and_then(|&at| aside.nodes[at].only_output()).unwrap_or(&made).to_owned();
        let places: Vec<usize> = std::iter::once(layer.at).chain(maxima.iter().copied()).collect();
        let copy = Layer { at: aside.nodes.len(), ..layer.clone() };
        let mut names = Names::from([(read, name)]);
        let copies = aside.copy(&places, ("copy", false), &mut names)?;
        aside.nodes.extend(copies);
        let scale = step(aside, mapping)?;
        lighten(aside, &copy, (scale, cuts.steps))?;
        let mut apart = aside.fresh(&format!("{whole}/apart"));
        let difference = aside.make("Sub", &[&whole, &names[&whole]], &apart, []);
        aside.nodes.push(difference);
        if maxima.is_empty() {
            apart = means_of(aside, &apart, (channels, is_last))?;
        }
        pairs.push(Pair { at: layer.at, apart, channels, is_last });
    }
    Ok(pairs)
}

/// Adds the means of a value per row and channel.
fn means_of(aside: &mut Draft, value: &str, (channels, is_last): (usize, bool)) -> Result<String, Error> {
    let sizes = if is_last { [0, -1, channels as i64] } else { [0, channels as i64, -1] };
    let sizes = aside.add_constant(OnnxTensor::from_i64(&format!("{value}/sizes"), &[3], &sizes)?);
    let (flat, means) = (aside.fresh(&format!("{value}/flat")), aside.fresh(&format!("{value}/means")));
    let reshape = aside.make("Reshape", &[value, &sizes], &flat, []);
    let mut mean = aside.make("ReduceMean", &[&flat], &means, [("keepdims", Attribute::Int(0))]);
    aside.give(&mut mean, "axes", &[if is_last { 1 } else { 2 }], MEANS_READ_AXES)?;
    aside.nodes.extend([reshape, mean]);
    Ok(means)
}

/// Adds the mean differences of each row, channel by channel.
fn add(means: &mut [Mean], pair: &Pair, apart: &Tensor) -> Result<(), Error> {
    let (values, count) = (apart.as_f32()?, pair.channels);
    let each = values.len() / apart.rows().max(1);
    // Maxima may have lost the axes behind the channels, or before them.
    let axes: Vec<usize> = (1..apart.shape().len()).filter(|&axis| apart.shape()[axis] == count).collect();
    let axis = if pair.is_last { axes.last() } else { axes.first() };
    let Some(&axis) = axis else { return Ok(()) };
    let inner: usize = apart.shape()[axis + 1..].iter().product();
    for row in values.chunks(each) {
        let mut sums = vec![0.0f64; count];
        for (place, value) in row.iter().enumerate() {
            sums[place / inner % count] += f64::from(*value);
        }
        let share = count as f64 / each as f64;
        means.iter_mut().zip(sums).for_each(|(mean, sum)| mean.add(sum * share));
    }
    Ok(())
}

/// A mean and its standard error.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Mean {
    fn add(&mut self, value: f64) {
        if value.is_finite() {
            self.count += 1.0;
            self.sum += value;
            self.squares += value * value;
        }
    }

    /// The mean, shrunk by its expected size under chance.
    fn shrunk(self) -> f64 {
        if self.count < 2.0 {
            return 0.0;
        }
        let mean = self.sum / self.count;
        let variance = (self.squares / self.count - mean * mean).max(0.0) / (self.count - 1.0);
        let square = mean * mean;
        if square <= variance { 0.0 } else { mean * (1.0 - variance / square) }
    }
}

#[cfg(test)]
mod tests {
    use parm_parity_models::onnx::{Builder, Dense, Model, Value};

    use super::*;
    use crate::int8::{gather, quantise};
    use crate::testing::{Alone, Stage};

    const OUTPUTS: usize = 5;

    fn product() -> Model {
        let mut builder = Builder::new("product", 7);
        let x = builder.input(Value::batch_of_f32("x", &[24]));
        builder.dense("y", &x, Dense { inputs: 24, outputs: OUTPUTS }).unwrap();
        builder.output(Value::batch_of_f32("y", &[OUTPUTS]));
        builder.build().unwrap()
    }

    #[test]
    fn corrected_biases_cancel_the_mean_rounding_error() {
        let (stage, model) = (Stage::new(), product());
        // Non-negative inputs: then rounded weights shift all rows in the same direction.
        let values: Vec<f32> = parm_random::Random::new(5)
            .normals(64 * 24)
            .iter()
            .map(|value| 1.0 + 0.1 * value.abs())
            .collect();
        let rows =
            stage.rows(&model, &[parm_protocol::Tensor::from_f32([64, 24].as_slice(), &values).unwrap()]);
        let draft = Draft::new(&model).unwrap();
        let (ranges, cuts) = (gather(&stage.workshop, &draft, &rows, &Alone).unwrap(), Cuts::of(0.0));
        let said = stage.answers(&model, &rows);
        let off = |draft: &Draft| {
            let copy = quantise(draft, &ranges, &cuts).unwrap().unwrap();
            let answers = stage.answers(&copy.finish().unwrap(), &rows);
            let mut sums = [0.0f32; OUTPUTS];
            for (place, (a, b)) in said.iter().zip(&answers).enumerate() {
                sums[place % OUTPUTS] += a - b;
            }
            sums.iter().map(|sum| sum.abs()).sum::<f32>()
        };
        let corrected = correct(&stage.workshop, &draft, (&rows, &Alone), (&ranges, &cuts)).unwrap();
        let (before, after) = (off(&draft), off(&corrected));
        assert!(before > 0.0 && after < 0.1 * before, "{before} became {after}");
    }

    #[test]
    fn noisy_mean_is_shrunk() {
        let mean = |values: &[f64]| {
            let mut mean = Mean::default();
            values.iter().for_each(|value| mean.add(*value));
            mean.shrunk()
        };
        assert_eq!(mean(&[1.0; 20]), 1.0);
        assert_eq!(mean(&[5.0, -4.9, 5.0, -5.0]), 0.0);
        assert_eq!(mean(&[3.0]), 0.0);
        let unsure = mean(&[1.0, 3.0, 2.0, f64::NAN, 0.0]);
        assert!(unsure > 0.9 && unsure < 1.4, "{unsure}");
    }
}
