//! Publishes a stand-in: writes its file to the repository first, then the bundle that names it.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use parm_backend::engine::Signature;
use parm_backend::processor;
use parm_parity_models::bundle::{
    Beside, Deployed, Input, Manifest, Meaning, MeasuredCost, Output, Range, StandIn, StandInAccuracy,
    put_model,
};

use parm_protocol::DataType;

use crate::{Candidate, Error, Frontier, Rows};

/// A deployed model and its repository.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The repository's folder.
    pub root: &'a Path,
    /// The deployed model's name.
    pub name: &'a str,
    /// Its file.
    pub deployed: &'a [u8],
    /// Its inputs and outputs.
    pub signature: &'a Signature,
    /// The rows of the search, for the range of the inputs.
    pub rows: &'a Rows,
    /// The files next to it that its stand-in needs as well.
    pub beside: &'a [Beside],
    /// The command line that made the stand-in.
    pub command: &'a str,
}

/// Writes the candidate to the repository as `NAME-stand-in` and returns the manifest's path. The manifest's entry
/// for a stand-in of that name is replaced; costs on other engines are kept if the file is the same.
pub fn publish(place: &Place<'_>, frontier: &Frontier, candidate: &Candidate) -> Result<PathBuf, Error> {
    let deployed = put_model(place.root, place.name, place.deployed, place.beside)?;
    let model =
        put_model(place.root, &format!("{}-stand-in", place.name), &candidate.model.read()?, place.beside)?;
    let path = place.root.join(place.name).join("parm.toml");
    let found = if path.exists() { Some(Manifest::read(&path)?) } else { None };
    // Entries for another version of the deployed model are invalid for this one.
    let found = found.filter(|manifest| manifest.deployed.sha256 == deployed.sha256);
    let mut manifest =
        found.unwrap_or_else(|| Manifest::new(describe(place, (deployed.version, deployed.sha256))));
    // The meanings that the search found or received: agreement, confidence and live comparisons depend on them.
    for output in &mut manifest.deployed.outputs {
        let found = frontier.setting.meanings.outputs.iter().find(|found| found.output == output.name);
        output.meaning = found.map_or(output.meaning, |found| found.meaning);
    }
    let known = manifest.stand_ins.iter().find(|other| other.model == model);
    let elsewhere = known.map(|other| other.costs.clone()).unwrap_or_default();
    let costs = std::iter::once(MeasuredCost {
        engine: frontier.engine.clone(),
        processor: Some(processor(NonZeroUsize::MIN)),
        rows: candidate.cost,
    });
    let own = Some(processor(NonZeroUsize::MIN));
    let is_other = |cost: &MeasuredCost| cost.engine != frontier.engine || cost.processor != own;
    let costs = costs.chain(elsewhere.into_iter().filter(is_other)).collect();
    let accuracy = candidate.compared.accuracy.zip(frontier.setting.accuracy).map(|(stand_in, deployed)| {
        StandInAccuracy { metric: "top-1".into(), deployed: deployed.value, stand_in: stand_in.value }
    });
    manifest.stand_ins.retain(|other| other.model.name != model.name);
    manifest.stand_ins.push(StandIn {
        model,
        provenance: format!(
            "{} ({}, {}, for {})",
            place.command, candidate.name, candidate.how, frontier.engine
        ),
        agreement: Some(candidate.compared.agreement.value),
        accuracy,
        calibration: candidate.sureness.map(|found| found.calibration),
        costs,
    });
    manifest.write(&path)?;
    Ok(path)
}

fn describe(place: &Place<'_>, (version, sha256): (u64, String)) -> Deployed {
    let inputs = place.signature.inputs.iter().enumerate().map(|(at, input)| Input {
        name: input.name.clone(),
        datatype: input.datatype,
        shape: input.shape.clone(),
        // The rows of a text model are token ids, and its input is texts.
        range: place
            .rows
            .range(at)
            .filter(|_| input.datatype != DataType::Bytes)
            .map(|(low, high)| Range { low, high }),
    });
    let outputs = place.signature.outputs.iter().map(|output| Output {
        name: output.name.clone(),
        datatype: output.datatype,
        shape: output.shape.clone(),
        meaning: Meaning::Values,
        default_answer: None,
    });
    Deployed { version, sha256, inputs: inputs.collect(), outputs: outputs.collect(), preprocessing: None }
}

#[cfg(test)]
mod tests {
    use parm_parity_models::onnx::{Builder, Dense, Value};
    use parm_protocol::Tensor;

    use super::*;
    use crate::testing::{Stage, candidate, setting};
    use crate::{Meanings, Setting};

    #[test]
    fn publish_updates_the_meaning_of_outputs() {
        let (mut builder, x) = Builder::reading("m", 1, Value::batch_of_f32("x", &[4]));
        builder.dense("y", &x, Dense { inputs: 4, outputs: 3 }).unwrap();
        builder.output(Value::batch_of_f32("y", &[3]));
        let (model, stage, root) = (builder.build().unwrap(), Stage::new(), tempfile::tempdir().unwrap());
        let rows = stage.rows(&model, &[Tensor::from_f32([2, 4].as_slice(), &[0.5; 8]).unwrap()]);
        let runner = stage.workshop.load("m", model.bytes()).unwrap();
        let (signature, deployed) = (runner.signature(), model.bytes());
        let place = Place {
            root: root.path(),
            name: "mine",
            deployed,
            signature,
            rows: &rows,
            beside: &[],
            command: "parm",
        };
        let one = Candidate {
            model: stage.workshop.store("exact", model.bytes()).unwrap(),
            ..candidate("exact", 0.2, 1.0)
        };
        for meaning in [Meaning::Logits, Meaning::Embedding] {
            let found = Frontier {
                engine: "tract".into(),
                limit: 1.0,
                setting: Setting { meanings: Meanings::all(meaning), ..setting() },
                candidates: vec![one.clone()],
                refused: Vec::new(),
                chosen: Some("exact".into()),
            };
            let path = publish(&place, &found, &one).unwrap();
            assert_eq!(Manifest::read(&path).unwrap().deployed.outputs[0].meaning, meaning);
        }
    }
}
