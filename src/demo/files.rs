//! Models and images of the demo inside the binary, for use outside of the source folder.
//!
//! Choice: they are 1.9 MB, and the demo is the first command of most users. Rejected: a download, which fails without a
//! network and would have to be verified.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::cli;

macro_rules! files {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/", $path)))),*]
    };
}

/// The files by their paths in the source folder.
const FILES: &[(&str, &[u8])] = files![
    "models/fashion-lenet/NOTICE",
    "models/fashion-lenet/parm.toml",
    "models/fashion-lenet/1/model.onnx",
    "models/fashion-lenet-slots-k2/1/model.onnx",
    "models/fashion-lenet-slots-k3/1/model.onnx",
    "models/fashion-lenet-slots-k4/1/model.onnx",
    "models/fashion-lenet-sum-k2/1/model.onnx",
    "models/fashion-perceptron/NOTICE",
    "models/fashion-perceptron/1/model.onnx",
    "examples/fashion-mnist/NOTICE",
    "examples/fashion-mnist/images-idx3-ubyte.gz",
    "examples/fashion-mnist/labels-idx1-ubyte.gz",
];

/// The model of the demo.
const MODEL: &str = "fashion-lenet";

/// The folders of a demo. Files of the binary are removed at the end.
pub(super) struct Folders {
    pub(super) models: PathBuf,
    pub(super) images: PathBuf,
    unpacked: Option<PathBuf>,
}

impl Folders {
    /// Returns the folders of the flags. The binary's files replace default folders that do not exist, or lack the
    /// model.
    pub(super) fn of(flags: &cli::Demo) -> anyhow::Result<Self> {
        let lacks = |path: &Path, default: &str, own: &Path| path == Path::new(default) && !own.is_dir();
        // A folder `models` may be the user's, with other models.
        let own = flags.models.join(MODEL);
        let lacks_models = flags.model == MODEL && lacks(&flags.models, "models", &own);
        let lacks_images = lacks(&flags.images, "examples/fashion-mnist", &flags.images);
        let (mut models, mut images) = (flags.models.clone(), flags.images.clone());
        if !lacks_models && !lacks_images {
            return Ok(Self { models, images, unpacked: None });
        }
        let root = std::env::temp_dir().join(format!("parm-demo-{}", std::process::id()));
        // It must not exist: on a shared machine another user could have made it.
        DirBuilder::new()
            .mode(0o700)
            .create(&root)
            .with_context(|| format!("cannot create {}", root.display()))?;
        let unpacked = Some(root.clone());
        if lacks_models {
            models = root.join("models");
        }
        if lacks_images {
            images = root.join("examples/fashion-mnist");
        }
        let folders = Self { models, images, unpacked };
        for (path, content) in FILES {
            let path = root.join(path);
            let write = || {
                fs::create_dir_all(path.parent().unwrap_or(&root))?;
                fs::write(&path, content)
            };
            write().with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(folders)
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        if let Some(root) = &self.unpacked {
            let _ = fs::remove_dir_all(root);
        }
    }
}
