//! Flags of `parm ctl` and `parm top`.

use clap::{Args, Subcommand};

use super::Output;
use super::identity::Identity;

pub const CTL_EXAMPLES: &str = "Examples:
  parm ctl set resnet50 stand_in.bound=0.02 policy=stand-in
      change the settings of a model
  parm ctl drain 3
      take instance 3 out of service; parm ctl return 3 puts it back
  parm ctl query 0000002a00000007
      the story of a query
  PARM_KEY=... parm ctl instances --url https://parm.example:8003 --ca ca.pem
      a frontend with TLS and keys";

pub const TOP_EXAMPLES: &str = "Examples:
  parm top
      updates every second, until Ctrl-C
  parm top --once
      prints one second, for scripts";

/// The admin API of a frontend.
#[derive(Debug, Args)]
pub struct Reach {
    /// Address of the admin API
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8003", global = true)]
    pub url: String,
    /// Key for the admin API
    #[arg(long, value_name = "KEY", env = "PARM_KEY", hide_env_values = true, global = true)]
    pub key: Option<String>,
    #[command(flatten)]
    pub identity: Identity,
}

/// `parm ctl`.
#[derive(Debug, Args)]
pub struct Ctl {
    #[command(flatten)]
    pub reach: Reach,
    /// Form of the output
    #[arg(long, value_enum, default_value_t = Output::Text, global = true)]
    pub output: Output,
    #[command(subcommand)]
    pub command: CtlCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub enum CtlCommand {
    /// List the models with their latencies, the rows of a batch and the used share of the latency objective
    Models,
    /// List the instances
    Instances,
    /// List the shares of the instances' time, with use, weight and waiting queries
    Shares,
    /// Show the settings of a model, or those for all
    Settings {
        /// Model
        model: Option<String>,
    },
    /// Change settings of a model, or those for all, until the frontend ends
    Set {
        /// Model, if any, then fields by path: `stand_in.bound=0.02`. Values are JSON or words; null restores the default
        #[arg(required = true, value_name = "MODEL | PATH=VALUE")]
        changes: Vec<String>,
    },
    /// Print the settings that differ from the defaults as a configuration file
    Export,
    /// Add instances until the frontend ends
    Add {
        /// Addresses, as in `--worker` or `--upstream`
        #[arg(required = true, value_name = "URL")]
        urls: Vec<String>,
    },
    /// Remove instances; they finish their jobs
    Remove {
        /// Numbers or addresses of the instances
        #[arg(required = true, value_name = "INSTANCE")]
        instances: Vec<String>,
        /// Also the last instances of a model
        #[arg(long)]
        force: bool,
    },
    /// Stop sending work to instances; they finish their jobs
    Drain {
        /// Numbers or addresses of the instances
        #[arg(required = true, value_name = "INSTANCE")]
        instances: Vec<String>,
        /// Also the last instances of a model
        #[arg(long)]
        force: bool,
    },
    /// Return drained or ejected instances to service
    Return {
        /// Numbers or addresses of the instances
        #[arg(required = true, value_name = "INSTANCE")]
        instances: Vec<String>,
    },
    /// Move the jobs of instances to others at once
    Eject {
        /// Numbers or addresses of the instances
        #[arg(required = true, value_name = "INSTANCE")]
        instances: Vec<String>,
        /// Also the last instances of a model
        #[arg(long)]
        force: bool,
    },
    /// List the kept events: ejections, outages, changes
    Events,
    /// List the latest queries: late ones, those without their own prediction, and a few others
    Queries {
        /// Model of the queries
        #[arg(long, value_name = "NAME")]
        model: Option<String>,
        /// Outcome of the queries
        #[arg(long, value_name = "NAME", value_parser = OUTCOMES)]
        outcome: Option<String>,
        /// Slowest first
        #[arg(long)]
        slowest: bool,
        /// Largest number of queries
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: u32,
    },
    /// Show the instances of a query and the reason for its answer
    Query {
        /// Id of 16 digits, or the client's id of the request
        id: String,
    },
}

/// Outcomes of queries: those of answers, then of errors.
const OUTCOMES: [&str; 8] =
    ["exact", "hedged", "reconstructed", "stand-in", "backup", "default", "rejected", "failed"];

/// `parm top`.
#[derive(Debug, Args)]
pub struct Top {
    #[command(flatten)]
    pub reach: Reach,
    /// Print one second, then exit
    #[arg(long)]
    pub once: bool,
}
