//! Flags of `parm stand-in`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::Output;

pub const EXAMPLES: &str = "Examples:
  parm stand-in fashion-lenet --data idx:images-idx3-ubyte.gz,labels-idx1-ubyte.gz
      a model of the repository; with labels the accuracy is measured too
  parm stand-in my-model.onnx --name mine --data npy:rows.npy --engine ort --picture frontier.svg
      any ONNX file; the model, its stand-in and the bundle are put into the repository
  parm stand-in magika --data bytes:/usr/share,/usr/lib --engine ort
      a file-type model, from the machine's own files
  parm stand-in encoder --data npy:ids.npy,mask.npy --meaning values --cost 0.5 --dry-run
      several inputs: an array for each, in the model's order; says what there is and writes nothing
  parm stand-in my-model.onnx --name mine --data capture:captured
      from live traffic, which `parm serve --capture captured` kept
  parm stand-in my-model.onnx --name mine --data npy:held.npy,labels.npy --test npy:test.npy,test-labels.npy --from small.onnx
      measures a network of your own too, and grades what is found on rows that nothing was chosen by
  parm stand-in my-model.onnx --name mine --data npy:unlabelled.npy --cost 0.1 --teach=20
      teaches what it found, where minutes of training are worth a few points

Stand-ins are judged on rows that made none of them. What is not faster than the deployed model on this engine and machine
is refused. See docs/stand-ins.md.";

/// `parm stand-in`.
#[derive(Debug, Args)]
pub struct StandInSearch {
    /// The deployed model: its name in the repository, or an ONNX file
    pub model: String,
    /// Rows that the model is asked about: npy:FILE,FILE.. or idx:FILE,FILE.., an array for each input in the model's order,
    /// then labels if there are any; bytes:FOLDER,FOLDER.. for file-type models, a kilobyte from either end of files of every
    /// ending; capture:FOLDER for what `parm serve --capture` kept, of which the newest is judged on. 24 rows at least, and a few hundred to tell good from better
    #[arg(long, value_name = "SOURCE")]
    pub data: String,
    /// Rows that only grade: what is on the frontier is asked about them at the end, and nothing is made from them or chosen by
    /// them. Same kinds as --data
    #[arg(long, value_name = "SOURCE")]
    pub test: Option<String>,
    /// A stand-in that you made: it is measured beside the others, in 8 bits too. May be given several times
    #[arg(long, value_name = "FILE")]
    pub from: Vec<PathBuf>,
    /// Then teach the two best candidates that fit the cost what the model says (the cheapest where none fits), with all rows that
    /// decide nothing, for so many epochs (10 if none are given). Takes minutes or hours, and wants many thousands of rows; needs a build with `--features train`
    #[arg(long, value_name = "EPOCHS", num_args = 0..=1, require_equals = true, default_missing_value = "10")]
    pub teach: Option<std::num::NonZeroU64>,
    /// Rows to teach with, in place of those of --data that decide nothing; labels are not looked at, so what the deployed model was
    /// trained on will do. Same kinds as --data
    #[arg(long, value_name = "SOURCE", requires = "teach")]
    pub lessons: Option<String>,
    /// The most that the stand-in may cost, as a share of a query's time on the deployed model
    #[arg(long, value_name = "SHARE", default_value_t = 0.25)]
    pub cost: f64,
    /// Engine that is to run both: tract (built in), ort (ONNX Runtime, loaded at run time), or auto (ort where its library is found)
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub engine: String,
    /// Name of a file's model in the repository [default: the file's name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// What the model's output means [default: probabilities or logits of classes, if the answers look like it]
    #[arg(long, value_enum)]
    pub meaning: Option<Answers>,
    /// Rows that candidates are made from; they are not judged on these
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub calibration: usize,
    /// Rows more that weights are refitted on where channels are taken away, at most; there are never more of them than to
    /// judge on
    #[arg(long, value_name = "N", default_value_t = 2000)]
    pub fitted: usize,
    /// Rows that candidates are judged on at most: 2,000 tell 98 % from 99
    #[arg(long, value_name = "N", default_value_t = 2000)]
    pub judged: usize,
    /// Seed that draws these rows
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How long costs are measured, about
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub measure: u64,
    /// Only say what there is, and write no model and no bundle
    #[arg(long)]
    pub dry_run: bool,
    /// Draw agreement over cost into this file (SVG)
    #[arg(long, value_name = "FILE")]
    pub picture: Option<PathBuf>,
    /// Folder for what is tried; it is taken away at the end. Teaching that was interrupted goes on from there
    #[arg(long, value_name = "FOLDER", default_value = "runs")]
    pub runs: PathBuf,
    /// Model repository
    #[arg(long, value_name = "FOLDER", default_value = "models")]
    pub models: PathBuf,
    /// `text` for people, `json` for programs
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// What a model's answers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Answers {
    /// Raw scores of classes
    Logits,
    /// Probabilities of classes
    Probabilities,
    /// Anything else: answers agree within 5 % of their size
    Values,
    /// Vectors whose direction counts: they agree where the cosine is 0.95 or more
    Embedding,
}
