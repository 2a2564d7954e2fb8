//! Checks the files of a bundle against its manifest.

use std::fmt;

use parm_encoder::{Code, Element, Input as CodedInput};
use parm_protocol::{DataType, TensorMetadata};
use serde::Serialize;

use super::signature::{agree, row_size};
use super::{Manifest, ModelFile, Parity, Problem, Signature, StandIn, misfit};
use crate::onnx::{Limits, Model};
use crate::repository::{Format, Repository, Version};
use crate::{Error, onnx};

/// The output of `parm models verify`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The deployed model's name.
    pub model: String,
    /// Problems of the deployed model or the manifest; any of them makes all parities unusable.
    pub problems: Vec<Problem>,
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
    pub problems: Vec<Problem>,
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
    pub problems: Vec<Problem>,
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
        Ok(tensors) => problems.extend(tensors.iter().flat_map(|own| declared(name, &signature, own))),
        Err(found) => problems.extend(found),
    }
    let parities = manifest.parities.iter().map(|parity| ParityReport {
        code: describe(parity),
        models: parity.files().map(|file| file.name.clone()).collect(),
        problems: hold(repository, parity, &signature),
    });
    let stand_ins = manifest.stand_ins.iter().map(|stand_in| StandInReport {
        model: stand_in.model.name.clone(),
        cost: stand_in.cost(),
        agreement: stand_in.agreement,
        problems: hold_stand_in(repository, stand_in, &signature),
    });
    let (parities, stand_ins) = (parities.collect(), stand_ins.collect());
    Ok(Report { model: name.into(), problems, parities, stand_ins })
}

/// Checks that a parity model's tensors are those that its code makes of the deployed model's. Works on the metadata of
/// workers as well as on files.
pub fn fits(code: &dyn Code, deployed: &Signature, parity: &Signature, name: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    for input in &deployed.inputs {
        let side = Side { model: name, side: "input", tensors: &parity.inputs };
        problems.extend(match coded(code, input) {
            Ok(wanted) => side.hold(&wanted, agree),
            Err(problem) => Some(problem),
        });
    }
    let scale = code.output_scale() as i64;
    for output in &deployed.outputs {
        let side = Side { model: name, side: "output", tensors: &parity.outputs };
        // k predictions may have the shape [N, k, C] or [N, k * C]: the bytes are the same.
        let holds = |wanted: &TensorMetadata, actual: &TensorMetadata| {
            let sizes = row_size(&wanted.shape).zip(row_size(&actual.shape));
            wanted.datatype == actual.datatype && sizes.is_none_or(|(wanted, actual)| wanted == actual)
        };
        let mut wanted = output.clone();
        if scale > 1 && !wanted.shape.is_empty() {
            wanted.shape.insert(1, scale);
        }
        problems.extend(side.hold(&wanted, holds));
    }
    problems
}

