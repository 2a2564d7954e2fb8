//! Flags of `parm train`.
//!
//! Every build parses them, so that the reference is the same. Without the feature `train` the command only prints how to
//! build it.

// Only the trainer reads these fields.
#![cfg_attr(not(feature = "train"), allow(dead_code))]

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::grid::Grid;

pub const EXAMPLES: &str = "Examples:
  parm train base --model lenet --name fashion --data idx:train-images.gz,train-labels.gz --epochs 20
      a base model: models/fashion/1/model.onnx
  parm train parity --deployed fashion --data idx:train-images.gz,train-labels.gz --k 2
      a parity model with a prediction for each slot, and the bundle models/fashion/parm.toml
  parm train stand-in --deployed fashion --data idx:train-images.gz,train-labels.gz --architecture small.onnx
      a smaller model, for the policy stand-in
  parm train matrix training/matrix/mlp.toml --data datasets --results results
      many runs, without those that have results";

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
    /// Train another network on the answers of the deployed model, as a stand-in, and write its bundle
    StandIn(Box<StandInTraining>),
    /// Train encoder and decoder networks (learned code), and write their bundle
    Code(Box<Code>),
    /// Run the missing trainings of a file
    Matrix(Matrix),
}

/// Flags of every training.
#[derive(Debug, Args)]
pub struct Run {
    /// Epochs [default: until the answers to held-out rows stop improving, at most 1000]
    #[arg(long, value_name = "N")]
    pub epochs: Option<u64>,
    /// Largest step size
    #[arg(long, value_name = "NUMBER")]
    pub rate: Option<f32>,
    /// Seed
    #[arg(long)]
    pub seed: Option<u64>,
    /// Threads [default: one per core]
    #[arg(long, value_name = "N")]
    pub threads: Option<std::num::NonZeroUsize>,
    /// Device: `cpu`, `vulkan:N` or `cuda:N`; GPUs need a build with that feature
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: String,
    /// Recipe of the run (TOML); flags override it
    #[arg(long, value_name = "FILE")]
    pub recipe: Option<PathBuf>,
    /// Any field of the recipe by its path, as TOML (repeat): `--set run.batch=32`, see docs/training.md
    #[arg(long, value_name = "PATH=VALUE")]
    pub set: Vec<String>,
    /// Folder for checkpoints and metrics (JSON lines)
    #[arg(long, value_name = "FOLDER", default_value = "runs")]
    pub runs: PathBuf,
    /// Model repository for the result
    #[arg(long, value_name = "FOLDER", default_value = "models")]
    pub models: PathBuf,
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
    /// Metric: top-1, top-5, iou or absolute-error [default: top-1, or absolute-error for values]
    #[arg(long, value_name = "NAME")]
    pub metric: Option<String>,
}

/// `parm train parity`.
#[derive(Debug, Args)]
pub struct Parity {
    #[command(flatten)]
    pub taught: Teaching,
    /// ONNX file with another architecture, for the same task
    #[arg(long, value_name = "FILE")]
    pub architecture: Option<PathBuf>,
    /// Encoder of parity queries: sum, weighted, tiles or slots [default: slots]
    #[arg(long, value_name = "ENCODER")]
    pub encoder: Option<String>,
    /// Queries in a group [default: 2]
    #[arg(long)]
    pub k: Option<u32>,
    /// Initial weights: `deployed`, those of the deployed model, or `scratch`, random ones [default: deployed]
    #[arg(long, visible_alias = "init")]
    pub start: Option<String>,
    #[command(flatten)]
    pub run: Run,
}

/// `parm train stand-in`.
#[derive(Debug, Args)]
pub struct StandInTraining {
    #[command(flatten)]
    pub taught: Teaching,
    /// ONNX file of the network, with the same inputs and outputs
    #[arg(long, value_name = "FILE")]
    pub architecture: PathBuf,
    /// Initial weights: `deployed`, those of the architecture, or `scratch`, random ones [default: deployed]
    #[arg(long, visible_alias = "init")]
    pub start: Option<String>,
    #[command(flatten)]
    pub run: Run,
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
    /// Encoder network: mlp or conv [default: mlp]
    #[arg(long, value_name = "ENCODER")]
    pub encoder: Option<String>,
    /// Queries in a group [default: 2]
    #[arg(long)]
    pub k: Option<u32>,
    #[command(flatten)]
    pub run: Run,
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
    /// Device: `cpu`, `vulkan:N` or `cuda:N`; GPUs need a build with that feature
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: String,
    #[command(flatten)]
    pub grid: Grid,
}
