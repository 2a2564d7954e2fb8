//! The manifest of a bundle, the file `NAME/parm.toml`, and how models come into the repository: a bundle never names a
//! missing file.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use parm_encoder::CodeSpec;
use parm_protocol::DataType;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::verify::row_size;
use super::{Calibration, Meaning};
use crate::Error;
use crate::onnx::{Defect, read};
use crate::repository::{check_name, digest};

/// The manifest format of this version.
pub const FORMAT: u32 = 1;

/// Largest manifest, in bytes: default answers of large outputs need the most space.
const LARGEST: u64 = 16 << 20;

/// A bundle's manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The format: 1.
    pub format: u32,
    /// The model that answers queries.
    pub deployed: Deployed,
    /// The codes of its groups, each with its parity models; several let the policy choose k.
    #[serde(default, rename = "parity")]
    pub parities: Vec<Parity>,
    /// Cheaper models that answer queries by themselves.
    #[serde(default, rename = "stand_in", skip_serializing_if = "Vec::is_empty")]
    pub stand_ins: Vec<StandIn>,
}

impl Manifest {
    /// A manifest of the current format.
    pub fn new(deployed: Deployed) -> Self {
        Self { format: FORMAT, deployed, parities: Vec::new(), stand_ins: Vec::new() }
    }

    /// Reads a manifest.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let unreadable = |message: String| Error::Read { path: path.into(), message };
        let bytes = read(path, LARGEST).map_err(|defect| match defect {
            Defect::Read { message, .. } => unreadable(message),
            _ => unreadable(format!("it has more than {LARGEST} bytes, which no manifest has")),
        })?;
        let text = std::str::from_utf8(&bytes).map_err(|_| unreadable("it is not UTF-8".into()))?;
        Self::parse(text, path)
    }

    /// Parses a manifest's text; `path` is for messages.
    pub fn parse(text: &str, path: &Path) -> Result<Self, Error> {
        /// The one field of every format.
        #[derive(Deserialize)]
        struct Header {
            format: u32,
        }
        let malformed = |error: toml::de::Error| Error::Manifest {
            path: path.into(),
            message: error.to_string().trim_end().to_owned(),
        };
        let version: Header = toml::from_str(text).map_err(malformed)?;
        if version.format != FORMAT {
            return Err(Error::ManifestFormat { path: path.into(), format: version.format, known: FORMAT });
        }
        toml::from_str(text).map_err(malformed)
    }

    /// The manifest as text.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every field has a form in TOML")
    }

    /// Writes the manifest atomically: a reader never sees a partial file.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        write(path, self.to_toml().as_bytes())
    }

    /// The stand-in of the lowest cost; of those with equal cost, the one that agrees most often.
    pub fn cheapest(&self) -> Option<&StandIn> {
        let key = |stand_in: &StandIn| {
            (stand_in.cost().unwrap_or(f64::INFINITY), -stand_in.agreement.unwrap_or(0.0))
        };
        let order = |a: &(f64, f64), b: &(f64, f64)| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1));
        self.stand_ins.iter().min_by(|a, b| order(&key(a), &key(b)))
    }

    /// Checks the deployed model's numbers, without opening any file. Each problem is a sentence with the remedy.
    pub fn check(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for input in &self.deployed.inputs {
            if let Some(Range { low, high }) = input.range
                && !(low.is_finite() && high.is_finite() && low < high)
            {
                let name = &input.name;
                problems.push(format!(
                    "invalid range of input '{name}', {low} to {high}: give the smallest and the largest value"
                ));
            }
        }
        let inputs = self.deployed.inputs.iter().map(|input| (&input.name, &input.shape));
        let outputs = self.deployed.outputs.iter().map(|output| (&output.name, &output.shape));
        let odd = inputs.chain(outputs).filter(|(_, shape)| shape.iter().any(|size| *size < -1));
        problems.extend(odd.map(|(tensor, shape)| {
            format!("tensor '{tensor}' has shape {shape:?}: give -1 for sizes that vary, and none below")
        }));
        for output in &self.deployed.outputs {
            if let (Some(answer), Some(wanted)) = (&output.default_answer, row_size(&output.shape))
                && answer.len() != wanted
            {
                let (output, actual) = (&output.name, answer.len());
                problems.push(format!(
                    "the default answer of output '{output}' has {actual} values, expected {wanted} as in a prediction"
                ));
            }
        }
        problems
    }
}

