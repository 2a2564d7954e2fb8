//! Flags of `parm data`, which every build parses; without the feature `train` the command says how to get it.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Output;

pub const EXAMPLES: &str = "Examples:
  parm data list
      the data sets known, the command that fetches each, and how training names them
  parm data check fashion-mnist
      whether the files are there and have the published sums
  parm data show 'csv:diamonds.csv?target=price&as=value'
      what a source holds: rows, shape, classes, range
  parm data save 'npz:digits.npz?inputs=X&labels=y&lengths=lengths' digits
      the same rows as digits/inputs.npy and digits/labels.npy, for `parm stand-in --data npy:..`

Sources, as --data and --test of other commands take them:
  idx:IMAGES,LABELS            MNIST and its family, plain or gzipped
  cifar:FILE,FILE..            CIFAR's binary batches; ?classes=100 for CIFAR-100
  npy:ROWS,LABELS              arrays that numpy saved; a matrix of labels is numbers to predict. Where stand-ins and base
                               models are trained: one of rows for each input of the model
  npz:FILE                     ?inputs=x&labels=y name the arrays; &lengths=NAME for sequences end to end, each stretched
                               to &frames=20; &standard brings each feature to mean 0 and deviation 1
  csv:FILE                     ?target=COLUMN [the last], &as=class or value; words become columns of 0 and 1
  folder:FOLDER                PNG and JPEG images, one folder for each class; ?size=32x32&gray
  voc:FOLDER                   Pascal VOC: ?split=train&object=NAME&size=64x64, the box of images with one such object
  wav:FOLDER                   recordings, one folder for each class or named CLASS_...wav; ?features=mel or mfcc,
                               &bands=40, &coefficients=13, &seconds=1
  bytes:FOLDER,FOLDER..        files of any kind below them, 1024 bytes from either end, for file-type models; no labels;
                               ?each=100 of every ending at most, drawn with &draw=1
Any source: rows=FROM..TO takes some rows only, sample=1000 so many random ones; part=train or part=test takes the random
part that hold=0.2 (the share of the test rows) and seed=1 make.";

/// `parm data`.
#[derive(Debug, Args)]
pub struct Data {
    #[command(subcommand)]
    pub command: DataCommand,
}

#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// The data sets known and the commands that fetch them; downloads nothing
    List {
        /// `text` for people, `json` for programs
        #[arg(long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
    /// Compare a data set's files with their published sums
    Check {
        /// Name of the set
        name: String,
        /// Folder that the files are in [default: where the set's command puts them]
        #[arg(long, value_name = "FOLDER")]
        folder: Option<PathBuf>,
        /// `text` for people, `json` for programs
        #[arg(long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
    /// Save a source as arrays of numpy, for commands that take `npy:` alone
    Save {
        /// The source, KIND:PATH,PATH?setting=value&setting
        source: String,
        /// Folder for inputs.npy, and labels.npy or values.npy where there are any
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
    /// Read a source and say what it holds
    Show {
        /// The source, KIND:PATH,PATH?setting=value&setting
        source: String,
        /// `text` for people, `json` for programs
        #[arg(long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
}
