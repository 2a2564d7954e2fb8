//! Trials: train the code of one cell and measure it on rows that no training saw.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::deployed::Deployed;
use super::run::Loaded;
use super::{Cell, Clock, Outcome, Runs};
use crate::evaluate::{self, Groups, Metric};
use crate::fit::Surroundings;
use crate::parity::{self, Materials, ParityRecipe, TrainedParities};
use crate::{Device, Error, Marks, code, file};

/// The inputs of a cell's training.
pub(super) struct Trial<'a> {
    pub(super) cell: &'a Cell,
    pub(super) data: &'a Loaded,
    pub(super) deployed: &'a Deployed,
    pub(super) device: Device,
    pub(super) clock: &'a Clock<'a>,
    /// The path of a parity model while it is timed.
    pub(super) scratch: &'a Path,
    pub(super) around: Surroundings<'a>,
}

impl Trial<'_> {
    /// Trains parity models.
    pub(super) fn parities(&self, recipe: &ParityRecipe) -> Result<Outcome, Error> {
        let (data, deployed) = (self.data, self.deployed);
        let answers = deployed.answers.as_deref();
        let outputs = answers.map(|answers| &answers.train);
        let materials = Materials { samples: &data.train, graph: &deployed.graph, teacher: None, outputs };
        let trained = parity::train(materials, recipe, self.device, self.around)?;
        let test =
            Materials { samples: &data.test, outputs: answers.map(|answers| &answers.test), ..materials };
        let report = parity::examine(test, &trained, Some(data.measure.metric()), self.device)?;
        let single = report.degraded.first();
        Ok(Outcome {
            cell: self.cell.clone(),
            key: String::new(),
            available: report.available,
            degraded: report.degraded(),
            two_lost: report.degraded.get(1).map(|degraded| degraded.score),
            gap_error: single.and_then(|degraded| degraded.gap_error),
            gap_held_out: self.held_out(&trained.marks),
            agreement: single.map(|degraded| degraded.agreement),
            calibration_error: report.calibration_error,
            costs: self.costs(&trained)?,
            constant: report.constant_answer,
            reconstructions: single.map_or(0, |degraded| degraded.reconstructions),
            epochs: recipe.run.epochs,
            groups: trained.groups,
            samples: trained.samples,
            seconds: trained.history.iter().map(|epoch| epoch.seconds).sum(),
        })
    }

    /// Trains encoder and decoder.
    pub(super) fn learned(&self, recipe: &code::CodeRecipe) -> Result<Outcome, Error> {
        let Loaded { train, test, .. } = self.data;
        let trained = code::train(train, Some(test), &self.deployed.graph, recipe, self.device, self.around)?;
        let marks = trained.tested.as_ref().unwrap_or(&trained.marks);
        let (counts, rows) = (test.classes(), test.inputs.shape()[0]);
        Ok(Outcome {
            cell: self.cell.clone(),
            key: String::new(),
            available: marks.available,
            degraded: marks.degraded,
            two_lost: None,
            gap_error: marks.gap_error,
            gap_held_out: self.held_out(&trained.marks),
            agreement: None,
            calibration_error: None,
            costs: BTreeMap::new(),
            constant: counts.iter().max().map_or(0.0, |&most| most as f64 / rows as f64),
            reconstructions: marks.reconstructions,
            epochs: recipe.run.epochs,
            groups: trained.groups,
            samples: trained.samples,
            seconds: trained.history.iter().map(|epoch| epoch.seconds).sum(),
        })
    }

    /// A_a - A_d on held-out rows, if these were judged as the test rows are.
    fn held_out(&self, marks: &Marks) -> Option<f64> {
        (self.data.measure.metric() == Metric::TOP_1).then_some(marks.available - marks.degraded)
    }

    /// The cost of the first parity model; all models of a code have the same layers.
    fn costs(&self, trained: &TrainedParities) -> Result<BTreeMap<String, f64>, Error> {
        let rows = &self.data.test.inputs;
        let groups = Groups::draw(rows.shape()[0], trained.code.k, 1)?;
        let Some(group) = groups.parts(1).next() else { return Ok(BTreeMap::new()) };
        let coded = evaluate::encode(&*trained.code.build()?, &group, rows)?;
        let (deployed, query, parity) = (&*self.deployed.file, &rows.range(0, 1), self.scratch);
        file::write(parity, &trained.models[0])?;
        let costs = (self.clock)(Runs { deployed, query, parity, coded: &coded[0] });
        // A file that remains does no harm.
        let _ = fs::remove_file(parity);
        Ok(costs)
    }
}
