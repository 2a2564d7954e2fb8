//! Publishes models: writes model files first, then the manifest that names them, each atomically. So a bundle never
//! names a missing file, even after an interruption.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use parm_encoder::{CodeSpec, Head};
use parm_parity_models::bundle::{
    Accuracy, Calibration, Deployed, Input, Learned, Manifest, Meaning, ModelFile, Output, Parity, Range,
    StandIn, StandInAccuracy, Training, put_model,
};
use parm_parity_models::onnx::{Limits, Model, Value};

use crate::Error;
use crate::data::Samples;

/// A deployed model and its repository.
#[derive(Clone, Debug)]
pub struct Publication<'a> {
    /// The repository's folder.
    pub root: &'a Path,
    /// The deployed model's name.
    pub name: &'a str,
    /// Its file; added to the repository if it is missing.
    pub deployed: &'a [u8],
    /// The meaning of its output.
    pub meaning: Meaning,
    /// The rows of the training, for the range of the inputs.
    pub samples: &'a Samples,
}

/// A code in a bundle.
#[derive(Clone, Debug)]
pub struct CodeRecord<'a> {
    /// The code.
    pub code: &'a CodeSpec,
    /// The training of its models.
    pub training: Training,
    /// Its measured accuracy; `None` for errors, where lower is better.
    pub accuracy: Option<Accuracy>,
    /// The calibration of reconstructions.
    pub calibration: Option<Calibration>,
}

/// A stand-in in a bundle.
#[derive(Clone, Debug)]
pub struct StandInRecord {
    /// The command that made it.
    pub provenance: String,
    /// How often it agrees with the deployed model.
    pub agreement: Option<f64>,
    /// Its measured accuracy; `None` for errors, where lower is better.
    pub accuracy: Option<StandInAccuracy>,
    /// The calibration of its answers.
    pub calibration: Option<Calibration>,
}

/// Writes a code and its parity models to the repository and returns the manifest's path. An entry of the same code
/// is replaced.
pub fn publish(
    publication: &Publication<'_>,
    entry: &CodeRecord<'_>,
    models: &[Bytes],
) -> Result<PathBuf, Error> {
    let stem = stem(publication, entry);
    let several = models.len() > 1;
    let models = models.iter().enumerate().map(|(at, model)| {
        let name = if several { format!("{stem}-{}", at + 1) } else { stem.clone() };
        publish_base(publication.root, &name, model)
    });
    let models = models.collect::<Result<_, _>>()?;
    add(publication, entry, models, None)
}

/// Writes a learned code to the repository, like [`publish`].
pub fn publish_learned(
    publication: &Publication<'_>,
    entry: &CodeRecord<'_>,
    encoder: &Bytes,
    decoder: &Bytes,
) -> Result<PathBuf, Error> {
    let stem = stem(publication, entry);
    let put = |part: &str, model: &Bytes| publish_base(publication.root, &format!("{stem}-{part}"), model);
    let learned = Learned { encoder: put("encoder", encoder)?, decoder: put("decoder", decoder)? };
    add(publication, entry, Vec::new(), Some(learned))
}

/// Writes a stand-in to the repository as `NAME-stand-in` and returns the manifest's path. An entry of that name is
/// replaced.
pub fn publish_stand_in(
    publication: &Publication<'_>,
    record: &StandInRecord,
    model: &Bytes,
) -> Result<PathBuf, Error> {
    let model = publish_base(publication.root, &format!("{}-stand-in", publication.name), model)?;
    let (path, mut manifest) = open(publication)?;
    let StandInRecord { provenance, agreement, accuracy, calibration } = record.clone();
    manifest.stand_ins.retain(|other| other.model.name != model.name);
    manifest.stand_ins.push(StandIn {
        model,
        provenance,
        agreement,
        accuracy,
        calibration,
        costs: Vec::new(),
    });
    manifest.write(&path)?;
    Ok(path)
}

fn stem(publication: &Publication<'_>, entry: &CodeRecord<'_>) -> String {
    format!("{}-{}", publication.name, label(entry.code))
}

