//! Flags of `parm train`.
//!
//! Every build parses them, so that the reference is the same. Without the feature `train` the command only prints how to
//! build it.

// Only the trainer reads these fields.
#![cfg_attr(not(feature = "train"), allow(dead_code))]

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use parm_encoder::Kind;

use super::grid::Grid;

pub const EXAMPLES: &str = "Examples:
  parm train base --model lenet --name fashion --data idx:train-images.gz,train-labels.gz --epochs 20
      a base model: models/fashion/1/model.onnx
  parm train parity --deployed fashion --data idx:train-images.gz,train-labels.gz --k 2
      a parity model with a prediction for each slot, and the bundle models/fashion/parm.toml
  parm train parity --deployed my-model.onnx --name mine --data npy:rows.npy --encoder sum --start scratch --k 3
      the paper's code for your own model, from rows without labels
  parm train stand-in --deployed fashion --data idx:train-images.gz,train-labels.gz --width 0.5
      a thinner model, for the policy stand-in
  parm train matrix training/matrix/mlp.toml --data datasets --results results --jobs 2
      many runs, without those that have results
  parm train matrix training/matrix/mlp.toml --data datasets --results /shared/mlp --share 0/4
      one of four parts of them, on one of four machines: see docs/grids.md";

/// `parm train`.
#[derive(Debug, Args)]
pub struct Train {
    #[command(subcommand)]
    pub command: TrainCommand,
}

#[derive(Debug, Subcommand)]
pub enum TrainCommand {
    /// Train a base model from labelled data
    Base(Box<Base>),
    /// Train parity models for a deployed model, and write their bundle
    Parity(Box<Parity>),
    /// Train a thinner model as a stand-in, and write its bundle
    StandIn(Box<StandInTraining>),
    /// Train encoder and decoder networks (learned code), and write their bundle
    Code(Box<Code>),
    /// Run the missing trainings of a file
    Matrix(Matrix),
}

/// Flags of every training.
#[derive(Debug, Args)]
pub struct Run {
    /// Epochs
    #[arg(long, value_name = "N")]
    pub epochs: Option<u64>,
    /// Groups in a step, or rows for a base model
    #[arg(long, value_name = "N")]
    pub batch: Option<usize>,
    /// Largest step size
    #[arg(long, value_name = "NUMBER")]
    pub rate: Option<f32>,
    /// Schedule of the step size
    #[arg(long, value_enum)]
    pub shape: Option<Course>,
    /// Epochs in which the step size rises from zero
    #[arg(long, value_name = "N")]
    pub warm_up: Option<f32>,
    /// Weight decay
    #[arg(long, value_name = "NUMBER")]
    pub weight_decay: Option<f32>,
    /// Decay of a running average of the weights, such as 0.999
    #[arg(long, value_name = "SHARE")]
    pub average: Option<f32>,
    /// Rows held out to choose the best epoch
    #[arg(long, value_name = "N")]
    pub held_out: Option<usize>,
    /// Largest random shift of images
    #[arg(long, value_name = "PIXELS")]
    pub shift: Option<usize>,
    /// Mirror half of the images at random
    #[arg(long)]
    pub flip: bool,
    /// Seed
    #[arg(long)]
    pub seed: Option<u64>,
    /// Threads [default: one per core]
    #[arg(long, value_name = "N")]
    pub threads: Option<std::num::NonZeroUsize>,
    /// Device: `cpu`, `vulkan:N` or `cuda:N`; GPUs need a build with that feature
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: String,
    /// File with settings of the run (TOML); flags override it
    #[arg(long, value_name = "FILE")]
    pub recipe: Option<PathBuf>,
    /// Folder for checkpoints, metrics (JSON lines) and curves (SVG)
    #[arg(long, value_name = "FOLDER", default_value = "runs")]
    pub runs: PathBuf,
    /// Model repository for the result
    #[arg(long, value_name = "FOLDER", default_value = "models")]
    pub models: PathBuf,
}

/// Course of the step size after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Course {
    Constant,
    Cosine,
}

/// `parm train base`.
#[derive(Debug, Args)]
pub struct Base {
    /// Architecture, such as mlp or lenet; an unknown name lists all
    #[arg(long, value_name = "NAME", default_value = "lenet")]
    pub model: String,
    /// ONNX file to fine-tune instead, with a small --rate
    #[arg(long, value_name = "FILE", conflicts_with = "model")]
    pub from: Option<PathBuf>,
    /// Name of the result in the repository
    #[arg(long, value_name = "NAME")]
    pub name: String,
    /// Labelled rows to train on, such as idx:images,labels; see `parm data --help`
    #[arg(long, value_name = "SOURCE")]
    pub data: String,
    /// Separate rows to measure on
    #[arg(long, value_name = "SOURCE")]
    pub test: Option<String>,
    #[command(flatten)]
    pub run: Run,
}