/// The model that answers queries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deployed {
    /// The version for which the parity models were trained. Another version requires new ones.
    pub version: u64,
    /// SHA-256 of that version's model file, in hexadecimal.
    pub sha256: String,
    /// Its inputs.
    pub inputs: Vec<Input>,
    /// Its outputs.
    pub outputs: Vec<Output>,
    /// The preprocessing of raw values before they are sent, for clients and loaders; the server does none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preprocessing: Option<Preprocessing>,
}

/// An input tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Its name.
    pub name: String,
    /// Its element type, such as `FP32`.
    #[serde(with = "text")]
    pub datatype: DataType,
    /// Its dimensions, the batch first; -1 for dynamic ones.
    pub shape: Vec<i64>,
    /// The range of values in training. A query outside it is served alone, since it could spoil the answers of its
    /// group. Default: any finite value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<Range>,
}

/// An output tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// Its name.
    pub name: String,
    /// Its element type, such as `FP32`.
    #[serde(with = "text")]
    pub datatype: DataType,
    /// Its dimensions, the batch first; -1 for dynamic ones.
    pub shape: Vec<i64>,
    /// The meaning of the values, which decides how confidence is computed. Default `logits`.
    #[serde(default)]
    pub meaning: Meaning,
    /// The answer for one query that has no other answer by its deadline. Default: none, the query fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_answer: Option<Vec<f32>>,
}

/// A closed range of values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// The smallest value.
    pub low: f32,
    /// The largest value.
    pub high: f32,
}

/// Normalisation: `(raw * scale - mean) / deviation`, channel by channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Preprocessing {
    /// Factor on raw values, such as 1/255 for bytes. Default 1.
    pub scale: f32,
    /// Subtracted per channel; a single value applies to all. Default 0.
    pub mean: Vec<f32>,
    /// Divisor per channel; a single value applies to all. Default 1.
    pub deviation: Vec<f32>,
}

impl Default for Preprocessing {
    fn default() -> Self {
        Self { scale: 1.0, mean: vec![0.0], deviation: vec![1.0] }
    }
}

/// Serialises datatypes by their names in the protocol.
mod text {
    use super::*;

    pub(super) fn serialize<S: Serializer>(datatype: &DataType, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(datatype.as_str())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DataType, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A code, its parity models, and their measured properties.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parity {
    /// The code.
    pub code: CodeSpec,
    /// One parity model for each of the r parities. None if the deployed model serves the parities.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<ModelFile>,
    /// Encoder and decoder of a learned code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learned: Option<Learned>,
    /// Its training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training: Option<Training>,
    /// Its accuracy on held-out data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<Accuracy>,
    /// The calibration of its reconstructions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
}

/// A model of the repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelFile {
    /// Its name in the repository.
    pub name: String,
    /// Its version.
    pub version: u64,
    /// SHA-256 of its model file, in hexadecimal.
    pub sha256: String,
}

/// The models of a learned code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Learned {
    /// Encodes k queries into r coded queries.
    pub encoder: ModelFile,
    /// Decodes k + r outputs, with zeros for lost ones, into k predictions.
    pub decoder: ModelFile,
}

impl Parity {
    /// The number of parity models that the code needs in addition to the deployed one.
    pub fn models_wanted(&self) -> usize {
        if self.code.kind.has_parity_models() { self.code.r } else { 0 }
    }

    /// All models of the repository that it names.
    pub fn files(&self) -> impl Iterator<Item = &ModelFile> {
        let learned = self.learned.iter().flat_map(|learned| [&learned.encoder, &learned.decoder]);
        self.models.iter().chain(learned)
    }

