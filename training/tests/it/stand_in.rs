//! Stand-ins, from rows to a bundle.

use parm_parity_models::bundle::{Manifest, Meaning, Start, verify};
use parm_parity_models::onnx::{Builder, Dense, Model, Value};
use parm_parity_models::repository::Repository;
use parm_training::evaluate::Metric;
use parm_training::fit::Settings;
use parm_training::parity::{Materials, Publication, StandInRecord, publish_stand_in};
use parm_training::stand_in::{StandInRecipe, Standing, TrainedStandIn, examine, train};
use parm_training::{Augmentation, Device, Error, Loss};

use crate::task::{CLASSES, SIDE, alone, deployed, model, network, run, samples, untaught};

fn recipe() -> StandInRecipe {
    StandInRecipe { held_out: 100, run: run(6), ..StandInRecipe::default() }
}

/// A small network that learns the answers of a deployed one.
fn trained(deployed: &Model, recipe: &StandInRecipe) -> Result<TrainedStandIn, Error> {
    let (rows, graph) = (samples(600, 2), small());
    let teacher = network(deployed, &rows);
    let materials = Materials { samples: &rows, graph: &graph, teacher: Some(&teacher), outputs: None };
    alone(|around| train(materials, recipe, Device::Cpu, around))
}

fn small() -> Model {
    let mut graph = Builder::new("small", 5);
    let input = graph.input(Value::batch_of_f32("input", &[1, SIDE, SIDE]));
    let flat = graph.node("Flatten", "flat", &[&input]);
    let hidden = graph.dense("hidden", &flat, Dense { inputs: SIDE * SIDE, outputs: 16 }).expect("a layer");
    let hidden = graph.node("Relu", "relu", &[&hidden]);
    graph.dense("output", &hidden, Dense { inputs: 16, outputs: CLASSES }).expect("a layer");
    graph.output(Value::batch_of_f32("output", &[CLASSES]));
    graph.build().expect("a graph")
}

/// Scores on rows that training did not see.
fn standing(graph: &Model, trained: &TrainedStandIn) -> Standing {
    let fresh = samples(300, 3);
    examine(untaught(&fresh, graph), (&trained.model, trained.meaning), None, Device::Cpu)
        .expect("it is examined")
}

#[test]
fn small_network_learns_the_deployed_models_answers() {
    let deployed = model(&deployed());
    let scratch = StandInRecipe { start: Start::Scratch, loss: Some(Loss::Huber), ..recipe() };
    let shifted = StandInRecipe { augment: Augmentation { shift: 1, flip: true }, ..recipe() };
    for recipe in [recipe(), scratch, shifted] {
        let trained = trained(&deployed, &recipe).expect("it trains");
        let standing = standing(&deployed, &trained);
        assert_eq!(standing.metric, Metric::TOP_1);
        // Guessing is right in one of three cases.
        assert!(standing.stand_in > 0.8 && standing.agreement > Some(0.8), "{recipe:?}: {standing:?}");
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
    for seed in [1, 2] {
        let recipe = StandInRecipe { run: Settings { seed, ..run(6) }, ..recipe() };
        let trained = trained(&deployed, &recipe).expect("it trains");
        let standing = standing(&deployed, &trained);
        let record = StandInRecord {
            provenance: format!("seed {seed}"),
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
    assert_eq!(stand_in.provenance, "seed 2");
}
