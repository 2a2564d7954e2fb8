//! The flags of `parm ctl` and `parm top`.

use clap::{Args, Subcommand};

use super::Output;
use super::identity::Identity;

pub const CTL_EXAMPLES: &str = "Examples:
  parm ctl set resnet50 stand_in.bound=0.02 policy=stand-in
      changes a model's settings; without a model those for all
  parm ctl drain 3
      instance 3 gets no more work and ends what it holds; parm ctl return 3 puts it back
  parm ctl query 0000002a00000007
      who had this query, and why it was answered as it was
  PARM_KEY=... parm ctl instances --url https://parm.example:8003 --ca ca.pem
      another frontend, which speaks TLS and wants a key";

pub const TOP_EXAMPLES: &str = "Examples:
  parm top
      the frontend whose admin API is at http://127.0.0.1:8003, until Ctrl-C
  parm top --once
      one second of it, for scripts";

/// Where a frontend's admin API is.
#[derive(Debug, Args)]
pub struct Reach {
    /// Address of the admin API
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8003", global = true)]
    pub url: String,
    /// A key that it knows
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
    /// `text` for people, `json` for programs
    #[arg(long, value_enum, default_value_t = Output::Text, global = true)]
    pub output: Output,
    #[command(subcommand)]
    pub command: CtlCommand,
}

#[derive(Debug, Subcommand)]
pub enum CtlCommand {
    /// List the instances
    Instances,
    /// List the shares of the instances' time: what each used, what its weight gave it, and what waits
    Shares,
    /// Show the settings that a model follows; without a model those for all
    Settings {
        /// The model
        model: Option<String>,
    },
    /// Change settings of a model, or without one those for all, until the frontend ends
    Set {
        /// The model, then fields by their paths: `stand_in.bound=0.02`. Values are JSON, or words where they are no JSON;
        /// null restores the default
        #[arg(required = true, value_name = "MODEL | PATH=VALUE")]
        changes: Vec<String>,
    },
    /// Give instances no more work; they end what they hold
    Drain {
        /// Their numbers
        #[arg(required = true)]
        numbers: Vec<u32>,
    },
    /// Put instances back to work that were drained or ejected
    Return {
        /// Their numbers
        #[arg(required = true)]
        numbers: Vec<u32>,
    },
    /// Take instances' work away at once, to be done elsewhere
    Eject {
        /// Their numbers
        #[arg(required = true)]
        numbers: Vec<u32>,
    },
    /// List the latest queries that are kept: all that were not answered by their own prediction or late, and a few others
    Queries {
        /// Of this model only
        #[arg(long, value_name = "NAME")]
        model: Option<String>,
        /// With this outcome only, such as stand-in
        #[arg(long, value_name = "NAME")]
        outcome: Option<String>,
        /// The slowest first
        #[arg(long)]
        slowest: bool,
        /// So many at most
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: u32,
    },
    /// Say who had a query, and why it was answered as it was
    Query {
        /// Its id of 16 digits, or the id that the client gave its request
        id: String,
    },
}

pub const CHECK_EXAMPLES: &str = "Examples:
  parm check parm.toml
      before it is served: ports, engine, models, bundles, whether workers are there and agree
  parm check http://127.0.0.1:8003
      a running frontend, by its admin API: who is slow, out of service, or not what was wished for";

/// `parm check`.
#[derive(Debug, Args)]
pub struct Check {
    /// A configuration file of `parm serve`, or the address of a running frontend's admin API
    #[arg(value_name = "URL | FILE")]
    pub what: String,
    /// A key that the admin API knows
    #[arg(long, value_name = "KEY", env = "PARM_KEY", hide_env_values = true)]
    pub key: Option<String>,
    #[command(flatten)]
    pub identity: Identity,
}

/// `parm top`.
#[derive(Debug, Args)]
pub struct Top {
    #[command(flatten)]
    pub reach: Reach,
    /// Show one second and end
    #[arg(long)]
    pub once: bool,
}