    /// Checks its numbers, without opening any file.
    pub fn check(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let (wanted, named) = (self.models_wanted(), self.models.len());
        if wanted != named {
            problems.push(format!(
                "code {} needs {wanted} parity models, the manifest names {named}: correct [[parity.models]]",
                self.code.kind
            ));
        }
        if self.code.kind.runs_nets() != self.learned.is_some() {
            let problem = "a learned code needs an encoder and a decoder, other codes must have none: check [parity.learned]";
            problems.push(problem.into());
        }
        problems.extend(self.calibration.and_then(|calibration| calibration.check()));
        let fractions = self.accuracy.iter().flat_map(|accuracy| {
            let overall = accuracy.overall.iter();
            let overall = overall.flat_map(|at| [("unavailable", at.unavailable), ("overall", at.overall)]);
            let measured = [("available", accuracy.available), ("degraded", accuracy.degraded)];
            measured.into_iter().chain(overall)
        });
        problems.extend(fractions.filter_map(|(what, value)| not_a_fraction(what, value)));
        problems
    }
}

fn not_a_fraction(what: &str, value: f64) -> Option<String> {
    let problem = || format!("invalid fraction, {what} is {value}: give a number from 0 to 1");
    (!(0.0..=1.0).contains(&value)).then(problem)
}

/// The training of a parity: enough to repeat it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Training {
    /// The command line.
    pub command: String,
    /// Program and version.
    pub tool: String,
    /// The data set.
    pub dataset: String,
    /// Inputs from which groups were drawn.
    pub samples: u64,
    /// Groups drawn in an epoch.
    pub groups_per_epoch: u64,
    /// Epochs.
    pub epochs: u64,
    /// Seed.
    pub seed: u64,
    /// The loss.
    pub loss: String,
    /// The initial weights.
    pub start: Start,
    /// Other remarks, such as lossy data.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// The initial weights of a parity model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// The deployed model's weights.
    #[default]
    Deployed,
    /// Random weights.
    Scratch,
}

/// Accuracies on held-out data, as fractions of 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accuracy {
    /// The metric, such as `top-1` or `mean IoU`.
    pub metric: String,
    /// Accuracy of predictions (A_a in the paper).
    pub available: f64,
    /// Accuracy of reconstructions (A_d).
    pub degraded: f64,
    /// Accuracy of all answers for some fractions of unavailable predictions (A_o).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overall: Vec<Scores>,
    /// Accuracy of the best constant answer. Reconstructions must be better than this to be useful.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constant_answer: Option<f64>,
    /// Accuracy of a backup model with 1/k of the cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<f64>,
    /// Number of measured reconstructions.
    #[serde(default)]
    pub reconstructions: u64,
}

/// The accuracy of all answers if some are reconstructions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scores {
    /// Fraction of predictions that are unavailable.
    pub unavailable: f64,
    /// Accuracy of all answers.
    pub overall: f64,
}

/// A cheaper model with the deployed model's inputs and outputs, and its measured properties.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StandIn {
    /// The model.
    pub model: ModelFile,
    /// Its origin, such as the command that made it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub provenance: String,
    /// Share of held-out inputs for which it agrees with the deployed model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreement: Option<f64>,
    /// Its accuracy on held-out data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<StandInAccuracy>,
    /// The calibration of its answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// Its cost, by engine and processor. A worker of another kind measures the cost when it loads the models.
    #[serde(default, rename = "cost", skip_serializing_if = "Vec::is_empty")]
    pub costs: Vec<MeasuredCost>,
}

/// Accuracies on held-out data, as fractions of 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StandInAccuracy {
    /// The metric, such as `top-1`.
    pub metric: String,
    /// Accuracy of the deployed model's predictions.
    pub deployed: f64,
    /// Accuracy of the stand-in's answers.
    pub stand_in: f64,
}

