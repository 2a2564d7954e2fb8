//! The command line. What a flag means is said here, once; the configuration file knows the same settings by their paths.

pub mod admin;
pub mod data;
pub mod evaluate;
pub mod experiment;
pub mod identity;
pub mod keys;
pub mod record;
pub mod stand_in;
pub mod train;
pub mod tune;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::load::Load;

/// Coded resilience for prediction serving: a slow or dead replica no longer shows in your p99.9.
#[derive(Debug, Parser)]
#[command(name = "parm", version, propagate_version = true, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show live in the terminal what slow instances and a hanging one do to the same traffic under four policies
    ///
    /// Serves the classifier in the box on six instances for each policy, sends all of them the same queries, and makes
    /// instances slow or hang by a script. Ends by itself after a minute. Predictions are real, service times emulated.
    #[command(after_long_help = DEMO_EXAMPLES)]
    Demo(Demo),
    /// Serve models to clients: a frontend over embedded instances, remote workers, or both
    ///
    /// Speaks the Open Inference Protocol over HTTP and gRPC, batches and dispatches queries to instances, and hides
    /// slow and failing ones. Without `--worker` it runs the models itself, on `--instances` threads.
    #[command(after_long_help = SERVE_EXAMPLES)]
    Serve(Box<Serve>),
    /// Serve models on this machine, without redundancy; `parm serve --worker URL` stands in front of such workers
    #[command(after_long_help = WORKER_EXAMPLES)]
    Worker(Box<Worker>),
    /// Look into a model repository
    Models(Models),
    /// Send load to a server of the Open Inference Protocol and report its tail latency honestly
    ///
    /// Requests are sent on a schedule, whether or not earlier ones are answered, and latency counts from the scheduled
    /// time. The report says "not enough data" where there are too few samples, and whether the run was valid.
    #[command(after_long_help = LOAD_EXAMPLES)]
    Load(Load),
    /// Simulate policies under load and faults, in virtual time, with the dispatcher that serves
    ///
    /// Every policy faces the same arrivals, service times and faults. Prints quantiles with 95 % intervals, the gap
    /// p99.9 - p50, and how many times smaller it is than without redundancy on the same instances (`equal`).
    #[command(after_long_help = SIMULATE_EXAMPLES)]
    Simulate(Simulate),
    /// Run an experiment: policies under load and faults, with real processes or in virtual time, and a report of it
    ///
    /// Starts the workers that the file asks for on this machine (or uses those it names) and a frontend for every run.
    /// Policies take turns on the same arrivals and faults. Results go to a folder: raw data, JSON, and a report as one
    /// HTML file. An interrupt (Ctrl-C) ends it early and leaves the results so far.
    #[command(after_long_help = experiment::EXAMPLES)]
    Experiment(experiment::Experiment),
    /// Find the policy and the settings that answer the most queries in time, by simulation
    ///
    /// Searches policies, codes, grace, hedge budgets, batches and splits with the dispatcher that serves, under arrivals,
    /// service times and faults that you give, measure or record. Prints a ranked table and the reason. Writes a
    /// configuration for `parm serve` and a picture of the trade-off.
    #[command(after_long_help = tune::EXAMPLES)]
    Tune(Box<tune::Tune>),
    /// Record arrivals and service times of a running frontend, for `parm tune` and `parm simulate`
    ///
    /// Nothing that clients send is recorded, only when queries came and how long instances took.
    #[command(after_long_help = record::EXAMPLES)]
    Record(record::Record),
    /// Look at a running frontend and change it: settings, instances, and what became of a query
    ///
    /// Does what the page at the admin address does, and prints what changed. Nothing is written to the configuration file.
    #[command(after_long_help = admin::CTL_EXAMPLES)]
    Ctl(admin::Ctl),
    /// Say what is wrong with a running frontend or a configuration, and what to do about it
    ///
    /// A line for each thing that was looked at. Ends with status 1 if anything fails.
    #[command(after_long_help = admin::CHECK_EXAMPLES)]
    Check(admin::Check),
    /// Watch a running frontend in the terminal: tails by model, who is slow, what happened
    #[command(after_long_help = admin::TOP_EXAMPLES)]
    Top(admin::Top),
    /// Make keys for those who may use a server, with a role and limits
    ///
    /// A server has a file of their digests, `server.keys_file`, which is read again when it changes.
    #[command(after_long_help = keys::EXAMPLES)]
    Keys(keys::Keys),
    /// Make a cheaper model that stands in for a deployed one, from its ONNX file and a few rows
    ///
    /// Rewrites and quantises the graph, without labels and without a gradient. Measures what each candidate costs on this
    /// engine and machine beside the deployed model, and how often it says the same. Bundles the most accurate that costs no
    /// more than wanted, for `parm serve --policy stand-in`; says so in a sentence when nothing pays.
    #[command(name = "stand-in", after_long_help = stand_in::EXAMPLES)]
    StandIn(Box<stand_in::StandInSearch>),
    /// Train base models, parity models and learned codes (needs a build with `--features train`)
    ///
    /// Takes an ONNX model and rows of data, labelled or not, and writes a bundle that `parm serve` loads. A run that was
    /// interrupted continues where it was.
    #[command(after_long_help = train::EXAMPLES)]
    Train(train::Train),
    /// Measure how good reconstructions are, code by code (needs a build with `--features train`)
    ///
    /// Prints three accuracies for every code: A_a of answers while nothing is lost, A_d of reconstructions alone, A_o of all
    /// answers when some predictions are unavailable. Beside them stand the constant answer and, if named, a backup model.
    #[command(after_long_help = evaluate::EXAMPLES)]
    Evaluate(Box<evaluate::Evaluate>),
    /// Data sets: which are known, whether files are whole, what a source holds (needs a build with `--features train`)
    #[command(after_long_help = data::EXAMPLES)]
    Data(data::Data),
    /// Print what completes parm's commands and flags in a shell
    #[command(after_long_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// For this shell
        shell: clap_complete::Shell,
    },
    /// Write the manual: a page for every command
    #[command(after_long_help = MAN_EXAMPLES)]
    Man {
        /// Folder to write them to; made if it is missing
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
  parm demo --seconds 300 --policies equal,parm+
      longer, so that p99.9 rests on more answers
  parm demo --rate 400
      two thirds of what the instances can do: now it hurts to keep a third of them for parities
  parm demo --output json
      nothing to watch, the result for programs";

const SERVE_EXAMPLES: &str = "Examples:
  parm serve --models models --instances 4
      everything in one process: clients on 127.0.0.1:8000 (HTTP) and :8001 (gRPC), metrics on :8002
  parm serve --worker http://10.0.0.5:8000 --worker grpc://10.0.0.6:8001 --policy hedge
      in front of two servers of the Open Inference Protocol (parm worker, Triton, MLServer, ...)
  parm serve --config parm.toml --dump-config
      print the whole configuration, as file, environment and flags make it, and end";

const WORKER_EXAMPLES: &str = "Examples:
  parm worker --models models --http 0.0.0.0:8000 --grpc 0.0.0.0:8001
  parm worker --models models --engine ort --set backend.engine.threads=4
  parm worker --models models --unix /run/parm/worker.sock
  parm worker --upstream http://127.0.0.1:9000 --instances 2";

const LOAD_EXAMPLES: &str = "Examples:
  parm load http://127.0.0.1:8000 --model magika --rate 50 --seconds 60
      Poisson arrivals; latency is counted from the intended send time
  parm load grpc://127.0.0.1:8001 --model magika --rate 200 --seconds 300 --require 'p99.9<=50ms' --require 'failed<=0%'
      ends with status 1 unless the samples show both
  parm load http://127.0.0.1:8000 --model mnist --rate 200 --input images.idx.gz --labels labels.idx.gz --samples run.csv
      real rows, graded answers by outcome, every request in a file
  parm load http://127.0.0.1:8000 --model magika --rate 50 --arrivals bursts:200ms/800ms
      the same mean rate, five times as fast in bursts
  parm load http://127.0.0.1:8000 --model magika --scenario offline --streams 32
      how much the server can do, with 32 requests at a time

docs/load.md says what the figures mean and when a run is valid.";

const SIMULATE_EXAMPLES: &str = "Examples:
  parm simulate --scenario AB --load 0.5 --load 0.85
      all policies on 18 instances of 20 ms, as in the paper, under stragglers and interference
  parm simulate experiment.toml --repeats 5 --output json
      an experiment of your own: policies, scenarios, service times
  parm simulate --recording busy-hour.jsonl --policy equal --policy hedge --policy parm+
      what the recorded traffic would have met with another policy
  parm simulate --list
      the ready-made policies and scenarios";

/// `parm demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// How long queries are sent
    #[arg(long, default_value_t = 60.0)]
    pub seconds: f64,
    /// Policies to show side by side
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "equal,hedge,parm,stand-in")]
    pub policies: Vec<crate::demo::Policy>,
    /// Queries per second to each policy; its six instances can do 600
    #[arg(long, default_value_t = 240.0)]
    pub rate: f64,
    /// Seed of arrivals, service times and stragglers
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Folder of the labelled images that are asked about: images-idx3-ubyte.gz and labels-idx1-ubyte.gz
    #[arg(long, value_name = "FOLDER", default_value = "examples/fashion-mnist")]
    pub images: PathBuf,
    /// The model: one with a bundle (`NAME/parm.toml`) of parity models and a stand-in, or a linear one, which can be coded
    /// without
    #[arg(long, value_name = "NAME", default_value = "fashion-lenet")]
    pub model: String,
    /// Model repository
    #[arg(long, value_name = "FOLDER", default_value = "models")]
    pub models: PathBuf,
    /// `text` for people, `json` for programs
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// Flags that every long-running command has.
#[derive(Debug, Args)]
pub struct Common {
    /// Configuration file (TOML); flags and `PARM_SECTION__FIELD` variables override it
    #[arg(long, short, value_name = "FILE", env = "PARM_CONFIG")]
    pub config: Option<PathBuf>,
    /// Any setting by its path in the configuration file, as TOML: `--set frontend.dispatch.policy=hedge`
    #[arg(long, value_name = "PATH=VALUE")]
    pub set: Vec<String>,
    /// Print the whole configuration as it would be used, and end
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
    /// Unix socket for HTTP clients beside the address
    #[arg(long, value_name = "PATH")]
    pub unix: Option<PathBuf>,
    /// Model repository: folders NAME/VERSION/model.onnx
    #[arg(long, value_name = "FOLDER")]
    pub models: Option<PathBuf>,
    /// Embedded instances (threads that run models) [default: one per core; none with --worker]
    #[arg(long, value_name = "N")]
    pub instances: Option<usize>,
    /// Engine that runs models: tract (built in) or ort (ONNX Runtime, loaded at run time)
    #[arg(long, value_name = "NAME")]
    pub engine: Option<String>,
    /// Machine that this process stands on: redundancy keeps away from the node that holds a query [default: none, frontends
    /// take a worker's address for its node]
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Zone of that machine [default: none]
    #[arg(long, value_name = "NAME")]
    pub zone: Option<String>,
    /// Log lines for people or for machines
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub log_format: Option<crate::logging::Format>,
    /// Export spans to an OpenTelemetry collector (gRPC), such as http://127.0.0.1:4317
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,
    /// Write the bound addresses to this file as JSON, once the server listens and its own models are loaded. Whether it
    /// can predict yet is asked at /v2/health/ready
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
}

