//! The command line: commands, flags and their help.
//!
//! The configuration file has the same settings by their paths.

pub mod data;
pub mod evaluate;
pub mod train;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::load::Load;
use crate::{ctl, doctor, experiment, keys, record, run, stand_in, top, tune};

/// Coded resilience for prediction serving: a slow or dead replica no longer shows in your p99.9.
#[derive(Debug, Parser)]
#[command(name = "parm", version, propagate_version = true, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show in 20 seconds what slow and frozen servers do to a usual load balancer, to hedging and to stand-ins
    ///
    /// Serves the bundled classifier on twelve servers for each policy and sends all of them the same requests, while first two
    /// servers are slow and then one is frozen. Predictions are real, service times are emulated.
    #[command(after_long_help = DEMO_EXAMPLES)]
    Demo(Demo),
    /// Serve models to clients: a frontend over embedded instances, remote workers, or both
    ///
    /// Serves the Open Inference Protocol over HTTP and gRPC, batches and dispatches queries to instances, and hides slow and
    /// failing ones. Without `--worker` and `--upstream` it runs the models itself, on `--instances`
    /// threads: those of `--models`, or of the folder `models`, or else the binary's example.
    #[command(after_long_help = SERVE_EXAMPLES)]
    Serve(Box<Serve>),
    /// Start copies of a server of any kind and serve them: restart one that ends, hide one that is slow or frozen
    ///
    /// Starts the command `--replicas` times on free ports, waits until each copy answers, and sends it clients' requests like
    /// `parm serve --upstream`. The copies' output has their numbers in front. When parm ends, it first answers accepted requests
    /// and then ends the copies.
    #[command(after_long_help = run::EXAMPLES)]
    Run(run::Run),
    /// Serve models on this machine, without redundancy, as a worker of `parm serve --worker URL`
    #[command(after_long_help = WORKER_EXAMPLES)]
    Worker(Box<Worker>),
    /// Inspect a model repository
    Models(Models),
    /// Send load to a server of the Open Inference Protocol, or of a language model, and report its tail latency
    ///
    /// Requests follow a schedule, whether or not earlier ones are answered, and latency counts from the scheduled time. The
    /// report marks quantiles with too few samples and invalid runs.
    #[command(after_long_help = LOAD_EXAMPLES)]
    Load(Box<Load>),
    /// Simulate policies under load and faults in virtual time, with the dispatcher of `parm serve`
    ///
    /// Every policy gets the same arrivals, service times and faults. Prints quantiles, 95 % intervals of them as JSON, and the gap
    /// p99.9 - p50 compared with that of `equal`.
    #[command(after_long_help = SIMULATE_EXAMPLES)]
    Simulate(Simulate),
    /// Run an experiment: policies under load and faults, with real processes or in virtual time
    ///
    /// Starts the workers of the file, or uses those that it names, and a frontend for every run. Writes raw data, JSON and a
    /// report to a folder. Ctrl-C ends it early and keeps the results so far.
    #[command(after_long_help = experiment::EXAMPLES)]
    Experiment(experiment::Experiment),
    /// Find the policy and settings that answer the most queries in time, by simulation
    ///
    /// Searches policies, codes, the time after which a query is late, hedge budgets, batches and splits, under arrivals,
    /// service times and faults that you give or record. Prints a ranked table. Writes a configuration for `parm serve`.
    #[command(after_long_help = tune::EXAMPLES)]
    Tune(Box<tune::Tune>),
    /// Record arrivals and service times of a running frontend, for `parm tune` and `parm simulate`
    ///
    /// Records no data of clients, only times of queries and of jobs.
    #[command(after_long_help = record::EXAMPLES)]
    Record(record::Record),
    /// Inspect and change a running frontend: settings, instances, queries
    ///
    /// Does the same as the admin page, and prints the changes. It does not write the configuration file.
    #[command(after_long_help = ctl::EXAMPLES)]
    Ctl(ctl::Ctl),
    /// Say what is wrong with a running frontend, a configuration, a model repository or a recorded tail, and what to do
    ///
    /// Prints a line for each check of a frontend, a configuration or a repository, and ends with status 1 if a check fails.
    /// Replays a recording by simulation, then without one cause of its tail at a time: slow instances, stalls, long inputs,
    /// varying service times, queueing. Explains the code of an error, such as PARM-0007.
    #[command(after_long_help = doctor::EXAMPLES, aliases = ["check", "explain", "why"])]
    Doctor(Box<doctor::Doctor>),
    /// Watch a running frontend in the terminal: tails by model, slow instances, events
    #[command(after_long_help = top::EXAMPLES)]
    Top(top::Top),
    /// Make and list keys of clients, with roles and limits
    ///
    /// A server reads their digests from the file `server.keys_file`, and reads it again when it changes.
    #[command(after_long_help = keys::EXAMPLES)]
    Keys(keys::Keys),
    /// Make a stand-in, a cheaper model for late queries, from an ONNX file and a few rows
    ///
    /// Rewrites and quantises the graph, measures the cost and agreement of each candidate on this engine and machine, and
    /// bundles the most accurate within `--cost`, for `parm serve --policy stand-in`.
    #[command(name = "stand-in", after_long_help = stand_in::EXAMPLES)]
    StandIn(Box<stand_in::StandInSearch>),
    /// Train base models, parity models and learned codes (needs a build with `--features train`)
    ///
    /// Takes an ONNX model and rows of data, and writes a bundle for `parm serve`. An interrupted run continues from its
    /// checkpoint.
    #[command(after_long_help = train::EXAMPLES)]
    Train(train::Train),
    /// Measure the accuracy of reconstructions, code by code (needs a build with `--features train`)
    ///
    /// Prints three accuracies for every code: A_a of predictions, A_d of reconstructions, A_o of all answers when some
    /// predictions are unavailable. Compares them with a constant answer and, if given, a backup model.
    #[command(after_long_help = evaluate::EXAMPLES)]
    Evaluate(Box<evaluate::Evaluate>),
    /// Save rows as arrays (needs a build with `--features train`)
    #[command(after_long_help = data::EXAMPLES)]
    Data(data::Data),
    /// Print a shell completion script
    #[command(after_long_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
    /// Write manual pages, one for every command
    #[command(after_long_help = MAN_EXAMPLES)]
    Man {
        /// Folder for the pages
        folder: PathBuf,
    },
}

