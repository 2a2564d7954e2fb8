//! Flags of `parm data`. Without the feature `train` the command only prints how to build it.

use std::path::PathBuf;

use clap::{Args, Subcommand};

pub const EXAMPLES: &str = "Examples:
  parm data save csv:flowers.csv flowers
      flowers/inputs.npy and flowers/labels.npy, for `parm stand-in`

Sources, for --data and --test of other commands:
  idx:IMAGES,LABELS            MNIST and its family, plain or gzipped
  npy:ROWS,LABELS              arrays of numpy; a matrix of labels is values to predict. Stand-ins and base models take one
                               array of rows for each input
  csv:FILE                     ?target=COLUMN [the last], &as=class or value; words become columns of 0 and 1
  bytes:FOLDER,FOLDER..        any files, 1024 bytes of either end, for file-type models, without labels; ?each=100 at most
                               of every ending, drawn with &draw=1
Folders of images, sequences of unequal length (npz), CIFAR's batches, recordings (WAV) and photos with boxes (Pascal VOC)
become arrays of numpy with training/convert.py.
Any source: rows=FROM..TO takes some rows, sample=1000 random ones; part=train or part=test with hold=0.2 (share of test
rows) and seed=1 a random part.";

/// `parm data`.
#[derive(Debug, Args)]
pub struct Data {
    #[command(subcommand)]
    pub command: DataCommand,
}

#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// Save a source as arrays of numpy
    Save {
        /// Source: KIND:PATH,PATH?setting=value&setting
        source: String,
        /// Folder for inputs.npy, and labels.npy or values.npy
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
}
