//! Loads a file and runs it once, as a worker does before it serves the model.

use std::path::Path;

use super::load::alone;
use crate::Error;
use crate::engine::{self, Engine, Options, Texts, guarded};

/// Loads a file, compares its answers and runs it once. Fails where a worker would not load it.
pub fn try_file(engine: &dyn Engine, path: &Path, options: &Options) -> Result<(), Error> {
    guarded(|| {
        let mut model = engine.load(path, options)?;
        engine::compare(engine, &mut *model, path, options)?;
        let mut model = match Texts::beside(path)? {
            Some(texts) => texts.over(model).0,
            None => model,
        };
        alone(&mut *model, false, 1).map(drop)
    })
}
