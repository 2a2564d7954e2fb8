//! Tests on networks of repeated blocks.

use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{Builder, Model, Tensor, Value};
use parm_random::Random;

use super::*;
use crate::graph::{Links, Survey};
use crate::testing::{Alone, Stage};

fn constant(builder: &mut Builder, name: &str, dims: &[usize], scale: f32) -> String {
    let mut values = Random::named(8, name).normals(dims.iter().product());
    values.iter_mut().for_each(|value| *value *= scale / (dims[0] as f32).sqrt());
    builder.constant(Tensor::from_f32(name, dims, &values).unwrap())
}

/// Residual blocks that each add a little, between a stem and a head.
fn stack(blocks: usize) -> Model {
    let mut builder = Builder::new("stack", 1);
    let x = builder.input(Value::batch_of_f32("x", &[8]));
    let stem = constant(&mut builder, "stem", &[8, 12], 1.0);
    let mut stream = builder.node("MatMul", "stream.0", &[&x, &stem]);
    for at in 1..=blocks {
        let up = constant(&mut builder, &format!("up.{at}"), &[12, 24], 1.0);
        let down = constant(&mut builder, &format!("down.{at}"), &[24, 12], 0.3);
        let hidden = builder.node("MatMul", &format!("hidden.{at}"), &[&stream, &up]);
        let bent = builder.node("Relu", &format!("bent.{at}"), &[&hidden]);
        let back = builder.node("MatMul", &format!("back.{at}"), &[&bent, &down]);
        stream = builder.node("Add", &format!("stream.{at}"), &[&stream, &back]);
    }
    let head = constant(&mut builder, "head", &[12, 5], 1.0);
    builder.node("MatMul", "y", &[&stream, &head]);
    builder.output(Value::batch_of_f32("y", &[5]));
    builder.build().unwrap()
}

fn rows(stage: &Stage, model: &Model, seed: u64, count: usize) -> crate::Rows {
    let values = Random::new(seed).normals(count * 8);
    stage.rows(model, &[parm_protocol::Tensor::from_f32([count, 8].as_slice(), &values).unwrap()])
}

#[test]
fn repeats_finds_alike_blocks_and_their_stream() {
    let (model, stage) = (stack(6), Stage::new());
    let draft = Draft::new(&model).unwrap();
    let survey = Survey::of(&stage.workshop, &draft, &rows(&stage, &model, 1, 4)).unwrap();
    let found = repeats(&draft, &Links::of(&draft), &survey).unwrap();
    let values: Vec<String> = (0..=6).map(|at| format!("stream.{at}")).collect();
    assert_eq!(found, Repeats { values, nodes: 4 });
    let single = stack(1);
    let draft = Draft::new(&single).unwrap();
    let survey = Survey::of(&stage.workshop, &draft, &rows(&stage, &single, 1, 4)).unwrap();
    assert_eq!(repeats(&draft, &Links::of(&draft), &survey), None, "one block repeats nothing");
}

#[test]
fn linear_map_replaces_more_blocks_at_more_error() {
    let (model, stage) = (stack(6), Stage::new());
    let draft = Draft::new(&model).unwrap();
    let fitted = rows(&stage, &model, 1, 400);
    let survey = Survey::of(&stage.workshop, &draft, &fitted).unwrap();
    let found = repeats(&draft, &Links::of(&draft), &survey).unwrap();
    let shortcuts =
        Shortcuts::of(&stage.workshop, &draft, &fitted, (found, &survey, &Alone)).unwrap().unwrap();
    let fresh = rows(&stage, &model, 2, 100);
    let said = stage.answers(&model, &fresh);
    let mut losses = Vec::new();
    let cut = shortcuts.cut(&draft).unwrap();
    assert_eq!(
        cut.iter().map(|(name, ..)| name.as_str()).collect::<Vec<_>>(),
        ["layers-4-of-6", "layers-3-of-6", "layers-2-of-6"]
    );
    for (blocks, (_, _, short)) in [4, 3, 2].into_iter().zip(cut) {
        // Stem and head, four nodes per block, and the map in two.
        assert_eq!(short.nodes.len(), 2 + 4 * blocks + 2);
        let answers = stage.answers(&short.finish().unwrap(), &fresh);
        let apart: f32 = said.iter().zip(&answers).map(|(a, b)| (a - b).powi(2)).sum();
        losses.push((apart / said.iter().map(|a| a.powi(2)).sum::<f32>()).sqrt());
    }
    assert!(losses[0] < 0.15 && losses[0] < losses[2], "{losses:?}");
}
