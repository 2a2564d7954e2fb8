//! Labels of the model's classes, and the score that each requires.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

/// The model's configuration, as published by its authors.
pub(crate) struct Labels(Value);

impl Labels {
    pub(crate) fn read() -> Result<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/magika/config.json");
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        Ok(Self(serde_json::from_str(&text).context("reading the model's labels")?))
    }

    /// Returns the label of a class, with a question mark if the score is below the label's threshold.
    pub(crate) fn decide(&self, class: usize, score: f64) -> Result<String> {
        let label = self.0["target_labels_space"][class].as_str().context("a class without a label")?;
        let usual = &self.0["medium_confidence_threshold"];
        let threshold = self.0["thresholds"].get(label).unwrap_or(usual).as_f64().unwrap_or(0.5);
        let name = self.0["overwrite_map"][label].as_str().unwrap_or(label);
        Ok(if score >= threshold { name.into() } else { format!("{name}?") })
    }
}
