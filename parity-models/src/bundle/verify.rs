//! Checks the files of a bundle against its manifest: what a model reads and answers, and the problems found.
//!
//! A problem is a sentence with the remedy, because nothing but people acts on it.

use parm_encoder::{Code, Element, Input as CodedInput};
use parm_protocol::{DataType, ModelMetadata, TensorMetadata};
use serde::Serialize;

use super::{Deployed, Manifest, ModelFile, Parity, StandIn};
use crate::Error;
use crate::onnx::{Inspection, Limits, Model, Value};
use crate::repository::{Repository, Version};

/// Inputs and outputs of a model, in the protocol's form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signature {
    /// Inputs.
    pub inputs: Vec<TensorMetadata>,
    /// Outputs.
    pub outputs: Vec<TensorMetadata>,
}

impl From<&Inspection> for Signature {
    fn from(report: &Inspection) -> Self {
        let tensor = |value: &Value| TensorMetadata {
            name: value.name.clone(),
            datatype: value.datatype.to_string(),
            shape: value.protocol_shape().unwrap_or_default(),
        };
        let [inputs, outputs] =
            [&report.inputs, &report.outputs].map(|side| side.iter().map(tensor).collect());
        Self { inputs, outputs }
    }
}

impl From<&ModelMetadata> for Signature {
    fn from(model: &ModelMetadata) -> Self {
        Self { inputs: model.inputs.clone(), outputs: model.outputs.clone() }
    }
}

impl From<&Deployed> for Signature {
    fn from(deployed: &Deployed) -> Self {
        let tensor = |name: &str, datatype: DataType, shape: &[i64]| TensorMetadata {
            name: name.into(),
            datatype: datatype.to_string(),
            shape: shape.into(),
        };
        let inputs = deployed.inputs.iter().map(|one| tensor(&one.name, one.datatype, &one.shape));
        let outputs = deployed.outputs.iter().map(|one| tensor(&one.name, one.datatype, &one.shape));
        Self { inputs: inputs.collect(), outputs: outputs.collect() }
    }
}

/// Whether two declarations can describe one tensor: -1 agrees with any size.
fn agree(one: &TensorMetadata, other: &TensorMetadata) -> bool {
    let dims = one.shape.iter().zip(&other.shape);
    one.datatype == other.datatype
        && one.shape.len() == other.shape.len()
        && dims.into_iter().all(|(a, b)| a == b || *a < 0 || *b < 0)
}

/// Values in a row, if all dimensions after the batch are fixed.
pub(super) fn row_size(shape: &[i64]) -> Option<usize> {
    shape.iter().skip(1).try_fold(1usize, |size, &dim| size.checked_mul(usize::try_from(dim).ok()?))
}

/// The output of `parm models verify`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The deployed model's name.
    pub model: String,
    /// Problems of the deployed model or the manifest; any of them makes all parities unusable.
    pub problems: Vec<String>,
    /// The parities, in the manifest's order.
    pub parities: Vec<ParityReport>,
    /// The stand-ins, in the manifest's order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stand_ins: Vec<StandInReport>,
}

/// The result for a code of a bundle.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ParityReport {
    /// The code, such as `slots k=2 r=1`.
    pub code: String,
    /// Names of its models.
    pub models: Vec<String>,
    /// The problems found.
    pub problems: Vec<String>,
}

/// The result for a stand-in of a bundle.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StandInReport {
    /// The model's name.
    pub model: String,
    /// Its measured cost, as a share of a query on the deployed model.
    pub cost: Option<f64>,
    /// Its measured agreement with the deployed model.
    pub agreement: Option<f64>,
    /// The problems found.
    pub problems: Vec<String>,
}

impl Report {
    /// Whether no problem was found.
    pub fn is_sound(&self) -> bool {
        let parities = self.parities.iter().map(|parity| &parity.problems);
        let stand_ins = self.stand_ins.iter().map(|stand_in| &stand_in.problems);
        self.problems.is_empty() && parities.chain(stand_ins).all(Vec::is_empty)
    }
}

