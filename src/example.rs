//! The example models and images inside the binary, for `parm demo` and for `parm serve` without models.
//!
//! Choice: they are 5.1 MB, and these are the first commands of most users. Rejected: a download, which fails without a
//! network and would have to be verified.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use std::hash::{BuildHasher, RandomState};

use anyhow::Context;

macro_rules! files {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/", $path)))),*]
    };
}

/// A file by its path in the source folder.
type File = (&'static str, &'static [u8]);

/// What serves if nobody names models.
const SERVED: &[File] = files![
    "models/fashion-lenet/NOTICE",
    "models/fashion-lenet/parm.toml",
    "models/fashion-lenet/1/model.onnx",
    "models/fashion-lenet-slots-k2/1/model.onnx",
    "models/fashion-lenet-slots-k3/1/model.onnx",
    "models/fashion-lenet-slots-k4/1/model.onnx",
    "models/fashion-lenet-sum-k2/1/model.onnx",
    "models/fashion-perceptron/NOTICE",
    "models/fashion-perceptron/1/model.onnx",
    "models/magika/NOTICE",
    "models/magika/config.json",
    "models/magika/1/model.onnx",
];

/// What only the demo needs.
const DEMO: &[File] = files![
    "examples/fashion-mnist/NOTICE",
    "examples/fashion-mnist/images-idx3-ubyte.gz",
    "examples/fashion-mnist/labels-idx1-ubyte.gz",
];

/// What serves if nobody names models, for the log.
pub const MODELS: &str =
    "magika (types of files) and fashion-lenet (images of clothes), with a stand-in and parity models";

/// A folder with the files, which is removed when this is dropped.
#[derive(Debug)]
pub struct Example(PathBuf);

impl Example {
    /// What `parm serve` serves without models.
    pub fn of_serve() -> anyhow::Result<Self> {
        Self::unpack(SERVED.iter())
    }

    /// What `parm demo` needs.
    pub fn of_demo() -> anyhow::Result<Self> {
        Self::unpack(SERVED.iter().chain(DEMO).filter(|(path, _)| path.contains("fashion")))
    }

    /// Writes files to a folder of this process.
    fn unpack(files: impl Iterator<Item = &'static File>) -> anyhow::Result<Self> {
        // Process ids return, in containers at every start, and a process that was killed has left its folder.
        let unique = RandomState::new().hash_one(std::process::id());
        let root = crate::environment::temporary().join(format!("parm-example-{unique:016x}"));
        // It must not exist: on a shared machine another user could have made it.
        DirBuilder::new()
            .mode(0o700)
            .create(&root)
            .with_context(|| format!("cannot create {}", root.display()))?;
        let example = Self(root);
        for (path, content) in files {
            let path = example.0.join(path);
            let write = || {
                fs::create_dir_all(path.parent().unwrap_or(&example.0))?;
                fs::write(&path, content)
            };
            write().with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(example)
    }

    /// The model repository.
    pub fn models(&self) -> PathBuf {
        self.0.join("models")
    }

    /// The labelled images.
    pub fn images(&self) -> PathBuf {
        self.0.join("examples/fashion-mnist")
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
