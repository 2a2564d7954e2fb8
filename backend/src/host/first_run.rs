//! Loads a file and runs it once, as a worker does before it serves the model.

use std::path::Path;

use parm_parity_models::repository::TritonConfig;

use super::load::{alone, most_rows};
use super::padding;
use crate::engine::{self, Engine, Model, Texts, guarded};
use crate::{Config, Error};

/// Loads a file, compares its answers, checks its mask and runs it once. Fails where a worker with these settings would not
/// load it.
pub fn try_file(engine: &dyn Engine, path: &Path, config: &Config) -> Result<(), Error> {
    let options = config.engine.options();
    guarded(|| {
        let mut model = engine.load(path, &options)?;
        engine::compare(engine, &mut *model, path, &options)?;
        let mut model = match Texts::beside(path)? {
            Some(texts) => texts.over(model).0,
            None => model,
        };
        check_mask(path, config, &mut *model)?;
        alone(&mut *model, false, 1).map(drop)
    })
}

/// Refuses a model whose `config.pbtxt` names a mask that does not mask.
fn check_mask(path: &Path, config: &Config, model: &mut dyn Model) -> Result<(), Error> {
    let Some(TritonConfig { max_batch_size, mask: Some(mask), .. }) = TritonConfig::beside(path) else {
        return Ok(());
    };
    let name = path.ancestors().nth(2).and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    // Whole requests are not padded.
    match most_rows(config, &name, max_batch_size, model) {
        (0 | 1, _) => Ok(()),
        _ => padding::shown(&name, model, Some(&mask), config.measure).map(drop),
    }
}
