//! The folders of a demo: those of its flags, or the binary's own files outside of the source folder.

use std::path::{Path, PathBuf};

use crate::cli;
use crate::example::Example;

/// The model of the demo.
const MODEL: &str = "fashion-lenet";

/// The folders of a demo. Files of the binary are removed at the end.
pub(super) struct Folders {
    pub(super) models: PathBuf,
    pub(super) images: PathBuf,
    _example: Option<Example>,
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
        let example = if lacks_models || lacks_images { Some(Example::unpack("")?) } else { None };
        let (mut models, mut images) = (flags.models.clone(), flags.images.clone());
        if let Some(example) = &example {
            models = if lacks_models { example.models() } else { models };
            images = if lacks_images { example.images() } else { images };
        }
        Ok(Self { models, images, _example: example })
    }
}
