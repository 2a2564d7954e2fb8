//! Flags of `parm evaluate`. Without the feature `train` the command only prints how to build it.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

pub const EXAMPLES: &str = "Examples:
  parm evaluate fashion --data 'idx:t10k-images.gz,t10k-labels.gz?rows=2000..10000'
      every code of the bundle models/fashion/parm.toml, and codes that need no training";

/// `parm evaluate`.
#[derive(Debug, Args)]
pub struct Evaluate {
    /// Deployed model: its name in the repository, or an ONNX file
    pub model: String,
    /// Rows that training did not see; see `parm data --help`
    #[arg(long, value_name = "SOURCE")]
    pub data: String,
    /// Model repository
    #[arg(long, value_name = "FOLDER", default_value = "models")]
    pub models: PathBuf,
    /// Metric: top-1 (or another number), iou, absolute-error [default: top-1, or absolute-error for values]
    #[arg(long, value_name = "METRIC")]
    pub metric: Option<String>,
    /// A code that needs no training, in addition to those of the bundle (repeat): KIND:k=2,r=1 with KIND mds or berrut
    /// [default: berrut for each k of the bundle]
    #[arg(long, value_name = "CODE")]
    pub code: Vec<String>,
    /// Cheaper model of the same task to compare with, an ONNX file
    #[arg(long, value_name = "FILE")]
    pub backup: Option<PathBuf>,
    /// Engine: tract or ort
    #[arg(long, value_name = "NAME", default_value = "tract")]
    pub engine: String,
    /// Seed of the groups
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the accuracies into the bundle
    #[arg(long)]
    pub write: bool,
    /// Form of the output
    #[arg(long, value_enum, default_value_t = Form::Text)]
    pub output: Form,
}

/// Form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    Text,
    Json,
    Csv,
}
