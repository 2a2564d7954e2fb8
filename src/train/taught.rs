//! Reads the input of a run that learns from a deployed model.

use std::path::Path;

use anyhow::ensure;
use parm_parity_models::bundle::Meaning;
use parm_parity_models::onnx::{Limits, Model};
use parm_training::data::Samples;
use parm_training::evaluate::Metric;
use parm_training::parity::{Materials, Publication};
use parm_training::{Device, Network, Teacher};

use super::engine::BlackBox;
use super::run::device;
use super::{Deployed, captured, samples};
use crate::cli::train as flags;

/// Number of inputs and outputs that a training supports.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    One,
    Several,
}

/// The input of a run.
pub struct Taught {
    pub device: Device,
    pub deployed: Deployed,
    pub architecture: Option<Model>,
    test: Option<Samples>,
    pub metric: Option<Metric>,
    data: Samples,
    /// Source of the target outputs, if that is not the graph that is trained.
    teacher: Option<Box<dyn Teacher>>,
}

impl Taught {
    /// Reads the files that the flags name; `architecture` is the file of another network.
    pub fn read(
        given: &flags::Teaching,
        architecture: Option<&Path>,
        run: &flags::Run,
        ends: Ends,
    ) -> anyhow::Result<Self> {
        let deployed = Deployed::find(&given.deployed, given.name.as_deref(), &run.models)?;
        let found = deployed.model.inspect();
        let outputs_of_floats = found.outputs.iter().filter(|output| output.datatype.is_float()).count();
        let several = found.inputs.len();
        ensure!(
            several == 1 || ends == Ends::Several,
            "the model has {several} inputs, but codes need one: train a stand-in"
        );
        ensure!(
            outputs_of_floats == 1 || ends == Ends::Several,
            "the model has {outputs_of_floats} outputs of floats, but codes reconstruct one: train a stand-in"
        );
        let open = |path: &Path| Model::open(path, &Limits::default());
        let device = device(run)?;
        let rows = |source: &str| match captured::read(source, &deployed)? {
            Some(rows) => Ok(rows),
            None => samples(source, several),
        };
        let data = rows(&given.data)?;
        let test = given.test.as_deref().map(rows).transpose()?;
        let parts = test.as_ref().map_or(&data.parts, |test| &test.parts);
        ensure!(
            *parts == data.parts,
            "the inputs have other sizes in --test than in --data: give both the same sizes"
        );
        let teacher: Option<Box<dyn Teacher>> = match &given.engine {
            Some(engine) => {
                let model = BlackBox::load(engine, &deployed.path)?.taking(&data);
                Some(Box::new(if ends == Ends::Several { model.saying_all() } else { model }))
            }
            None if architecture.is_some() => {
                let network = Network::new(open(&deployed.path)?, device)?.taking(&data)?;
                Some(Box::new(if ends == Ends::Several { network.saying_all()? } else { network }))
            }
            None => None,
        };
        Ok(Self {
            device,
            architecture: architecture.map(open).transpose()?,
            teacher,
            metric: given.metric.as_deref().map(str::parse).transpose()?,
            deployed,
            data,
            test,
        })
    }

    /// Returns the training data.
    pub fn materials(&self) -> Materials<'_> {
        Materials {
            samples: &self.data,
            graph: self.architecture.as_ref().unwrap_or(&self.deployed.model),
            teacher: self.teacher.as_deref(),
            outputs: None,
        }
    }

    /// Returns the test data, which training did not see, if given.
    pub fn unseen(&self) -> Option<Materials<'_>> {
        let samples = self.test.as_ref()?;
        Some(Materials { samples, ..self.materials() })
    }

    /// Returns the destination of the result.
    pub fn publication<'a>(&'a self, meaning: Meaning, root: &'a Path) -> Publication<'a> {
        Publication {
            root,
            name: &self.deployed.name,
            deployed: self.deployed.model.bytes(),
            meaning,
            samples: &self.data,
        }
    }
}