/// The manifest with this entry, which replaces one of the same code.
fn add(
    publication: &Publication<'_>,
    entry: &CodeRecord<'_>,
    models: Vec<ModelFile>,
    learned: Option<Learned>,
) -> Result<PathBuf, Error> {
    let (path, mut manifest) = open(publication)?;
    let parity = Parity {
        code: entry.code.clone(),
        models,
        learned,
        training: Some(entry.training.clone()),
        accuracy: entry.accuracy.clone(),
        calibration: entry.calibration,
    };
    manifest.parities.retain(|other| label(&other.code) != label(&parity.code));
    manifest.parities.push(parity);
    manifest.write(&path)?;
    Ok(path)
}

/// The bundle's existing manifest or a new one, and its path; adds the deployed model to the repository.
fn open(publication: &Publication<'_>) -> Result<(PathBuf, Manifest), Error> {
    let deployed = publish_base(publication.root, publication.name, publication.deployed)?;
    let path = publication.root.join(publication.name).join("parm.toml");
    let found = if path.exists() { Some(Manifest::read(&path)?) } else { None };
    // Models for another version of the deployed model are invalid for this one.
    let found = found.filter(|manifest| manifest.deployed.sha256 == deployed.sha256);
    let manifest = match found {
        Some(manifest) => manifest,
        None => Manifest::new(describe(publication, &deployed)?),
    };
    Ok((path, manifest))
}

/// Writes a model to the repository, as a new version unless one holds the same file.
pub fn publish_base(root: &Path, name: &str, model: &[u8]) -> Result<ModelFile, Error> {
    Ok(put_model(root, name, model, &[])?)
}

/// The name that distinguishes a code from others of the bundle.
fn label(code: &CodeSpec) -> String {
    let head = match code.head {
        Some(Head::Sum) => "-sum",
        _ => "",
    };
    let parities = if code.r > 1 { format!("r{}", code.r) } else { String::new() };
    format!("{}{head}-k{}{parities}", code.kind, code.k)
}

fn describe(publication: &Publication<'_>, file: &ModelFile) -> Result<Deployed, Error> {
    let model = Model::from_bytes(publication.deployed.to_vec(), &Limits::default())?;
    let graph = model.graph()?;
    let Samples { inputs: rows, parts, .. } = publication.samples;
    // The rows give the sizes of a single input; with several, sizes may vary, such as the length of a text and its
    // mask.
    let known = if parts.count() == 1 { rows.shape() } else { &[] };
    let inputs = graph.inputs.iter().zip(parts.ranges(rows)).map(|(input, (low, high))| {
        let datatype = input.datatype.to_protocol().ok_or_else(|| untyped(input))?;
        Ok(Input {
            name: input.name.clone(),
            datatype,
            shape: shape(input, known)?,
            range: (low < high).then_some(Range { low, high }),
        })
    });
    let outputs = graph.outputs.iter().map(|output| {
        let datatype = output.datatype.to_protocol().ok_or_else(|| untyped(output))?;
        let (name, shape) = (output.name.clone(), shape(output, &[])?);
        Ok(Output { name, datatype, shape, meaning: publication.meaning, default_answer: None })
    });
    Ok(Deployed {
        version: file.version,
        sha256: file.sha256.clone(),
        inputs: inputs.collect::<Result<_, Error>>()?,
        outputs: outputs.collect::<Result<_, Error>>()?,
        preprocessing: None,
    })
}

/// A declared shape, with varying sizes replaced by those of the data if they are known.
fn shape(value: &Value, known: &[usize]) -> Result<Vec<i64>, Error> {
    let mut shape = value.protocol_shape().ok_or_else(|| untyped(value))?;
    for (dim, &size) in shape.iter_mut().zip(known).skip(1) {
        *dim = if *dim < 0 { size as i64 } else { *dim };
    }
    Ok(shape)
}

fn untyped(value: &Value) -> Error {
    Error::Setting {
        message: format!(
            "'{}' has a type or shape that cannot be served: export the model again",
            value.name
        ),
    }
}