fn hold(repository: &Repository, parity: &Parity, deployed: &Signature) -> Vec<Problem> {
    let mut problems = parity.check();
    let code = match parity.code.build() {
        Ok(code) => Some(code),
        Err(parm_encoder::Error::NeedsNets) => None,
        Err(error) => {
            problems.push(Problem::Code { message: error.to_string() });
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

fn hold_stand_in(repository: &Repository, stand_in: &StandIn, deployed: &Signature) -> Vec<Problem> {
    let mut problems = stand_in.check();
    match tensors(repository, &stand_in.model) {
        Ok(tensors) => problems.extend(tensors.and_then(|own| misfit(deployed, &own, &stand_in.model.name))),
        Err(found) => problems.extend(found),
    }
    problems
}

/// The tensors of a file; `None` for a text model, which is served with texts instead.
fn tensors(repository: &Repository, file: &ModelFile) -> Result<Option<Signature>, Vec<Problem>> {
    let report = open(repository, file)?;
    let model = repository.model(&file.name).ok();
    let version = model.as_ref().and_then(|model| model.versions.get(&file.version));
    Ok((!version.is_some_and(Version::takes_texts)).then(|| Signature::from(&report)))
}

/// Opens a model of the repository and checks its version, digest and format.
fn open(repository: &Repository, file: &ModelFile) -> Result<onnx::Inspection, Vec<Problem>> {
    let (name, version) = (&file.name, file.version);
    let unreadable = |message: String| vec![Problem::Unreadable { model: name.clone(), message }];
    let model =
        repository.model(name).map_err(|error| vec![Problem::Missing { message: error.to_string() }])?;
    let Some(found) = model.versions.get(&version) else {
        let available = model.versions.keys().copied().collect();
        return Err(vec![Problem::MissingVersion { model: name.clone(), version, available }]);
    };
    let actual = found.digest().map_err(|error| unreadable(error.to_string()))?;
    if !actual.eq_ignore_ascii_case(&file.sha256) {
        let (model, expected) = (name.clone(), file.sha256.clone());
        return Err(vec![Problem::Digest { model, version, expected, actual }]);
    }
    if found.format != Format::Onnx {
        return Err(unreadable("the models of a bundle must be ONNX files".into()));
    }
    let model =
        Model::open(&found.path, &Limits::default()).map_err(|error| unreadable(error.to_string()))?;
    let report = model.inspect();
    let fatal: Vec<Problem> = report
        .findings
        .iter()
        .filter(|finding| finding.is_fatal())
        .map(|finding| Problem::Unsound { model: name.clone(), finding: finding.clone() })
        .collect();
    if fatal.is_empty() { Ok(report) } else { Err(fatal) }
}

/// Compares the manifest's tensors with the file's.
fn declared(model: &str, manifest: &Signature, file: &Signature) -> Vec<Problem> {
    let inputs = Side { model, side: "input", tensors: &file.inputs };
    let outputs = Side { model, side: "output", tensors: &file.outputs };
    let inputs = manifest.inputs.iter().filter_map(|wanted| inputs.hold(wanted, agree));
    inputs.chain(manifest.outputs.iter().filter_map(|wanted| outputs.hold(wanted, agree))).collect()
}

/// One side of a model, inputs or outputs.
pub(super) struct Side<'a> {
    pub(super) model: &'a str,
    pub(super) side: &'static str,
    pub(super) tensors: &'a [TensorMetadata],
}

impl Side<'_> {
    /// Checks the tensor of this name.
    pub(super) fn hold(
        &self,
        wanted: &TensorMetadata,
        holds: impl Fn(&TensorMetadata, &TensorMetadata) -> bool,
    ) -> Option<Problem> {
        let (model, side, tensor) = (self.model.to_owned(), self.side, wanted.name.clone());
        let Some(actual) = self.tensors.iter().find(|actual| actual.name == tensor) else {
            let available = self.tensors.iter().map(|tensor| tensor.name.clone()).collect();
            return Some(Problem::NoTensor { model, side, tensor, available });
        };
        let (holds, wanted, actual) = (holds(wanted, actual), show(wanted), show(actual));
        (!holds).then_some(Problem::Tensor { model, side, tensor, wanted, actual })
    }
}

/// The parity's input for an input of the deployed model.
fn coded(code: &dyn Code, input: &TensorMetadata) -> Result<TensorMetadata, Problem> {
    let refused = |message: String| Problem::Code { message: format!("input '{}': {message}", input.name) };
    let datatype: DataType =
        input.datatype.parse().map_err(|error: parm_protocol::Error| refused(error.to_string()))?;
    let element = match datatype {
        DataType::Fp32 => Element::Float32,
        other => Element::Bytes(other.size().ok_or_else(|| refused("strings cannot be coded".into()))?),
    };
    let [batch, row @ ..] = input.shape.as_slice() else {
        return Err(refused("it has no batch dimension".into()));
    };
    let dims: Option<Vec<usize>> = row.iter().map(|&dim| usize::try_from(dim).ok()).collect();
    let dims =
        dims.ok_or_else(|| refused("its rows vary in size: state the sizes in the manifest".into()))?;
    let coded =
        code.parity_dims(CodedInput { dims: &dims, element }).map_err(|error| refused(error.to_string()))?;
    let shape = std::iter::once(*batch).chain(coded.iter().map(|&dim| dim as i64)).collect();
    Ok(TensorMetadata { shape, ..input.clone() })
}

fn show(tensor: &TensorMetadata) -> String {
    format!("{}{:?}", tensor.datatype, tensor.shape)
}

fn describe(parity: &Parity) -> String {
    format!("{} k={} r={}", parity.code.kind, parity.code.k, parity.code.r)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = |problems: &[Problem]| if problems.is_empty() { "ok" } else { "does not fit" };
        writeln!(f, "{}: {}", self.model, verdict(&self.problems))?;
        self.problems.iter().try_for_each(|problem| writeln!(f, "  {problem}"))?;
        for parity in &self.parities {
            writeln!(f, "  {} [{}]: {}", parity.code, parity.models.join(", "), verdict(&parity.problems))?;
            parity.problems.iter().try_for_each(|problem| writeln!(f, "    {problem}"))?;
        }
        for stand_in in &self.stand_ins {
            let share = |value: Option<f64>| value.map_or("unknown".into(), |value| format!("{value:.3}"));
            let (cost, agreement) = (share(stand_in.cost), share(stand_in.agreement));
            let verdict = verdict(&stand_in.problems);
            writeln!(f, "  stand-in [{}], cost {cost}, agreement {agreement}: {verdict}", stand_in.model)?;
            stand_in.problems.iter().try_for_each(|problem| writeln!(f, "    {problem}"))?;
        }
        Ok(())
    }
}