const COMPLETIONS_EXAMPLES: &str = "Examples:
  source <(parm completions bash)
  parm completions zsh > ~/.zfunc/_parm";

const MAN_EXAMPLES: &str = "Examples:
  parm man ~/.local/share/man/man1
      and then: man parm-serve";

const DEMO_EXAMPLES: &str = "Examples:
  parm demo
  parm demo --policies hedge,parm+,exact
      codes on idle servers: with parity models, and exact with a linear model
  parm demo --policies equal,parm --seconds 300
      the paper's policy and its baseline, 18 servers each";

const SERVE_EXAMPLES: &str = "Examples:
  parm serve
      the binary's example, unless there is a folder named models: magika and fashion-lenet with its stand-in
  parm serve --models models --instances 4
      everything in one process: HTTP on port 8000, gRPC on 8001, metrics on 8002
  parm serve --worker http://10.0.0.5:8000 --worker grpc://10.0.0.6:8001 --policy hedge
      in front of two servers (parm worker, Triton, MLServer, ...)
  parm serve --upstream http://10.0.0.5:8080 --upstream http://10.0.0.6:8080
      in front of two servers of any kind (vLLM, TEI, TF Serving, your own FastAPI, ...)";

const WORKER_EXAMPLES: &str = "Examples:
  parm worker --models models --http 0.0.0.0:8000 --grpc 0.0.0.0:8001
  parm worker --models models --engine ort --set backend.engine.threads=4
  parm worker --models models --unix /run/parm/worker.sock
  parm worker --emulate-chat tiny --faults
      POST /v1/chat/completions, without a model";

const LOAD_EXAMPLES: &str = "Examples:
  parm load http://127.0.0.1:8000 --model magika --rate 50 --seconds 60
      Poisson arrivals
  parm load grpc://127.0.0.1:8001 --model magika --rate 200 --seconds 300 --require 'p99.9<=50ms' --require 'failed<=0%'
      ends with status 1 unless both hold
  parm load http://127.0.0.1:8000 --model mnist --rate 200 --input images.idx.gz --labels labels.idx.gz --samples run.csv
      real rows, accuracy by outcome, every request in a file
  parm load http://127.0.0.1:8000 --openai --model tiny --arrivals trace:conv.csv --speed 1.4
      recorded chats, 1.4 times as fast: time to first token, time between tokens, tokens per second

