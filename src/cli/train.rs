//! Flags of `parm train`. They are parsed in every build, so that the reference is the same; without the feature
//! `train` the command says how to get it.

// What only the trainer reads.
#![cfg_attr(not(feature = "train"), allow(dead_code))]

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use parm_encoder::Kind;

pub const EXAMPLES: &str = "Examples:
  parm train base --model lenet --name fashion --data idx:train-images.gz,train-labels.gz --epochs 20
      a model to begin with: models/fashion/1/model.onnx
  parm train parity --deployed fashion --data idx:train-images.gz,train-labels.gz --k 2
      a parity model with a prediction for each slot; models/fashion/parm.toml ties both together
  parm train parity --deployed my-model.onnx --name mine --data npy:rows.npy --encoder sum --start scratch --k 3
      ParM's code for a model of your own, from rows without labels
  parm train stand-in --deployed fashion --data idx:train-images.gz,train-labels.gz --width 0.5
      a thinner model that answers queries one by one, for the policy stand-in
  parm train matrix training/matrix/mlp.toml --data datasets --results results --jobs 2
      many runs; a cell that has a result is not run again";

/// `parm train`.
#[derive(Debug, Args)]
pub struct Train {
    #[command(subcommand)]
    pub command: TrainCommand,
}

#[derive(Debug, Subcommand)]
pub enum TrainCommand {
    /// A base model to try things with, from labelled data
    Base(Box<Base>),
    /// Parity models for a deployed model, and the bundle that serves them
    Parity(Box<Parity>),
    /// A thinner model that answers queries by itself (stand-in), and the bundle that serves it
    StandIn(Box<StandInTraining>),
    /// Encoder and decoder networks for a deployed model (learned code), and the bundle that serves them
    Code(Box<Code>),
    /// Many runs from one file; fills what is missing
    Matrix(Matrix),
}

/// What every training has.
#[derive(Debug, Args)]
pub struct Run {
    /// Epochs
    #[arg(long, value_name = "N")]
    pub epochs: Option<u64>,
    /// Groups (rows, for a base model) in a step
    #[arg(long, value_name = "N")]
    pub batch: Option<usize>,
    /// Largest step size
    #[arg(long, value_name = "NUMBER")]
    pub rate: Option<f32>,
    /// How the step size changes during training
    #[arg(long, value_enum)]
    pub shape: Option<Course>,
    /// Epochs in which the step size rises from zero
    #[arg(long, value_name = "N")]
    pub warm_up: Option<f32>,
    /// Pull of the weights towards zero
    #[arg(long, value_name = "NUMBER")]
    pub weight_decay: Option<f32>,
    /// Keep a running average of the weights; this share of it stays at each step, such as 0.999
    #[arg(long, value_name = "SHARE")]
    pub average: Option<f32>,
    /// Rows held out to choose the best epoch
    #[arg(long, value_name = "N")]
    pub held_out: Option<usize>,
    /// Shift images by up to so many pixels, anew each epoch
    #[arg(long, value_name = "PIXELS")]
    pub shift: Option<usize>,
    /// Mirror half of the images, anew each epoch
    #[arg(long)]
    pub flip: bool,
    /// Seed: the same seed gives the same weights
    #[arg(long)]
    pub seed: Option<u64>,
    /// Threads [default: one per core]
    #[arg(long, value_name = "N")]
    pub threads: Option<std::num::NonZeroUsize>,
    /// Where to compute: `cpu`, `vulkan:N` or `cuda:N` (N: 0); cards need a build with the feature of that name
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: String,
    /// Settings of the run (TOML file); flags override it
    #[arg(long, value_name = "FILE")]
    pub recipe: Option<PathBuf>,
    /// Folder of checkpoint, metrics (JSON lines) and curves (SVG); a run that was interrupted goes on from there
    #[arg(long, value_name = "FOLDER", default_value = "runs")]
    pub runs: PathBuf,
    /// Model repository that the result is put into
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
    /// Go on from this ONNX file instead, with the weights that it has (fine-tuning): give a small --rate
    #[arg(long, value_name = "FILE", conflicts_with = "model")]
    pub from: Option<PathBuf>,
    /// Name of the result in the repository
    #[arg(long, value_name = "NAME")]
    pub name: String,
    /// Labelled rows to learn from: KIND:PATH,PATH?setting=value, such as idx:images,labels
    #[arg(long, value_name = "SOURCE")]
    pub data: String,
    /// Rows to measure on, which training does not see
    #[arg(long, value_name = "SOURCE")]
    pub test: Option<String>,
    #[command(flatten)]
    pub run: Run,
}