/// The run time of a stand-in, as a share of that of one query on the deployed model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredCost {
    /// The engine, such as `tract`.
    pub engine: String,
    /// The processor. Frontends prefer this cost to the one that a worker of the same processor measures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<String>,
    /// The cost of 1, 2, 4 and 8 rows.
    pub rows: [f64; 4],
}

impl StandIn {
    /// The lowest measured cost of a single row, on any engine.
    pub fn cost(&self) -> Option<f64> {
        self.costs.iter().map(|cost| cost.rows[0]).min_by(f64::total_cmp)
    }

    /// Checks its numbers.
    pub fn check(&self) -> Vec<String> {
        let name = &self.model.name;
        let fraction = |what: &str, value| not_a_fraction(&format!("{what} of stand-in '{name}'"), value);
        let mut problems: Vec<String> =
            self.agreement.iter().filter_map(|value| fraction("the agreement", *value)).collect();
        if let Some(accuracy) = &self.accuracy {
            problems.extend(fraction("the accuracy", accuracy.stand_in));
            problems.extend(fraction("the deployed model's accuracy next to it", accuracy.deployed));
        }
        problems.extend(self.calibration.and_then(|calibration| calibration.check()));
        let bad = |cost: &&MeasuredCost| !cost.rows.iter().all(|share| share.is_finite() && *share > 0.0);
        problems.extend(self.costs.iter().filter(bad).map(|cost| {
            let engine = &cost.engine;
            format!(
                "invalid cost of stand-in '{name}' on engine {engine}: give numbers above 0 for 1, 2, 4 and 8 rows"
            )
        }));
        problems
    }
}

/// The most versions that are searched for a free number.
const MAX_VERSIONS: u64 = 10_000;

/// A file next to a model: its path in the folder of the version, and its content.
pub type Beside = (PathBuf, Vec<u8>);

/// Writes a model into the repository, as a new version unless one has the same contents. The files next to it come first:
/// a server that reads the model finds them.
pub fn put_model(root: &Path, name: &str, model: &[u8], beside: &[Beside]) -> Result<ModelFile, Error> {
    check_name(name)?;
    for version in 1..MAX_VERSIONS {
        let folder = root.join(name).join(version.to_string());
        let path = folder.join("model.onnx");
        let found = fs::read(&path).ok();
        if found.is_none() && !folder.exists() {
            for (path, bytes) in beside
                .iter()
                .map(|(file, bytes)| (folder.join(file), &bytes[..]))
                .chain([(path.clone(), model)])
            {
                let failed =
                    |error: std::io::Error| Error::Write { path: path.clone(), message: error.to_string() };
                fs::create_dir_all(path.parent().unwrap_or(root)).map_err(failed)?;
                write(&path, bytes)?;
            }
        } else if found.as_deref() != Some(model) {
            continue;
        }
        return Ok(ModelFile { name: name.into(), version, sha256: digest(&path)? });
    }
    Err(Error::Write { path: root.join(name), message: "it has too many versions".into() })
}

/// Writes a temporary file next to `path` and renames it when it is complete: a full disk leaves the old file.
fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::Write { path: path.into(), message: error.to_string() };
    let draft = path.with_extension(format!("{}.part", std::process::id()));
    let written = fs::File::create(&draft).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    let moved = written.and_then(|()| fs::rename(&draft, path));
    moved.inspect_err(|_| _ = fs::remove_file(&draft)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_is_stored_once_and_another_gets_a_new_version() {
        let folder = tempfile::tempdir().unwrap();
        let put = |bytes: &[u8]| put_model(folder.path(), "m", bytes, &[]).unwrap();
        let first = put(b"one");
        assert_eq!((first.version, put(b"two").version, put(b"one")), (1, 2, first));
        assert!(put_model(folder.path(), "../m", b"one", &[]).is_err());
        let beside = [("1_Pooling/config.json".into(), b"{}".to_vec())];
        put_model(folder.path(), "t", b"one", &beside).unwrap();
        assert_eq!(fs::read(folder.path().join("t/1/1_Pooling/config.json")).unwrap(), b"{}");
    }
}