See docs/load.md for the meaning of the figures.";

const SIMULATE_EXAMPLES: &str = "Examples:
  parm simulate --scenario AB --load 0.5 --load 0.85
      all policies on 18 instances of 20 ms, under stragglers and interference
  parm simulate --scenario hosts+A --profile sick-gpu --policy equal --policy hedge
      slowness as it was measured: slow hosts with stragglers, and a GPU that is slow for good
  parm simulate experiment.toml --repeats 5 --output json
      your own policies, scenarios and service times
  parm simulate --recording busy-hour.jsonl --policy equal --policy hedge --policy parm+
      recorded traffic with other policies";

/// `parm demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// Length of the traffic
    #[arg(long, default_value_t = 17.0)]
    pub seconds: f64,
    /// Policies to compare: least-requests, hedge, stand-in, parm+, exact, parm, equal
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "least-requests,hedge,stand-in"
    )]
    pub policies: Vec<crate::demo::Policy>,
    /// Requests per second to each policy; twelve servers can answer 1200
    #[arg(long, default_value_t = 400.0)]
    pub rate: f64,
    /// Seed of arrivals, service times and stragglers
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Form of the output
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// Flags of `parm serve`, `parm worker` and `parm run`.
#[derive(Clone, Debug, Default, Args)]
pub struct Common {
    /// Configuration file (TOML); flags and `PARM_SECTION__FIELD` variables override it
    #[arg(long, short, value_name = "FILE", env = "PARM_CONFIG")]
    pub config: Option<PathBuf>,
    /// Any setting by its path, as TOML (repeat): `--set server.drain_delay_ms=5000`
    #[arg(long, value_name = "PATH=VALUE")]
    pub set: Vec<String>,
    /// Print the whole configuration in use, then exit
    #[arg(long)]
    pub dump_config: bool,
    /// Address for HTTP clients [default: 127.0.0.1:8000]
    #[arg(long, value_name = "ADDRESS")]
    pub http: Option<String>,
    /// Address for gRPC clients [default: 127.0.0.1:8001]
    #[arg(long, value_name = "ADDRESS")]
    pub grpc: Option<String>,
    /// Address of Prometheus metrics [default: 127.0.0.1:8002]
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<String>,
    /// Unix socket for HTTP clients, next to the address
    #[arg(long, value_name = "PATH")]
    pub unix: Option<PathBuf>,
    /// Format of log lines
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub log_format: Option<crate::logging::Format>,
    /// File for the bound addresses as JSON, written once the server listens and its own models are loaded
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
}

/// Flags about the models of a process.
#[derive(Debug, Default, Args)]
pub struct Hosting {
    /// Exit with an error if a model does not load, instead of serving the others
    #[arg(long)]
    pub exit_on_error: bool,
    /// Model repository, with NAME/VERSION/model.onnx
    #[arg(long, value_name = "FOLDER")]
    pub models: Option<PathBuf>,
    /// Instances: threads that run models [default: 1; none in a frontend over workers]
    #[arg(long, value_name = "N")]
    pub instances: Option<usize>,
    /// Engine: ort (ONNX Runtime), tract (built in), or auto [default: auto]
    #[arg(long, value_name = "NAME")]
    pub engine: Option<String>,
    /// Device: `cpu`, `cuda:N`, or `cuda:N,cpu` for the CPU if the card cannot be used [default: cpu]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
}

