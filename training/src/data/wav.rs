//! Recordings as pictures of their spectra.
//!
//! Every recording is cut or padded with silence to one length, around its middle: words are usually spoken there.

use std::collections::BTreeSet;
use std::path::Path;

use hound::{SampleFormat, WavReader};

use super::file::{self, Limit};
use super::folder::{self, Labelled, Rows};
use super::options::Options;
use super::spectrum::{Spectrum, SpectrumShape};
use super::{Samples, Unusable};

/// The features of a recording.
pub(super) struct Features {
    /// Number of mel-frequency cepstral coefficients; `None` gives mel bands.
    cepstrum: Option<usize>,
    bands: usize,
    seconds: f64,
}

impl Features {
    pub(super) fn read(options: &Options) -> Result<Self, Unusable> {
        let refuse =
            |name: &str, message: &str| Err(Unusable::Setting { name: name.into(), message: message.into() });
        let bands = options.get("bands", "a whole number")?.unwrap_or(40);
        let coefficients = options.get("coefficients", "a whole number")?.unwrap_or(13);
        let seconds = options.get("seconds", "a number of seconds")?.unwrap_or(1.0);
        if !(1..=256).contains(&bands) {
            return refuse("bands", "use 1 to 256 bands");
        }
        if !(1..=bands).contains(&coefficients) {
            return refuse("coefficients", "use at least 1 and at most as many as bands");
        }
        if !(0.05..=60.0).contains(&seconds) {
            return refuse("seconds", "use 0.05 to 60 seconds");
        }
        let cepstrum = match options.text("features").as_deref() {
            None | Some("mel") => None,
            Some("mfcc") => Some(coefficients),
            Some(_) => return refuse("features", "use mel or mfcc"),
        };
        Ok(Self { cepstrum, bands, seconds })
    }
}

pub(super) fn read(folder: &Path, features: &Features, limit: Limit) -> Result<Samples, Unusable> {
    let mut rows = Rows::new(limit);
    let mut spectrum: Option<Spectrum> = None;
    for (path, class) in recordings(folder)? {
        let (rate, sound) = sound(&path, limit)?;
        let same = spectrum.as_ref().filter(|known| known.rate() == rate);
        let spectrum = match (same.is_some(), spectrum.as_ref()) {
            (true, Some(known)) => known,
            (_, Some(other)) => {
                let detail = format!("{rate} samples per second, but other files have {}", other.rate());
                return Err(Unusable::Format { path, expected: "a recording like the others", detail });
            }
            (_, None) => {
                let Features { cepstrum, bands, .. } = *features;
                spectrum.insert(Spectrum::new(SpectrumShape { rate, bands, cepstrum }))
            }
        };
        let length = (features.seconds * f64::from(rate)).round() as usize;
        let (dims, values) = spectrum.picture(&centred(&sound, length));
        rows.add(&path, &dims, &values)?;
        rows.labels.push(class);
    }
    rows.finish()
}

/// Recordings in folders by class, or in one folder with names like `CLASS_whatever.wav`.
fn recordings(folder: &Path) -> Result<Vec<Labelled>, Unusable> {
    let files = folder::with_ending(folder, &["wav"])?;
    if files.is_empty() {
        return folder::classes(folder, &["wav"]);
    }
    let class = |path: &Path| -> Result<String, Unusable> {
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        let detail = "its name is not of the form CLASS_whatever.wav".to_owned();
        match name.split_once('_') {
            Some((class, _)) if !class.is_empty() => Ok(class.to_owned()),
            _ => Err(Unusable::Format { path: path.into(), expected: "a labelled recording", detail }),
        }
    };
    let names: Vec<String> = files.iter().map(|path| class(path)).collect::<Result<_, _>>()?;
    let classes: Vec<&String> = names.iter().collect::<BTreeSet<_>>().into_iter().collect();
    let number = |name: &String| classes.binary_search(&name).expect("every name is a class");
    let numbers: Vec<usize> = names.iter().map(number).collect();
    Ok(files.into_iter().zip(numbers).collect())
}

/// Samples per second, and the samples in -1..1, all channels averaged.
fn sound(path: &Path, limit: Limit) -> Result<(u32, Vec<f32>), Unusable> {
    let content = file::read(path, limit)?;
    let format = |detail: String| Unusable::Format { path: path.into(), expected: "a wav recording", detail };
    let failed = |error: hound::Error| format(error.to_string());
    let mut reader = WavReader::new(&content[..]).map_err(failed)?;
    let spec = reader.spec();
    if !(1000..=384_000).contains(&spec.sample_rate) || spec.channels == 0 {
        return Err(format(format!(
            "unsupported: {} samples per second on {} channels",
            spec.sample_rate, spec.channels
        )));
    }
    if !(1..=32).contains(&spec.bits_per_sample) {
        return Err(format(format!(
            "unsupported: samples of {} bits: save it with 16",
            spec.bits_per_sample
        )));
    }
    let samples: Vec<f32> = match spec.sample_format {
        SampleFormat::Float => reader.samples::<f32>().collect::<Result<_, _>>().map_err(failed)?,
        SampleFormat::Int => {
            let scale = 1.0 / (1_i64 << (spec.bits_per_sample - 1)) as f32;
            let samples = reader.samples::<i32>().map(|sample| sample.map(|sample| sample as f32 * scale));
            samples.collect::<Result<_, _>>().map_err(failed)?
        }
    };
    if !samples.iter().all(|sample| sample.is_finite()) {
        // Its spectrum would be silence.
        return Err(format("it has a sample that is not a finite number".into()));
    }
    let channels = usize::from(spec.channels);
    let mean = |frame: &[f32]| frame.iter().sum::<f32>() / channels as f32;
    Ok((spec.sample_rate, samples.chunks_exact(channels).map(mean).collect()))
}

/// The middle `length` samples, padded with silence on both sides.
fn centred(sound: &[f32], length: usize) -> Vec<f32> {
    if sound.len() >= length {
        return sound[(sound.len() - length) / 2..][..length].to_vec();
    }
    let mut filled = vec![0.0; length];
    filled[(length - sound.len()) / 2..][..sound.len()].copy_from_slice(sound);
    filled
}
