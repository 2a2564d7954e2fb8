//! Stand-ins, from rows to a bundle.

use parm_parity_models::bundle::{Manifest, Meaning, Start, verify};
use parm_parity_models::onnx::{Builder, Dense, Model, Value};
use parm_parity_models::repository::Repository;
use parm_training::data::Samples;
use parm_training::evaluate::Metric;
use parm_training::parity::{Publication, StandInRecord, publish_stand_in};
use parm_training::stand_in::{StandInRecipe, Standing, TrainedStandIn, examine, train};
use parm_training::{Augmentation, Device, Error, Loss};

use crate::task::{CLASSES, SIDE, alone, deployed, model, run, samples, untaught};

fn recipe() -> StandInRecipe {
    StandInRecipe { held_out: 100, run: run(6), ..StandInRecipe::default() }
}

fn trained(graph: &Model, recipe: &StandInRecipe) -> Result<TrainedStandIn, Error> {
    trained_on(&samples(600, 2), graph, recipe)
}

fn trained_on(rows: &Samples, graph: &Model, recipe: &StandInRecipe) -> Result<TrainedStandIn, Error> {
    alone(|around| train(untaught(rows, graph), recipe, Device::Cpu, around))
}

/// Scores on rows that training did not see.
fn standing(graph: &Model, trained: &TrainedStandIn) -> Standing {
    let fresh = samples(300, 3);
    examine(untaught(&fresh, graph), (&trained.model, trained.meaning), None, Device::Cpu)
        .expect("it is examined")
}

fn weights(model: &Model) -> usize {
    model.graph().expect("a graph").initializers.values().map(|weight| weight.len()).sum()
}

#[test]
fn thinner_network_learns_the_deployed_models_answers() {
    let deployed = model(&deployed());
    let quarter = StandInRecipe { width: 0.25, ..recipe() };
    let scratch = StandInRecipe { start: Start::Scratch, loss: Some(Loss::Huber), ..recipe() };
    let shifted = StandInRecipe { augment: Augmentation { shift: 1, flip: true }, ..recipe() };
    for recipe in [recipe(), quarter, scratch, shifted] {
        let trained = trained(&deployed, &recipe).expect("it trains");
        let standing = standing(&deployed, &trained);
        assert_eq!(standing.metric, Metric::TOP_1);
        // Guessing is right in one of three cases.
        assert!(standing.stand_in > 0.8 && standing.agreement > Some(0.8), "{recipe:?}: {standing:?}");
        assert!(weights(&model(&trained.model)) < weights(&deployed), "{recipe:?}");
        assert!(trained.calibration.is_some());
    }
}

#[test]
fn published_stand_in_replaces_the_older_and_verifies() {
    let bytes = deployed();
    let deployed = model(&bytes);
    let root = tempfile::tempdir().expect("a folder");
    let rows = samples(600, 2);
    let publication = Publication {
        root: root.path(),
        name: "small",
        deployed: &bytes,
        meaning: Meaning::Logits,
        samples: &rows,
    };
    for width in [0.25, 0.5] {
        let recipe = StandInRecipe { width, ..recipe() };
        let trained = trained(&deployed, &recipe).expect("it trains");
        let standing = standing(&deployed, &trained);
        let record = StandInRecord {
            provenance: format!("width {width}"),
            agreement: standing.agreement,
            accuracy: standing.accuracy(),
            calibration: trained.calibration,
        };
        publish_stand_in(&publication, &record, &trained.model).expect("it is published");
    }
    let repository = Repository::open(root.path()).expect("a repository");
    let report = verify(&repository, "small").expect("a bundle");
    assert!(report.is_sound(), "{report:?}");
    let manifest = Manifest::read(&root.path().join("small/parm.toml")).expect("a manifest");
    let [stand_in] = &manifest.stand_ins[..] else { panic!("one stand-in: {manifest:?}") };
    assert_eq!((&*stand_in.model.name, stand_in.model.version), ("small-stand-in", 2));
    assert_eq!(stand_in.provenance, "width 0.5");
}

#[test]
fn invalid_widths_and_graphs_are_rejected() {
    let deployed = model(&deployed());
    for width in [0.0, 1.5, f32::NAN] {
        let wrong = trained(&deployed, &StandInRecipe { width, ..recipe() }).map(|_| ());
        assert!(matches!(wrong, Err(Error::Setting { .. })), "{wrong:?}");
    }
    let rows = Samples { labels: None, ..samples(600, 2) };
    let refused =
        trained_on(&rows, &joined(), &recipe()).map(|_| ()).expect_err("its features cannot be followed");
    assert!(refused.to_string().contains("Concat 'both'"), "{refused}");
}

/// Parallel layers: the node that joins them hides which features remain.
fn joined() -> Model {
    let mut graph = Builder::new("joined", 5);
    let input = graph.input(Value::batch_of_f32("input", &[1, SIDE, SIDE]));
    let flat = graph.node("Flatten", "flat", &[&input]);
    let layer = Dense { inputs: SIDE * SIDE, outputs: 8 };
    let sides = ["a", "b"].map(|name| graph.dense(name, &flat, layer).expect("a layer"));
    let both = graph.node_with("Concat", "both", &[&sides[0], &sides[1]], [("axis", 1.into())]);
    graph.dense("logits", &both, Dense { inputs: 16, outputs: CLASSES }).expect("a layer");
    graph.output(Value::batch_of_f32("logits", &[CLASSES]));
    graph.build().expect("a graph")
}
