//! Flags of `parm stand-in`.

use std::path::PathBuf;

use clap::Args;
use parm_parity_models::bundle::Meaning;

use super::Output;

pub const EXAMPLES: &str = "Examples:
  parm stand-in fashion-lenet --data idx:images-idx3-ubyte.gz,labels-idx1-ubyte.gz
      a model of the repository, with labels to measure the accuracy
  parm stand-in my-model.onnx --name mine --data npy:rows.npy --engine ort
      an ONNX file; the model, its stand-in and the bundle go into the repository
  parm stand-in magika --data bytes:/usr/share,/usr/lib --engine ort
      a file-type model, with the files of this machine
  parm stand-in my-model.onnx --name mine --data capture:captured
      from traffic that `parm serve --capture captured` captured
  parm stand-in my-model.onnx --name mine --data npy:held.npy,labels.npy --test npy:test.npy,test-labels.npy --from small.onnx
      measures your own network as well, and all candidates on separate rows

See docs/stand-ins.md.";

/// `parm stand-in`.
#[derive(Debug, Args)]
pub struct StandInSearch {
    /// Deployed model: its name in the repository, or an ONNX file
    pub model: String,
    /// Rows: npy:FILE,FILE.. or idx:FILE,FILE.. with an array for each input, then labels if any; bytes:FOLDER,FOLDER.. for
    /// file-type models; texts:FILE with a text in each line for text models; capture:FOLDER for captures of `parm serve`.
    /// At least 24 rows, better a few hundred
    #[arg(long, value_name = "SOURCE")]
    pub data: String,
    /// Separate rows to measure the best candidates on, as in --data
    #[arg(long, value_name = "SOURCE")]
    pub test: Option<String>,
    /// Your own stand-in, to measure as it is and in 8 bits (repeat)
    #[arg(long, value_name = "FILE")]
    pub from: Vec<PathBuf>,
    /// Train the two best candidates within the cost on the model's answers, for this many epochs (10 without a number).
    /// Needs a build with `--features train` and thousands of rows, and takes minutes to hours
    #[arg(long, value_name = "EPOCHS", num_args = 0..=1, require_equals = true, default_missing_value = "10")]
    pub teach: Option<std::num::NonZeroU64>,
    /// Rows to train on, as in --data, without labels [default: unused rows of --data]
    #[arg(long, value_name = "SOURCE", requires = "teach")]
    pub lessons: Option<String>,
    /// Largest cost of the stand-in, as a share of the deployed model's time
    #[arg(long, value_name = "SHARE", default_value_t = 0.25)]
    pub cost: f64,
    /// Engine: ort (ONNX Runtime), tract (built in), or auto
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub engine: String,
    /// Name in the repository for the model of a file [default: the file's name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Meaning of all outputs, or of one (repeat): logits, probabilities, values (difference of at most 5 % of their
    /// size), embedding (cosine of 0.95), decision:THRESHOLD for one number, label [default: found from answers and labels, and printed; otherwise values]
    #[arg(long, value_name = "[OUTPUT=]MEANING", value_parser = meaning)]
    pub meaning: Vec<Answers>,
    /// Output that the labels belong to [default: the scores of classes]
    #[arg(long, value_name = "OUTPUT")]
    pub label_output: Option<String>,
    /// Rows to make candidates from
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub calibration: usize,
    /// Largest number of rows to measure candidates on; 2,000 distinguish 98 % from 99 %
    #[arg(long, value_name = "N", default_value_t = 2000)]
    pub judged: usize,
    /// Seed of the choice of rows
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Approximate time to measure costs
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub measure: u64,
    /// Time after which no further candidate is made; an interrupt has the same effect
    #[arg(long, value_name = "SECONDS")]
    pub time_limit: Option<u64>,
    /// Print the candidates, and write no model and no bundle
    #[arg(long)]
    pub dry_run: bool,
    /// Folder for candidates and checkpoints, removed at the end
    #[arg(long, value_name = "FOLDER", default_value = "runs")]
    pub runs: PathBuf,
    /// Model repository
    #[arg(long, value_name = "FOLDER", default_value = "models")]
    pub models: PathBuf,
    /// Form of the output
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// The meaning of an output, or of all outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Answers {
    /// The output; all if `None`.
    pub output: Option<String>,
    /// Its meaning.
    pub meaning: Meaning,
}

/// Reads `MEANING` or `OUTPUT=MEANING`. Names of outputs may hold the sign too.
fn meaning(text: &str) -> Result<Answers, String> {
    let (output, meaning) = match text.rsplit_once('=') {
        Some((output, meaning)) => (Some(output.to_owned()), meaning),
        None => (None, text),
    };
    Ok(Answers { output, meaning: meaning.parse()? })
}
