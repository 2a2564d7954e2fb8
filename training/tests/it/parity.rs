//! Training of base and parity models, from data to files for an engine.

use std::cell::Cell;

use parm_encoder::{Head, Kind};
use parm_parity_models::bundle::{Meaning, verify};
use parm_parity_models::onnx::Model;
use parm_parity_models::repository::Repository;
use parm_training::fit::{Files, Stop, Surroundings};
use parm_training::parity::{
    CodeRecord, Materials, ParityRecipe, Publication, Start, TrainedParities, examine, publish, train,
};
use parm_training::{Array, Augmentation, Device, Error, Loss, Network, Teacher};

use crate::task::{CLASSES, Impatient, SIDE, alone, deployed, model, run, samples, untaught};

fn recipe(encoder: Kind, k: usize) -> ParityRecipe {
    ParityRecipe { encoder, k, held_out: 100, run: run(6), ..ParityRecipe::default() }
}

fn trained(deployed: &Model, recipe: &ParityRecipe) -> Result<TrainedParities, Error> {
    let rows = samples(600, 2);
    let materials = untaught(&rows, deployed);
    alone(|around| train(materials, recipe, Device::Cpu, around))
}

#[test]
fn every_code_learns_to_reconstruct_lost_predictions() {
    let deployed = model(&deployed());
    let weighted = ParityRecipe { r: 2, ..recipe(Kind::Weighted, 3) };
    let tiles_sum = ParityRecipe { head: Some(Head::Sum), ..recipe(Kind::Tiles, 2) };
    let scratch = ParityRecipe { start: Start::Scratch, ..recipe(Kind::Sum, 2) };
    let partial = ParityRecipe { blanks: 0.3, loss: Some(Loss::Huber), ..recipe(Kind::Slots, 3) };
    let shifted = ParityRecipe { augment: Augmentation { shift: 1, flip: true }, ..recipe(Kind::Slots, 2) };
    let cases =
        [recipe(Kind::Slots, 2), recipe(Kind::Tiles, 2), scratch, weighted, tiles_sum, partial, shifted];
    let fresh = samples(300, 3);
    for recipe in cases {
        let trained = trained(&deployed, &recipe).expect("it trains");
        let materials = untaught(&fresh, &deployed);
        let report = examine(materials, &trained, None, Device::Cpu).expect("it is examined");
        assert!(report.available > 0.95, "{recipe:?}: {report:?}");
        // Guessing is right in one of three cases.
        assert!(report.degraded.iter().all(|degraded| degraded.score > 0.6), "{recipe:?}: {report:?}");
        assert_eq!(report.degraded.len(), recipe.r);
        assert_eq!(trained.models.len(), recipe.r);
        assert!(trained.calibration.is_some());
    }
}

#[test]
fn interrupted_run_ends_with_the_same_weights() {
    let deployed = model(&deployed());
    let rows = samples(600, 2);
    let materials = untaught(&rows, &deployed);
    let mut recipe = recipe(Kind::Slots, 2);
    (recipe.run.average, recipe.run.score_every) = (0.9, 2);
    recipe.augment.shift = 1;
    let whole = alone(|around| train(materials, &recipe, Device::Cpu, around)).expect("it trains");

    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| Some(folder.path().join(name));
    let files = Files { checkpoint: path("checkpoint"), metrics: path("metrics") };
    for steps in [5, 20, 17] {
        let stop = Stop::default();
        let observer = Impatient { stop: &stop, steps: Cell::new(steps) };
        let around = Surroundings { observer: &observer, stop: &stop, files: &files };
        let stopped = train(materials, &recipe, Device::Cpu, around).map(|trained| trained.models);
        assert!(matches!(stopped, Err(Error::Stopped { .. })), "{stopped:?}");
    }
    let around =
        Surroundings { observer: &parm_training::fit::Unobserved, stop: &Stop::default(), files: &files };
    let resumed = train(materials, &recipe, Device::Cpu, around).expect("it goes on");
    assert_eq!(resumed.models, whole.models);
    let lines = std::fs::read_to_string(folder.path().join("metrics")).expect("metrics");
    assert_eq!(Some(lines.lines().count() as u64), recipe.run.epochs);

    recipe.run.seed = 9;
    let around =
        Surroundings { observer: &parm_training::fit::Unobserved, stop: &Stop::default(), files: &files };
    let other = train(materials, &recipe, Device::Cpu, around).map(|trained| trained.models);
    assert!(matches!(other, Err(Error::Checkpoint(_))), "{other:?}");
}

#[test]
fn bundle_with_several_codes_verifies() {
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
    for recipe in [recipe(Kind::Slots, 2), recipe(Kind::Sum, 2), recipe(Kind::Slots, 2)] {
        let trained = trained(&deployed, &recipe).expect("it trains");
        let materials = untaught(&rows, &deployed);
        let accuracy = examine(materials, &trained, None, Device::Cpu).expect("it is examined").accuracy();
        let entry = CodeRecord {
            code: &trained.code,
            training: Default::default(),
            accuracy,
            calibration: trained.calibration,
        };
        publish(&publication, &entry, &trained.models).expect("it is published");
    }
    let repository = Repository::open(root.path()).expect("a repository");
    let report = verify(&repository, "small").expect("a bundle");
    assert!(report.is_sound(), "{report:?}");
    // The second publication replaced the first entry of the code.
    assert_eq!(report.parities.len(), 2);
}

