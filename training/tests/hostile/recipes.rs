//! Hostile recipes: numbers at the ends of their ranges, and data for huge networks.

use std::fmt::Debug;

use parm_parity_models::onnx::{Builder, Dense, Model, Value};
use parm_training::base::{self, Base};
use parm_training::code::{self, CodeRecipe};
use parm_training::data::Samples;
use parm_training::fit::{Files, Stop, Surroundings, Unobserved};
use parm_training::parity::{self, Materials, ParityRecipe};
use parm_training::stand_in::{self, StandInRecipe};
use parm_training::{Array, Device, Error};
use serde::de::DeserializeOwned;

use crate::{MOST, complaint};

/// Rows of four numbers in two classes.
fn rows(count: usize) -> Samples {
    let inputs = Array::full(vec![count, 4], 0.5);
    Samples::new(inputs, Some((0..count).map(|row| row % 2).collect())).unwrap()
}

fn model(inputs: usize) -> Model {
    let mut graph = Builder::new("deployed", 1);
    let x = graph.input(Value::batch_of_f32("x", &[inputs]));
    graph.dense("y", &x, Dense { inputs, outputs: 2 }).unwrap();
    graph.output(Value::batch_of_f32("y", &[2]));
    graph.build().unwrap()
}

/// Trains without files and stops a run that begins at its first step.
fn run<T>(train: impl FnOnce(Surroundings<'_>) -> Result<T, Error>) -> Result<(), Error> {
    let (stop, files) = (Stop::default(), Files::default());
    stop.request();
    train(Surroundings { observer: &Unobserved, stop: &stop, files: &files }).map(|_| ())
}

/// Trains by a recipe in TOML.
fn with<R: Debug + DeserializeOwned>(
    text: &str,
    train: impl FnOnce(&R) -> Result<(), Error>,
) -> Result<(), String> {
    let recipe: R = toml::from_str(text).map_err(|error| error.to_string())?;
    train(&recipe).map_err(|error| error.to_string())
}

fn base(text: &str) -> Result<(), String> {
    with(text, |recipe: &Base| run(|around| base::train(&rows(60), recipe, Device::Cpu, around)))
}

fn parity(text: &str) -> Result<(), String> {
    let (samples, graph) = (rows(60), model(4));
    let materials = Materials { samples: &samples, graph: &graph, teacher: None, outputs: None };
    with(text, |recipe: &ParityRecipe| run(|around| parity::train(materials, recipe, Device::Cpu, around)))
}

fn stand_in(text: &str) -> Result<(), String> {
    let (samples, graph) = (rows(60), model(4));
    let materials = Materials { samples: &samples, graph: &graph, teacher: None, outputs: None };
    with(text, |recipe: &StandInRecipe| run(|around| stand_in::train(materials, recipe, Device::Cpu, around)))
}

fn code(text: &str) -> Result<(), String> {
    with(text, |recipe: &CodeRecipe| {
        run(|around| code::train(&rows(60), None, &model(4), recipe, Device::Cpu, around))
    })
}

type Train = fn(&str) -> Result<(), String>;

/// Every kind of training, with values that its recipe cannot have.
fn each(cases: &[(&str, Train, &str, &str)]) {
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|(name, train, text, words)| {
            complaint(&format!("{name} with {text:?} ({words})"), words, MOST, || train(text))
        })
        .collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn recipe_is_rejected_when_a_number_is_out_of_range() {
    let all: [(&str, Train); 4] =
        [("base", base), ("parity", parity), ("stand-in", stand_in), ("code", code)];
    let mut cases = Vec::new();
    for (name, train) in all {
        cases.extend([
            (name, train, "run.epochs = 0", "at least 1"),
            (name, train, "run.epochs = -1", "invalid value"),
            (name, train, "run.batch = 0", "at least 1"),
            (name, train, "run.rate = 0.0", "above 0"),
            (name, train, "run.rate = nan", "above 0"),
            (name, train, "run.rate = inf", "above 0"),
            (name, train, "run.rate = -1.0", "above 0"),
            (name, train, "run.warm_up = nan", "warm_up"),
            (name, train, "run.warm_up = 1e30", "warm_up"),
            (name, train, "run.average = 1.0", "average"),
            (name, train, "run.average = nan", "average"),
            (name, train, "run.weight_decay = inf", "weight_decay"),
            (name, train, "held_out = 1e3", "invalid type"),
            (name, train, "run.epochs = 99999999999999999999", "99999999999999999999"),
            (name, train, "run.seeds = 1", "unknown field"),
            (name, train, "run = [", "TOML parse error"),
        ]);
    }
    cases.extend([
        ("parity", parity as Train, "k = 0", "k must be at least 2"),
        ("parity", parity, "k = 1000000000", "k"),
        ("parity", parity, "r = 0", "r"),
        ("parity", parity, "encoder = \"sum\"\nr = 1000000000", "r"),
        ("parity", parity, "encoder = \"tiles\"\nk = 9223372036854775807", "k"),
        ("parity", parity, "passes = nan", "passes"),
        ("parity", parity, "passes = 1e30", "passes"),
        ("parity", parity, "blanks = nan", "blanks"),
        ("parity", parity, "temperature = nan", "temperature"),
        ("parity", parity, "temperature = 0.0", "temperature"),
        ("stand-in", stand_in, "width = 0.5", "unknown field"),
        ("stand-in", stand_in, "temperature = -1.0", "temperature"),
        ("code", code, "k = 0", "k must be from"),
        ("code", code, "k = 1000000000", "k must be from"),
        ("code", code, "r = 0", "r must be from 1"),
        ("code", code, "passes = nan", "passes"),
        ("code", code, "passes = inf", "passes"),
        ("code", code, "passes = 1e30", "passes"),
        ("code", code, "passes = 0.0", "passes"),
        ("base", base, "augment.shift = 9223372036854775807", "shift"),
        ("parity", parity, "augment.shift = 9223372036854775807", "shift"),
        ("stand-in", stand_in, "augment.shift = 9223372036854775807", "shift"),
    ]);
    each(&cases);
}

#[test]
fn extreme_recipe_that_can_be_run_begins() {
    let all: [(&str, Train); 4] =
        [("base", base), ("parity", parity), ("stand-in", stand_in), ("code", code)];
    let largest = i64::MAX;
    for (name, train) in all {
        each(&[
            (name, train, &format!("run.epochs = {largest}"), "stopped in epoch 1"),
            (name, train, &format!("run.batch = {largest}"), "stopped in epoch 1"),
            (
                name,
                train,
                &format!("run.seed = {largest}\nrun.score_every = 0\nrun.save_every = 0"),
                "stopped",
            ),
            (name, train, &format!("run.save_every = {largest}\nrun.score_every = {largest}"), "stopped"),
            (name, train, &format!("held_out = {largest}"), "stopped in epoch 1"),
        ]);
    }
}

#[test]
fn network_is_rejected_when_it_would_be_too_large() {
    let wide = Samples::new(Array::full(vec![60, 40_000], 0.5), None).unwrap();
    let deployed = model(40_000);
    // Two layers of (8 x 40000)^2 weights.
    let large = complaint("a code of wide rows", "weight fc1.weight", 128 << 20, || {
        let recipe = CodeRecipe { k: 8, ..CodeRecipe::default() };
        run(|around| code::train(&wide, None, &deployed, &recipe, Device::Cpu, around))
    });
    assert_eq!(large, None);
    let classes = 40_000;
    let many = Samples::new(Array::full(vec![classes, 1], 0.5), Some((0..classes).collect())).unwrap();
    let large = complaint("a class for each row", "classes", MOST, || {
        run(|around| base::train(&many, &Base::default(), Device::Cpu, around))
    });
    assert_eq!(large, None);
}
