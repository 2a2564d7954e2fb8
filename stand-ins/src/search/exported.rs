//! Tests of all families on graphs as exporters write them (`stand-ins/fixtures/make.py`).

use std::path::Path;

use parm_parity_models::onnx::{Limits, Model};
use parm_protocol::DataType;
use parm_random::Random;

use super::*;
use crate::exact::{rewrite, settle};
use crate::graph::{Links, multiplications, raise};
use crate::int8::{Cuts, Scope, gather, quantise};
use crate::layers::{Shortcuts, repeats};
use crate::prune::{Depth, Pruning};
use crate::testing::{Alone, Stage};

/// Rows for any of them: pictures, or twelve identifiers with a mask.
fn asked(stage: &Stage, model: &Model) -> Rows {
    const COUNT: usize = 8;
    let runner = stage.workshop.load("signature", model.bytes()).unwrap();
    let array = |input: &parm_backend::engine::Declared| {
        let sizes = input.shape.iter().skip(1).map(|&size| usize::try_from(size).unwrap_or(12));
        let shape: Vec<usize> = std::iter::once(COUNT).chain(sizes).collect();
        let (count, mut random) = (shape.iter().product(), Random::named(3, &input.name));
        if input.datatype == DataType::Fp32 {
            return Tensor::from_f32(shape.as_slice(), &random.normals(count)).unwrap();
        }
        let is_mask = input.name.contains("mask");
        let value = |_| if is_mask { 1 } else { random.below(100) as i64 };
        let data: Vec<u8> = (0..count).map(value).flat_map(i64::to_le_bytes).collect();
        Tensor::new(DataType::Int64, shape.as_slice(), data.into()).unwrap()
    };
    let arrays: Vec<Tensor> = runner.signature().inputs.iter().map(array).collect();
    Rows::new(runner.signature(), &arrays).unwrap()
}

fn opened(name: &str) -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/{name}.onnx"));
    Model::open(&path, &Limits::default()).unwrap()
}

/// Checks that all smaller graphs give finite outputs for all rows: with half of the channels in their blocks, with
/// half of their blocks if they repeat, and in 8 bits. Returns the operators with the most work and the remaining
/// shares of the work.
fn smaller(name: &str) -> (Vec<String>, Vec<f64>) {
    let (model, stage) = (opened(name), Stage::new());
    let (rows, workshop) = (asked(&stage, &model), &stage.workshop);
    let base = settle(workshop, Draft::new(&model).unwrap(), &rows).unwrap();
    let base = rewrite(workshop, &base, &rows).unwrap();
    let survey = Survey::of(workshop, &base, &rows).unwrap();
    let pruning = Pruning::of(workshop, &base, &rows, &Alone).unwrap();
    let depths = [Depth::Inside, Depth::Streams].into_iter().filter(|depth| pruning.reaches(*depth));
    let mut drafts: Vec<Draft> = depths.map(|depth| pruning.cut(0.5, depth).unwrap().0).collect();
    if let Some(found) = repeats(&base, &Links::of(&base), &survey) {
        let shortcuts = Shortcuts::of(workshop, &base, &rows, (found, &survey, &Alone)).unwrap().unwrap();
        drafts.extend(shortcuts.cut(&base).unwrap().into_iter().map(|(_, _, draft)| draft));
    }
    let mut raised = base.clone();
    raise(&mut raised).unwrap();
    let ranges = gather(workshop, &raised, &rows, &Alone).unwrap();
    drafts.push(quantise(&raised, &ranges, Scope::All, &Cuts::of(1e-4)).unwrap().unwrap());
    let total = |draft: &Draft, survey: &Survey| -> f64 {
        draft.nodes.iter().filter_map(|node| multiplications(node, &survey.looks()[0])).sum()
    };
    let whole = total(&base, &survey);
    let mut left = Vec::new();
    for draft in drafts {
        let mut runner = workshop.load("smaller", draft.clone().finish().unwrap().bytes()).unwrap();
        let said = answers(&mut runner, &rows, &Alone).unwrap();
        let is_finite = said[0].as_f32().unwrap().iter().all(|value| value.is_finite());
        assert!(is_finite && said[0].rows() == rows.len(), "{name}");
        // 8-bit copies have as many multiplications.
        if !draft.nodes.iter().any(|node| node.op_type == "QuantizeLinear") {
            let survey = Survey::of(workshop, &draft, &rows).unwrap();
            left.push(total(&draft, &survey) / whole);
        }
    }
    (work(&base, &survey).into_iter().map(|work| work.operator).collect(), left)
}

#[test]
fn inverted_residuals_with_gates_lose_channels() {
    let (operators, left) = smaller("mobilenet");
    assert!(operators[0] == "Conv" && left[0] < 0.6, "{operators:?}, {left:?}");
}

#[test]
fn depthwise_separable_convolutions_lose_channels() {
    let (operators, left) = smaller("lcnet");
    assert!(operators[0] == "Conv" && left[0] < 0.4, "{operators:?}, {left:?}");
}

#[test]
fn a_recogniser_with_attention_loses_features_and_layers() {
    let (operators, left) = smaller("svtr");
    assert!(
        operators.contains(&"MatMul of two values".to_owned()),
        "attention must stay whole: {operators:?}"
    );
    assert!(left[0] < 0.9 && left[1] < 0.65, "{left:?}");
}

#[test]
fn encoder_of_any_length_loses_features_and_layers() {
    let (operators, left) = smaller("encoder");
    assert!(
        operators.contains(&"MatMul of two values".to_owned()),
        "attention must stay whole: {operators:?}"
    );
    assert!(left[0] < 0.8 && left[1] < 0.6, "{left:?}");
}