/// What learns from a deployed model.
#[derive(Debug, Args)]
pub struct Teaching {
    /// Deployed model: its name in the repository, or an ONNX file
    #[arg(long, value_name = "MODEL")]
    pub deployed: String,
    /// Name of the deployed model in the repository, if a file is given [default: the file's name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Rows to learn from, with or without labels: KIND:PATH,PATH?setting=value, such as idx:images,labels, or
    /// capture:FOLDER for what `parm serve --capture` kept
    #[arg(long, value_name = "SOURCE")]
    pub data: String,
    /// Rows to measure on, which training does not see [default: those held out]
    #[arg(long, value_name = "SOURCE")]
    pub test: Option<String>,
    /// Treat the deployed model as a black box: this engine (tract or ort) runs it on the rows
    #[arg(long, value_name = "NAME")]
    pub engine: Option<String>,
    /// Treat the deployed model as a black box: this npy file holds its outputs, one for each row
    #[arg(long, value_name = "FILE", conflicts_with = "engine")]
    pub outputs: Option<PathBuf>,
    /// How answers are judged: top-1, top-5, iou or absolute-error [default: top-1, absolute-error for values]
    #[arg(long, value_name = "NAME")]
    pub metric: Option<String>,
    /// What the deployed model's output means [default: probabilities after a softmax, else logits]
    #[arg(long, value_enum)]
    pub meaning: Option<Meaning>,
    /// Temperature: scores are divided by it before the softmax of kl [default: 1]
    #[arg(long, value_name = "NUMBER")]
    pub temperature: Option<f32>,
}

/// `parm train parity`.
#[derive(Debug, Args)]
pub struct Parity {
    #[command(flatten)]
    pub taught: Teaching,
    /// Architecture of the parity models, if not the deployed one: an ONNX file for the same task
    #[arg(long, value_name = "FILE")]
    pub architecture: Option<PathBuf>,
    /// How queries become a parity query
    #[arg(long, value_name = "ENCODER", value_parser = encoders())]
    pub encoder: Option<Kind>,
    /// What a parity model puts out: one weighted sum, or a prediction for each slot
    #[arg(long, value_enum)]
    pub head: Option<Head>,
    /// Queries in a group [default: 2]
    #[arg(long)]
    pub k: Option<usize>,
    /// Parities of a group [default: 1]
    #[arg(long)]
    pub r: Option<usize>,
    /// What the weights start from: the deployed model's (divided between the slots, if there are any) or random ones
    /// [default: deployed]
    #[arg(long, visible_alias = "init", value_enum)]
    pub start: Option<Start>,
    /// The loss [default: kl for slots of a classifier, else mse]
    #[arg(long, value_enum)]
    pub loss: Option<Loss>,
    /// How often each row is shown in an epoch [default: 1]
    #[arg(long, value_name = "NUMBER")]
    pub passes: Option<f32>,
    /// Share of the groups that are trained with blank slots, so that partial groups can be served [default: 0]
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
    /// Architecture of the stand-in, if not the deployed one: an ONNX file with the same inputs and outputs
    #[arg(long, value_name = "FILE")]
    pub architecture: Option<PathBuf>,
    /// Share of every layer's features that the stand-in keeps [default: 0.5, a quarter of the multiplications; 1 for an
    /// architecture of its own]
    #[arg(long, value_name = "SHARE")]
    pub width: Option<f32>,
    /// What the weights start from: those of the deployed model or of the architecture, or random ones [default: deployed]
    #[arg(long, visible_alias = "init", value_enum)]
    pub start: Option<Start>,
    /// The loss [default: kl for a classifier, else mse]
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
    /// Rows to learn from: KIND:PATH,PATH?setting=value, such as idx:images,labels
    #[arg(long, value_name = "SOURCE")]
    pub data: String,
    /// Rows to measure on, which training does not see [default: those held out]
    #[arg(long, value_name = "SOURCE")]
    pub test: Option<String>,
    /// The encoder network [default: mlp]
    #[arg(long, value_enum)]
    pub encoder: Option<Net>,
    /// Queries in a group [default: 2]
    #[arg(long)]
    pub k: Option<usize>,
    /// Coded queries of a group [default: 1]
    #[arg(long)]
    pub r: Option<usize>,
    /// The loss: decoded predictions against the deployed model's (kl or mse), or against the labels (xent) [default: kl]
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
    /// Folder of the data: what `{}` stands for in the matrix files
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub data: PathBuf,
    /// Folder of results, base models and checkpoints
    #[arg(long, value_name = "FOLDER", default_value = "training/results")]
    pub results: PathBuf,
    /// Cells at a time; they share the cores
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub jobs: usize,
    /// Where to compute: `cpu`, `vulkan:N` or `cuda:N` (N: 0); cards need a build with the feature of that name
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: String,
    /// Run nothing; write tables of the results so far to this file
    #[arg(long, value_name = "FILE")]
    pub render: Option<PathBuf>,
}
