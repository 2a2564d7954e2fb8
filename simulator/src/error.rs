//! What can be wrong with an experiment.

/// An error of the simulator.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Error {
    #[error("there is no policy '{name}': define [policy.{name}], or use one of {known}")]
    UnknownPolicy { name: String, known: String },
    #[error("there is no scenario '{name}': define [scenario.{name}], or use one of {known}")]
    UnknownScenario { name: String, known: String },
    #[error("a load of {load}: give a share of the deployed instances' capacity above 0")]
    BadLoad { load: f64 },
    #[error("a {what} model of {share} of the deployed model's time: give a share from 0 to 100")]
    BadShare { what: &'static str, share: f64 },
    #[error("{warm_up} of {queries} queries are warm-up: leave some to count")]
    AllWarmUp { warm_up: u64, queries: u64 },
    #[error(
        "policy '{policy}' has {instances} instances of which {parity} are for parities: leave some for the deployed model"
    )]
    NoDeployedInstance { policy: String, instances: u32, parity: u32 },
    #[error("there is nothing to simulate: name at least one {what}")]
    Nothing { what: &'static str },
    #[error(transparent)]
    Load(#[from] parm_loadgen::Error),
    #[error(transparent)]
    Faults(#[from] parm_faults::Error),
    #[error("the experiment file cannot be used: {0}")]
    File(String),
}