#[test]
fn engine_and_interpreted_graph_teach_equally() {
    struct Engine(Network);
    impl Teacher for Engine {
        fn predict(&self, rows: &Array<f32>) -> Result<Array<f32>, Error> {
            Teacher::predict(&self.0, rows)
        }
    }
    let bytes = deployed();
    let deployed = model(&bytes);
    let recipe = recipe(Kind::Slots, 2);
    let own = trained(&deployed, &recipe).expect("it trains");
    let rows = samples(600, 2);
    let engine = Engine(Network::new(model(&bytes), Device::Cpu).expect("a network"));
    let outputs = engine.predict(&rows.inputs).expect("outputs");
    for (teacher, outputs) in [(Some(&engine as &dyn Teacher), None), (None, Some(&outputs))] {
        let materials = Materials { samples: &rows, graph: &deployed, teacher, outputs };
        let trained = alone(|around| train(materials, &recipe, Device::Cpu, around)).expect("it trains");
        assert_eq!(trained.models, own.models);
    }
}

#[test]
fn mismatched_data_is_rejected_before_a_run() {
    let deployed = model(&deployed());
    let rows = samples(600, 2);
    let refused = |rows: &parm_training::data::Samples,
                   recipe: &ParityRecipe,
                   outputs: Option<&Array<f32>>| {
        let materials = Materials { samples: rows, graph: &deployed, teacher: None, outputs };
        alone(|around| train(materials, recipe, Device::Cpu, around)).map(|_| ()).expect_err("it is wrong")
    };
    let usual = recipe(Kind::Slots, 2);

    let mut shuffled = rows.clone();
    shuffled.labels =
        rows.labels.clone().map(|labels| labels.iter().map(|label| (label + 1) % CLASSES).collect());
    assert!(matches!(refused(&shuffled, &usual, None), Error::WrongLabels { .. }));
    let mut unknown = rows.clone();
    unknown.labels.iter_mut().flatten().for_each(|label| *label += 1);
    assert!(matches!(refused(&unknown, &usual, None), Error::Label { row: 2, label: 3, classes: 3 }));

    let mut tall = rows.clone();
    tall.inputs = rows.inputs.clone().reshape(vec![600, 1, SIDE * SIDE, 1]).expect("the same pixels");
    assert!(matches!(refused(&tall, &usual, None), Error::RowShape { .. }));

    let short = Array::full(vec![599, CLASSES], 0.0);
    assert_eq!(refused(&rows, &usual, Some(&short)), Error::OutputRows { rows: 600, outputs: 599 });
    let mut broken = Array::full(vec![600, CLASSES], 0.0);
    broken.data_mut()[3 * CLASSES] = f32::NAN;
    assert!(matches!(refused(&rows, &usual, Some(&broken)), Error::Output { row: 3, .. }));

    let few = samples(9, 2);
    assert!(matches!(refused(&few, &usual, None), Error::TooFew { rows: 1, wanted: 2 }));
    let diverging = ParityRecipe { loss: Some(Loss::Kl), ..recipe(Kind::Sum, 2) };
    assert_eq!(refused(&rows, &diverging, None), Error::LossOfSums);
    let alone = ParityRecipe { k: 1, ..usual.clone() };
    assert!(matches!(refused(&rows, &alone, None), Error::Setting { .. }));
    let untrained = ParityRecipe { encoder: Kind::Mds, ..usual };
    assert!(matches!(refused(&rows, &untrained, None), Error::Untrained { kind: Kind::Mds }));
}

#[test]
fn nan_loss_ends_the_run() {
    let deployed = model(&deployed());
    let mut recipe = recipe(Kind::Sum, 2);
    recipe.run.rate = 1e30;
    assert!(matches!(trained(&deployed, &recipe), Err(Error::Diverged { epoch: 1, .. })));
}

#[test]
#[cfg(target_os = "linux")]
fn checkpoint_is_kept_when_the_next_cannot_be_written() {
    let deployed = model(&deployed());
    let rows = samples(600, 2);
    let folder = tempfile::tempdir().expect("a folder");
    let [short, long] =
        ["run", &"c".repeat(240)].map(|name| folder.path().join(format!("{name}.checkpoint")));
    let materials = untaught(&rows, &deployed);
    let run = |steps: u32, checkpoint: &std::path::Path| {
        let files = Files { checkpoint: Some(checkpoint.to_owned()), ..Files::default() };
        let stop = Stop::default();
        let observer = Impatient { stop: &stop, steps: Cell::new(steps) };
        let around = Surroundings { observer: &observer, stop: &stop, files: &files };
        train(materials, &recipe(Kind::Slots, 2), Device::Cpu, around).map(|trained| trained.models)
    };
    assert!(matches!(run(20, &short), Err(Error::Stopped { .. })));
    let before = std::fs::read(&short).expect("a checkpoint");
    // The name leaves no room for that of a draft.
    std::fs::rename(&short, &long).expect("renamed");
    let failed = run(5, &long).expect_err("no draft can be written");
    assert!(failed.to_string().contains("name too long"), "{failed}");
    assert_eq!(std::fs::read(&long).expect("a checkpoint"), before);
    assert!(std::fs::read_dir(folder.path()).expect("a folder").count() == 1);
    std::fs::rename(&long, &short).expect("renamed");
    let whole = alone(|around| train(materials, &recipe(Kind::Slots, 2), Device::Cpu, around));
    assert_eq!(run(u32::MAX, &short).expect("it ends"), whole.expect("it ends").models);
}