/// `parm serve`.
#[derive(Debug, Args)]
pub struct Serve {
    #[command(flatten)]
    pub common: Common,
    /// A server to send work to (repeat): http://HOST:PORT, grpc://HOST:PORT or unix:/PATH; with TLS https:// and grpcs://
    /// (see section `tls` of the configuration). With http, https and unix the framed transport is used where the server offers it. dns+http://HOST:PORT and srv+http://_SERVICE._tcp.DOMAIN stand for all
    /// servers of that name, which is looked up every few seconds; kubernetes+http://SERVICE:PORT for the pods of
    /// a Service (elsewhere SERVICE.NAMESPACE), which the API server tells of
    #[arg(long, value_name = "URL")]
    pub worker: Vec<String>,
    /// A file of servers' URLs, one a line, with `node=NAME` and `zone=NAME` behind each if wanted; it is watched for changes
    #[arg(long, value_name = "FILE")]
    pub workers_file: Option<PathBuf>,
    /// How redundancy is used: none, equal, replicate, hedge, parm, parm+, approximate-backup or stand-in
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// A cheaper model of the same inputs and outputs that answers what is late: a smaller or quantised model of the
    /// repository. Implies `--policy stand-in`
    #[arg(long, value_name = "MODEL")]
    pub stand_in: Option<String>,
    /// Bundles of codes, parity models and stand-ins, for the policies parm, parm+ and stand-in: a model repository with
    /// NAME/parm.toml files, or one such file [default: the folder of --models]
    #[arg(long, value_name = "PATH")]
    pub bundles: Option<PathBuf>,
    /// Address of the admin API [default: off]
    #[arg(long, value_name = "ADDRESS")]
    pub admin: Option<String>,
    /// Record arrivals and service times to this file, for `parm tune`; one that exists is kept as FILE.old
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Keep inputs of a share of the requests, and what the deployed model answered, in this folder, for `parm stand-in`. It
    /// holds what clients sent, as they sent it; the settings under frontend.capture bound it in size and age
    #[arg(long, value_name = "FOLDER")]
    pub capture: Option<PathBuf>,
    /// Share of the requests that is kept [default: 0.01]
    #[arg(long, value_name = "SHARE", requires = "capture")]
    pub capture_share: Option<f64>,
}