/// Flags of trainings with a deployed model.
#[derive(Debug, Args)]
pub struct Teaching {
    /// Deployed model: its name in the repository, or an ONNX file
    #[arg(long, value_name = "MODEL")]
    pub deployed: String,
    /// Name of the deployed model in the repository, if a file is given [default: the file's name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Rows to train on, such as idx:images,labels, or capture:FOLDER for captures of `parm serve`
    #[arg(long, value_name = "SOURCE")]
    pub data: String,
    /// Separate rows to measure on [default: those held out]
    #[arg(long, value_name = "SOURCE")]
    pub test: Option<String>,
    /// Engine that runs the deployed model as a black box: tract or ort
    #[arg(long, value_name = "NAME")]
    pub engine: Option<String>,
    /// File of the deployed model's outputs (npy), one for each row, instead of running it
    #[arg(long, value_name = "FILE", conflicts_with = "engine")]
    pub outputs: Option<PathBuf>,
    /// Metric: top-1, top-5, iou or absolute-error [default: top-1, or absolute-error for values]
    #[arg(long, value_name = "NAME")]
    pub metric: Option<String>,
    /// Meaning of the deployed model's output [default: probabilities after a softmax, otherwise logits]
    #[arg(long, value_enum)]
    pub meaning: Option<Meaning>,
    /// Temperature of the softmax of kl [default: 1]
    #[arg(long, value_name = "NUMBER")]
    pub temperature: Option<f32>,
}

/// `parm train parity`.
#[derive(Debug, Args)]
pub struct Parity {
    #[command(flatten)]
    pub taught: Teaching,
    /// ONNX file with another architecture, for the same task
    #[arg(long, value_name = "FILE")]
    pub architecture: Option<PathBuf>,
    /// Encoder of parity queries
    #[arg(long, value_name = "ENCODER", value_parser = encoders())]
    pub encoder: Option<Kind>,
    /// Output of a parity model: a weighted sum, or a prediction for each slot
    #[arg(long, value_enum)]
    pub head: Option<Head>,
    /// Queries in a group [default: 2]
    #[arg(long)]
    pub k: Option<usize>,
    /// Parities of a group [default: 1]
    #[arg(long)]
    pub r: Option<usize>,
    /// Initial weights: those of the deployed model, or random ones [default: deployed]
    #[arg(long, visible_alias = "init", value_enum)]
    pub start: Option<Start>,
    /// Loss [default: kl for slots of a classifier, otherwise mse]
    #[arg(long, value_enum)]
    pub loss: Option<Loss>,
    /// Passes over the rows in an epoch [default: 1]
    #[arg(long, value_name = "NUMBER")]
    pub passes: Option<f32>,
    /// Share of groups with blank slots, to serve partial groups [default: 0]
    #[arg(long, value_name = "SHARE")]
    pub blanks: Option<f32>,
    #[command(flatten)]
    pub run: Run,
}

/// `parm train stand-in`.
#[derive(Debug, Args)]
pub struct StandInTraining {
    #[command(flatten)]
    pub taught: Teaching,
    /// ONNX file with another architecture, with the same inputs and outputs
    #[arg(long, value_name = "FILE")]
    pub architecture: Option<PathBuf>,
    /// Share of every layer's features that the stand-in keeps [default: 0.5, or 1 with --architecture]
    #[arg(long, value_name = "SHARE")]
    pub width: Option<f32>,
    /// Initial weights: those of the deployed model or the architecture, or random ones [default: deployed]
    #[arg(long, visible_alias = "init", value_enum)]
    pub start: Option<Start>,
    /// Loss [default: kl for a classifier, otherwise mse]
    #[arg(long, value_enum)]
    pub loss: Option<Loss>,
    #[command(flatten)]
    pub run: Run,
}

/// The codes that parity models can be trained for.
fn encoders() -> impl TypedValueParser<Value = Kind> {
    let kinds = Kind::ALL.into_iter().filter(|kind| kind.has_parity_models());
    PossibleValuesParser::new(kinds.map(Kind::name)).try_map(|name| name.parse())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Head {
    Sum,
    Slots,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Start {
    Deployed,
    Scratch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Loss {
    Kl,
    Mse,
    Huber,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Meaning {
    Logits,
    Probabilities,
    Values,
}

/// `parm train code`.
#[derive(Debug, Args)]
pub struct Code {
    /// Deployed model: its name in the repository, or an ONNX file
    #[arg(long, value_name = "MODEL")]
    pub deployed: String,
    /// Name of the deployed model in the repository, if a file is given [default: the file's name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Rows to train on, such as idx:images,labels; see `parm data --help`
    #[arg(long, value_name = "SOURCE")]
    pub data: String,
    /// Separate rows to measure on [default: those held out]
    #[arg(long, value_name = "SOURCE")]
    pub test: Option<String>,
    /// Encoder network [default: mlp]
    #[arg(long, value_enum)]
    pub encoder: Option<Net>,
    /// Queries in a group [default: 2]
    #[arg(long)]
    pub k: Option<usize>,
    /// Coded queries of a group [default: 1]
    #[arg(long)]
    pub r: Option<usize>,
    /// Loss: against the deployed model's predictions (kl, mse) or the labels (xent) [default: kl]
    #[arg(long, value_enum)]
    pub loss: Option<CodeLoss>,
    #[command(flatten)]
    pub run: Run,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Net {
    Mlp,
    Conv,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CodeLoss {
    Kl,
    Mse,
    Xent,
}

/// `parm train matrix`.
#[derive(Debug, Args)]
pub struct Matrix {
    /// Matrix files (TOML)
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Folder of the data, for `{}` in the matrix files
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub data: PathBuf,
    /// Folder for results, base models and checkpoints
    #[arg(long, value_name = "FOLDER", default_value = "training/results")]
    pub results: PathBuf,
    /// Trainings at a time, which share the cores
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub jobs: usize,
    /// Device: `cpu`, `vulkan:N` or `cuda:N`; GPUs need a build with that feature
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: String,
    /// File for tables of the results so far, without any run
    #[arg(long, value_name = "FILE")]
    pub render: Option<PathBuf>,
    #[command(flatten)]
    pub grid: Grid,
}