/// `parm serve`.
#[derive(Debug, Default, Args)]
pub struct Serve {
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    pub hosting: Hosting,
    /// A model file or a folder, for the error that says where it belongs
    #[arg(value_name = "PATH", hide = true, conflicts_with = "models")]
    pub file: Option<PathBuf>,
    /// Server that runs models (repeat): http://HOST:PORT, grpc://HOST:PORT or unix:/PATH; with TLS https:// or grpcs://.
    /// dns+http://HOST:PORT and srv+http://_SERVICE._tcp.DOMAIN stand for all servers of a name,
    /// kubernetes+http://SERVICE[.NAMESPACE]:PORT for the pods of a Service
    #[arg(long, value_name = "URL")]
    pub worker: Vec<String>,
    /// Server of any kind (repeat), which gets HTTP requests as they are: vLLM, TEI, TF Serving, your own FastAPI. Addresses as
    /// for --worker
    #[arg(long, value_name = "URL")]
    pub upstream: Vec<String>,
    /// Path of --upstream servers that they may run twice (repeat), such as '/api/*': its requests are hedged and retried
    #[arg(long, value_name = "PATH")]
    pub repeatable: Vec<String>,
    /// Policy: none, once, equal, replicate, hedge, parm, parm+, approximate-backup or stand-in [default: hedge]
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// Cheaper model of the repository, with the same inputs and outputs, for late queries. Implies `--policy stand-in`
    #[arg(long, value_name = "MODEL")]
    pub stand_in: Option<String>,
    /// Location of stand-ins: `workers`, or `frontend` to run them in this process, from the repository of `--models`. Then
    /// they also answer while no worker does [default: workers]
    #[arg(long, value_enum, value_name = "PLACE")]
    pub stand_in_at: Option<StandInAt>,
    /// Bundles for the policies parm, parm+ and stand-in: a repository with NAME/parm.toml files, or one such file
    /// [default: the folder of --models]
    #[arg(long, value_name = "PATH")]
    pub bundles: Option<PathBuf>,
    /// Address of the admin API [default: off]
    #[arg(long, value_name = "ADDRESS")]
    pub admin: Option<String>,
    /// File for arrivals and service times, for `parm tune`. An existing file is kept as FILE.old
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Folder for inputs and answers of a share of the requests, for `parm stand-in`. It holds the data of clients;
    /// frontend.capture.share sets the share
    #[arg(long, value_name = "FOLDER")]
    pub capture: Option<PathBuf>,
}

/// `parm worker`.
#[derive(Debug, Args)]
pub struct Worker {
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    pub hosting: Hosting,
    /// Emulate a server of a language model of this name for experiments: OpenAI's routes next to the protocol's, with made-up
    /// words at the pace of continuous batching
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub emulate_chat: Option<String>,
    /// Allow fault injection for experiments, with GET and POST /faults at the metrics address
    #[arg(long)]
    pub faults: bool,
}

/// `parm models`.
#[derive(Debug, Args)]
pub struct Models {
    #[command(subcommand)]
    pub command: ModelsCommand,
}

#[derive(Debug, Subcommand)]
pub enum ModelsCommand {
    /// List the models of a repository, with versions, sizes and digests
    List {
        #[command(flatten)]
        view: View,
    },
    /// Check that the files of bundles are unchanged and fit together
    Verify {
        /// Name of a deployed model [default: all with a bundle]
        model: Option<String>,
        #[command(flatten)]
        view: View,
    },
    /// Show one model: tensors, operators, parameters, checks
    Inspect {
        /// Name in the repository, or an ONNX file
        model: String,
        #[command(flatten)]
        view: View,
    },
}

/// The model repository and the form of the output.
#[derive(Debug, Args)]
pub struct View {
    /// Model repository
    #[arg(long, value_name = "FOLDER", default_value = "models")]
    pub models: PathBuf,
    /// Form of the output
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// Location of stand-ins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum StandInAt {
    Workers,
    Frontend,
}

/// Form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    Text,
    Json,
}

/// `parm simulate`.
#[derive(Debug, Args)]
pub struct Simulate {
    /// Experiment file (TOML); flags override it
    #[arg(value_name = "FILE")]
    pub experiment: Option<PathBuf>,
    /// Recording of `parm record`, whose arrivals, service times and faults become the scenario `recorded`
    #[arg(long, value_name = "FILE")]
    pub recording: Option<PathBuf>,
    /// Model, if the recording has several
    #[arg(long, value_name = "NAME", requires = "recording")]
    pub model: Option<String>,
    #[command(flatten)]
    pub cases: experiment::Cases,
    /// Instances [default: 18]
    #[arg(long, value_name = "N")]
    pub instances: Option<std::num::NonZeroU32>,
    /// Instances whose capacity is a load of 1 [default: 12]
    #[arg(long, value_name = "N")]
    pub deployed: Option<std::num::NonZeroU32>,
    /// Runs at a time, without effect on the result [default: one per core]
    #[arg(long, value_name = "N")]
    pub threads: Option<std::num::NonZeroUsize>,
    /// Print the built-in policies, scenarios and profiles, then exit
    #[arg(long)]
    pub list: bool,
    /// Form of the output
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}