/// Checks the bundle of the deployed model `name` against the files of the repository: digests, versions, tensors,
/// numbers. Fails if there is nothing to check against, because the manifest is missing or unreadable.
pub fn verify(repository: &Repository, name: &str) -> Result<Report, Error> {
    let model = repository.model(name)?;
    let Some(path) = &model.bundle else {
        return Err(Error::NoBundle { name: name.into(), root: repository.root().into() });
    };
    let manifest = Manifest::read(path)?;
    let deployed = &manifest.deployed;
    let file = ModelFile { name: name.into(), version: deployed.version, sha256: deployed.sha256.clone() };
    let mut problems = manifest.check();
    let signature = Signature::from(deployed);
    match tensors(repository, &file) {
        Ok(tensors) => problems.extend(tensors.iter().flat_map(|own| lacking(name, &signature, own))),
        Err(found) => problems.extend(found),
    }
    let parities = manifest.parities.iter().map(|parity| ParityReport {
        code: format!("{} k={} r={}", parity.code.kind, parity.code.k, parity.code.r),
        models: parity.files().map(|file| file.name.clone()).collect(),
        problems: of_parity(repository, parity, &signature),
    });
    let stand_ins = manifest.stand_ins.iter().map(|stand_in| StandInReport {
        model: stand_in.model.name.clone(),
        cost: stand_in.cost(),
        agreement: stand_in.agreement,
        problems: of_stand_in(repository, stand_in, &signature),
    });
    let (parities, stand_ins) = (parities.collect(), stand_ins.collect());
    Ok(Report { model: name.into(), problems, parities, stand_ins })
}

/// Checks that a parity model's tensors are those that its code makes of the deployed model's. Works on the metadata of
/// workers as well as on files.
pub fn fits(code: &dyn Code, deployed: &Signature, parity: &Signature, name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for input in &deployed.inputs {
        problems.extend(match coded(code, input) {
            Ok(wanted) => hold((name, "input", &parity.inputs), &wanted, agree),
            Err(message) => Some(unusable(&format!("input '{}': {message}", input.name))),
        });
    }
    let scale = code.output_scale() as i64;
    for output in &deployed.outputs {
        // k predictions may have the shape [N, k, C] or [N, k * C]: the bytes are the same.
        let holds = |wanted: &TensorMetadata, actual: &TensorMetadata| {
            let sizes = row_size(&wanted.shape).zip(row_size(&actual.shape));
            wanted.datatype == actual.datatype && sizes.is_none_or(|(wanted, actual)| wanted == actual)
        };
        let mut wanted = output.clone();
        if scale > 1 && !wanted.shape.is_empty() {
            wanted.shape.insert(1, scale);
        }
        problems.extend(hold((name, "output", &parity.outputs), &wanted, holds));
    }
    problems
}

fn of_parity(repository: &Repository, parity: &Parity, deployed: &Signature) -> Vec<String> {
    let mut problems = parity.check();
    let code = match parity.code.build() {
        Ok(code) => Some(code),
        Err(parm_encoder::Error::NeedsNets) => None,
        Err(error) => {
            problems.push(unusable(&error.to_string()));
            None
        }
    };
    for file in parity.files() {
        match open(repository, file) {
            Ok(report) if parity.models.contains(file) => {
                let signature = Signature::from(&report);
                problems.extend(code.iter().flat_map(|code| fits(&**code, deployed, &signature, &file.name)));
            }
            Ok(_) => {}
            Err(found) => problems.extend(found),
        }
    }
    problems
}

fn of_stand_in(repository: &Repository, stand_in: &StandIn, deployed: &Signature) -> Vec<String> {
    let mut problems = stand_in.check();
    match tensors(repository, &stand_in.model) {
        Ok(tensors) => problems.extend(tensors.and_then(|own| misfit(deployed, &own, &stand_in.model.name))),
        Err(found) => problems.extend(found),
    }
    problems
}

/// The tensors of a file; `None` for a text model, which is served with texts instead.
fn tensors(repository: &Repository, file: &ModelFile) -> Result<Option<Signature>, Vec<String>> {
    let report = open(repository, file)?;
    let model = repository.model(&file.name).ok();
    let version = model.as_ref().and_then(|model| model.versions.get(&file.version));
    Ok((!version.is_some_and(Version::takes_texts)).then(|| Signature::from(&report)))
}

/// Opens a model of the repository and checks its version and digest.
fn open(repository: &Repository, file: &ModelFile) -> Result<Inspection, Vec<String>> {
    let (name, version) = (&file.name, file.version);
    let missing = |error| vec![format!("{error}: put the model into the repository or train it again")];
    let model = repository.model(name).map_err(missing)?;
    let Some(found) = model.versions.get(&version) else {
        let available: Vec<&u64> = model.versions.keys().collect();
        return Err(vec![format!("model '{name}' has no version {version}: available are {available:?}")]);
    };
    let unreadable = |message: String| vec![format!("cannot read model '{name}': {message}")];
    let actual = found.digest().map_err(|error| unreadable(error.to_string()))?;
    if !actual.eq_ignore_ascii_case(&file.sha256) {
        return Err(vec![format!(
            "model '{name}' version {version} is not the bundled file (sha256 {actual}, the manifest has {}): restore the file \
             or train the parity models for it",
            file.sha256
        )]);
    }
    let model =
        Model::open(&found.path, &Limits::default()).map_err(|error| unreadable(error.to_string()))?;
    let report = model.inspect();
    let fatal = report.findings.iter().filter(|finding| finding.is_fatal);
    let fatal: Vec<String> = fatal.map(|finding| format!("invalid model '{name}': {finding}")).collect();
    if fatal.is_empty() { Ok(report) } else { Err(fatal) }
}