/// `parm worker`.
#[derive(Debug, Args)]
pub struct Worker {
    #[command(flatten)]
    pub common: Common,
    /// Serve the models of another server (Triton, MLServer, ..) at http://HOST:PORT, unix:/PATH or grpc://HOST:PORT, as its
    /// agent: with tokens, order and shares for the frontends in front of it. `--instances` is how many requests it gets at
    /// a time
    #[arg(long, value_name = "URL", conflicts_with = "models")]
    pub upstream: Option<String>,
    /// Allow faults to be injected while running, for experiments only, with GET and POST /faults at the metrics address:
    /// delays, stalls, errors, wrong outputs, a crash
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
    /// Check bundles of codes and parity models: whether their files are unchanged and fit together
    Verify {
        /// The deployed model's name; all models with a bundle unless given
        model: Option<String>,
        #[command(flatten)]
        view: View,
    },
    /// Show one model: tensors, operators, parameters, checks
    Inspect {
        /// Model name in the repository, or the path of an ONNX file
        model: String,
        /// Version; the newest unless given
        #[arg(long, value_name = "NUMBER")]
        model_version: Option<u64>,
        #[command(flatten)]
        view: View,
    },
}

/// Where models are and how they are printed.
#[derive(Debug, Args)]
pub struct View {
    /// Model repository
    #[arg(long, value_name = "FOLDER", default_value = "models")]
    pub models: PathBuf,
    /// `text` for people, `json` for programs
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// Form of what is printed on stdout.
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
    /// What `parm record` wrote: its arrivals, service times and faults become the scenario `recorded`
    #[arg(long, value_name = "FILE")]
    pub recording: Option<PathBuf>,
    /// The model, where the recording has several
    #[arg(long, value_name = "NAME", requires = "recording")]
    pub model: Option<String>,
    /// A policy, ready-made or from the file (repeat) [default: all ready-made ones]
    #[arg(long, value_name = "NAME")]
    pub policy: Vec<String>,
    /// A scenario, ready-made or from the file (repeat) [default: clean, A, B, AB, hang]
    #[arg(long, value_name = "NAME")]
    pub scenario: Vec<String>,
    /// A load, as a share of what the deployed instances could do (repeat) [default: 0.3, 0.5, 0.7, 0.85]
    #[arg(long, value_name = "SHARE")]
    pub load: Vec<f64>,
    /// Queries in a run [default: 1000000]
    #[arg(long, value_name = "N")]
    pub queries: Option<std::num::NonZeroU64>,
    /// Runs of each policy, scenario and load, each with a seed of its own [default: 1]
    #[arg(long, value_name = "N")]
    pub repeats: Option<std::num::NonZeroU32>,
    /// Instances [default: 18]
    #[arg(long, value_name = "N")]
    pub instances: Option<std::num::NonZeroU32>,
    /// Loads are shares of what this many instances can do [default: 12]
    #[arg(long, value_name = "N")]
    pub deployed: Option<std::num::NonZeroU32>,
    /// Seed of arrivals, service times and faults: the same seed gives the same result [default: 1]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Runs at a time [default: one per core]; the result does not depend on it
    #[arg(long, value_name = "N")]
    pub threads: Option<std::num::NonZeroUsize>,
    /// Print the ready-made policies and scenarios, and end
    #[arg(long)]
    pub list: bool,
    /// `text` for people, `json` for programs
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}
