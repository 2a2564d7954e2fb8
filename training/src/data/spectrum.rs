//! Log-mel spectra and cepstral coefficients, the usual pictures of speech.
//!
//! Windows of 25 ms every 10 ms, Hann-weighted, padded to a power of two. Triangular bands, evenly spaced on the mel
//! scale (2595 log10(1 + f / 700)) from 20 Hz to half the sampling rate, each with peak 1. The natural logarithm of
//! the band's power, floored at 1e-6. Cepstral coefficients are the first of the orthonormal cosine transform
//! (DCT-II) of a window's bands.

use std::f32::consts::PI;
use std::sync::Arc;

use realfft::{RealFftPlanner, RealToComplex};

const LOWEST_HZ: f32 = 20.0;
const FLOOR: f32 = 1e-6;

/// The contents of a picture.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpectrumShape {
    /// Samples per second.
    pub(super) rate: u32,
    /// Mel bands.
    pub(super) bands: usize,
    /// Number of cepstral coefficients; `None` gives the bands.
    pub(super) cepstrum: Option<usize>,
}

/// Makes pictures of sounds of one sampling rate.
pub(super) struct Spectrum {
    shape: SpectrumShape,
    window: Vec<f32>,
    step: usize,
    transform: Arc<dyn RealToComplex<f32>>,
    /// Weights of each band on the powers of frequencies.
    filters: Vec<Vec<f32>>,
}

impl Spectrum {
    pub(super) fn new(shape: SpectrumShape) -> Self {
        let length = (shape.rate as usize / 40).max(2);
        let padded = length.next_power_of_two();
        let window = (0..length).map(|at| 0.5 - 0.5 * (2.0 * PI * at as f32 / length as f32).cos());
        Self {
            shape,
            window: window.collect(),
            step: (shape.rate as usize / 100).max(1),
            transform: RealFftPlanner::new().plan_fft_forward(padded),
            filters: filters(shape, padded),
        }
    }

    pub(super) fn rate(&self) -> u32 {
        self.shape.rate
    }

    /// The picture of a sound: `[1, bands or coefficients, windows]` and its values.
    pub(super) fn picture(&self, sound: &[f32]) -> ([usize; 3], Vec<f32>) {
        let windows = 1 + sound.len().saturating_sub(self.window.len()) / self.step;
        let columns: Vec<Vec<f32>> = (0..windows).map(|at| self.column(sound, at * self.step)).collect();
        let height = self.shape.cepstrum.unwrap_or(self.shape.bands);
        let values = (0..height).flat_map(|row| columns.iter().map(move |column| column[row]));
        ([1, height, windows], values.collect())
    }

    /// One window's bands or coefficients.
    fn column(&self, sound: &[f32], start: usize) -> Vec<f32> {
        let mut samples = self.transform.make_input_vec();
        let part = sound[start.min(sound.len())..].iter().zip(&self.window);
        samples.iter_mut().zip(part).for_each(|(out, (sample, weight))| *out = sample * weight);
        let mut frequencies = self.transform.make_output_vec();
        self.transform.process(&mut samples, &mut frequencies).expect("both were made for this transform");
        let powers: Vec<f32> = frequencies.iter().map(|value| value.norm_sqr()).collect();
        let band = |filter: &Vec<f32>| {
            let power: f32 = filter.iter().zip(&powers).map(|(weight, power)| weight * power).sum();
            power.max(FLOOR).ln()
        };
        let bands: Vec<f32> = self.filters.iter().map(band).collect();
        match self.shape.cepstrum {
            Some(count) => cosine_transform(&bands, count),
            None => bands,
        }
    }
}

fn filters(shape: SpectrumShape, padded: usize) -> Vec<Vec<f32>> {
    let mel = |hertz: f32| 2595.0 * (1.0 + hertz / 700.0).log10();
    let highest = shape.rate as f32 / 2.0;
    let (low, high) = (mel(LOWEST_HZ), mel(highest));
    let corner = |at: usize| low + (high - low) * at as f32 / (shape.bands + 1) as f32;
    let frequency = |bin: usize| bin as f32 * shape.rate as f32 / padded as f32;
    let weight = |band: usize, bin: usize| {
        let (left, peak, right) = (corner(band), corner(band + 1), corner(band + 2));
        let at = mel(frequency(bin));
        ((at - left) / (peak - left)).min((right - at) / (right - peak)).max(0.0)
    };
    (0..shape.bands).map(|band| (0..=padded / 2).map(|bin| weight(band, bin)).collect()).collect()
}

/// The first `count` coefficients of the orthonormal DCT-II.
fn cosine_transform(values: &[f32], count: usize) -> Vec<f32> {
    let n = values.len() as f32;
    let coefficient = |order: usize| {
        let angle = |at: usize| PI / n * (at as f32 + 0.5) * order as f32;
        let sum: f32 = values.iter().enumerate().map(|(at, value)| value * angle(at).cos()).sum();
        sum * if order == 0 { (1.0 / n).sqrt() } else { (2.0 / n).sqrt() }
    };
    (0..count).map(coefficient).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(hertz: f32) -> Vec<f32> {
        (0..8000).map(|at| (2.0 * PI * hertz * at as f32 / 8000.0).sin()).collect()
    }

    fn loudest(hertz: f32) -> usize {
        let spectrum = Spectrum::new(SpectrumShape { rate: 8000, bands: 40, cepstrum: None });
        let ([1, 40, windows], values) = spectrum.picture(&tone(hertz)) else { panic!("another shape") };
        assert_eq!(windows, 98);
        let level = |band: &usize| values[band * windows + windows / 2];
        (0..40).max_by(|a, b| level(a).total_cmp(&level(b))).unwrap()
    }

    #[test]
    fn tone_is_loudest_in_its_band() {
        // Band b peaks at the (b + 1)th of 41 steps from 20 to 4000 Hz in mel: 31.7 to 2146.1.
        let band =
            |hertz: f32| (2595.0 * (1.0 + hertz / 700.0).log10() - 31.7) / (2146.1 - 31.7) * 41.0 - 1.0;
        for hertz in [300.0, 1000.0, 3000.0] {
            let expected = band(hertz);
            assert!(
                (loudest(hertz) as f32 - expected).abs() < 1.0,
                "{hertz} Hz: {} {expected}",
                loudest(hertz)
            );
        }
    }

    #[test]
    fn cosine_transform_keeps_the_energy() {
        let values: Vec<f32> = (0..13).map(|at| (at * at % 7) as f32 - 3.0).collect();
        let energy = |values: &[f32]| values.iter().map(|value| value * value).sum::<f32>();
        assert!((energy(&cosine_transform(&values, 13)) - energy(&values)).abs() < 1e-3);
        let flat = cosine_transform(&[2.0; 16], 3);
        assert!((flat[0] - 8.0).abs() < 1e-5 && flat[1].abs() < 1e-5 && flat[2].abs() < 1e-5, "{flat:?}");
    }
}