/// The tensors that a model lacks, or has in another form.
fn lacking<'a>(
    model: &'a str,
    wanted: &'a Signature,
    own: &'a Signature,
) -> impl Iterator<Item = String> + 'a {
    let inputs =
        wanted.inputs.iter().filter_map(move |wanted| hold((model, "input", &own.inputs), wanted, agree));
    let outputs = wanted.outputs.iter();
    inputs.chain(outputs.filter_map(move |wanted| hold((model, "output", &own.outputs), wanted, agree)))
}

/// Checks the tensor of this name on one side of a model.
fn hold(
    (model, side, tensors): (&str, &'static str, &[TensorMetadata]),
    wanted: &TensorMetadata,
    holds: impl Fn(&TensorMetadata, &TensorMetadata) -> bool,
) -> Option<String> {
    let tensor = &wanted.name;
    let Some(actual) = tensors.iter().find(|actual| actual.name == *tensor) else {
        let available: Vec<&String> = tensors.iter().map(|tensor| &tensor.name).collect();
        return Some(format!("model '{model}' has no {side} '{tensor}': it has {available:?}"));
    };
    let show = |tensor: &TensorMetadata| format!("{}{:?}", tensor.datatype, tensor.shape);
    let differs = || {
        let (wanted, actual) = (show(wanted), show(actual));
        format!("{side} '{tensor}' of model '{model}' is {actual}, expected {wanted}")
    };
    (!holds(wanted, actual)).then(differs)
}

fn unusable(message: &str) -> String {
    format!("unusable code: {message}")
}

/// The parity's input for an input of the deployed model.
fn coded(code: &dyn Code, input: &TensorMetadata) -> Result<TensorMetadata, String> {
    let datatype: DataType =
        input.datatype.parse().map_err(|error: parm_protocol::Error| error.to_string())?;
    let element = match datatype {
        DataType::Fp32 => Element::Float32,
        other => Element::Bytes(other.size().ok_or("strings cannot be coded")?),
    };
    let [batch, row @ ..] = input.shape.as_slice() else {
        return Err("it has no batch dimension".into());
    };
    let dims: Option<Vec<usize>> = row.iter().map(|&dim| usize::try_from(dim).ok()).collect();
    let dims = dims.ok_or("its rows vary in size: state the sizes in the manifest")?;
    let coded = code.parity_dims(CodedInput { dims: &dims, element }).map_err(|error| error.to_string())?;
    let shape = std::iter::once(*batch).chain(coded.iter().map(|&dim| dim as i64)).collect();
    Ok(TensorMetadata { shape, ..input.clone() })
}

/// The side on which two files have the same tensors in a different order. Servers match tensors by name; programs that
/// compare files match them by position.
pub fn misplaced(deployed: &Signature, stand_in: &Signature) -> Option<&'static str> {
    let names =
        |tensors: &[TensorMetadata]| tensors.iter().map(|tensor| tensor.name.clone()).collect::<Vec<_>>();
    match () {
        () if names(&deployed.inputs) != names(&stand_in.inputs) => Some("inputs"),
        () if names(&deployed.outputs) != names(&stand_in.outputs) => Some("outputs"),
        () => None,
    }
}

/// The first difference between the tensors of a stand-in and of the deployed model, if any. Works on the metadata of
/// workers as well as on files.
pub fn misfit(deployed: &Signature, stand_in: &Signature, name: &str) -> Option<String> {
    let extra = || {
        let sides =
            [("input", &deployed.inputs, &stand_in.inputs), ("output", &deployed.outputs, &stand_in.outputs)];
        sides.into_iter().find_map(|(side, wanted, actual)| {
            let is_extra = |tensor: &&TensorMetadata| !wanted.iter().any(|own| own.name == tensor.name);
            let tensor = &actual.iter().find(is_extra)?.name;
            Some(format!(
                "model '{name}' has an additional {side} '{tensor}': a stand-in needs the inputs and outputs of the deployed model"
            ))
        })
    };
    lacking(name, deployed, stand_in).next().or_else(extra)
}
