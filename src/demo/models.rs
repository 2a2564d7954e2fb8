//! The models and queries of the demo: the binary's own files, loaded once for all policies.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use parm_backend::{Embedded, Metrics};
use parm_loadgen::grader::Grader;
use parm_loadgen::inputs::{Column, Inputs, Recorded};
use parm_protocol::ModelRef;
use parm_protocol::client::Client as _;
use prometheus::Registry;

use super::policy::Policy;
use crate::example::Example;

/// Runs that measure a model.
const RUNS: u32 = 15;

/// The servers, which the policies share: they run models for a small part of the time that the demo emulates.
pub struct Models {
    pub folder: PathBuf,
    pub servers: Vec<Embedded>,
    images: PathBuf,
    /// The time of one row on this machine.
    run_times: BTreeMap<String, Duration>,
}

impl Models {
    /// Loads and measures the models of some policies. Blocks while they load.
    pub async fn load(example: &Example, policies: &[Policy]) -> anyhow::Result<Self> {
        let mut names: Vec<String> =
            policies.iter().flat_map(|policy| policy.models).map(|name| (*name).into()).collect();
        names.sort_unstable();
        names.dedup();
        let config = parm_backend::Config {
            models: Some(example.models()),
            load: names.clone(),
            instances: policies
                .iter()
                .filter_map(|policy| NonZeroUsize::new(policy.servers))
                .max()
                .context("no policy to compare")?,
            reload: Duration::ZERO,
            warm_up_runs: RUNS,
            measure: Duration::ZERO,
            ..parm_backend::Config::default()
        };
        let servers = Embedded::start(config, Metrics::embedded(&Registry::new())?)
            .with_context(|| format!("cannot load {names:?}"))?;
        let mut run_times = BTreeMap::new();
        for name in names {
            let config = servers[0].model_config(&ModelRef::latest(&name)).await?;
            let time = config.run_times().first().copied();
            run_times.insert(name.clone(), time.with_context(|| format!("'{name}' was not loaded"))?);
        }
        Ok(Self { folder: example.models(), servers, images: example.images(), run_times })
    }

    /// Returns the cost of a run of each model, as a share of a query's run by `deployed`. The demo emulates run times: a
    /// stand-in or a parity model takes the same share of an emulated run that it takes of a real one.
    pub fn costs(&self, deployed: &str) -> BTreeMap<String, f64> {
        let query = self.run_times.get(deployed).map_or(1.0, Duration::as_secs_f64);
        let cost = |(name, time): (&String, &Duration)| (name.clone(), time.as_secs_f64() / query);
        self.run_times.iter().map(cost).collect()
    }

    /// Returns requests of labelled images, which no model was trained on, and what grades the answers.
    pub async fn traffic(&self, model: &str) -> anyhow::Result<(Inputs, Grader)> {
        let model = self.servers[0].model_metadata(&ModelRef::latest(model)).await?;
        let images = Column { input: None, path: self.images.join("images-idx3-ubyte.gz") };
        let recorded = Recorded::read(&model, &[images], 1)?;
        let recorded = recorded.with_labels(&self.images.join("labels-idx1-ubyte.gz"))?;
        Ok((Inputs::Recorded(recorded), Grader::new(&model, None)?))
    }
}
