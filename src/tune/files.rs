//! Writes the results, a configuration and a picture, to a folder.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use parm_tuner::{Report, to_toml};

const CONFIGURATION: &str = "parm.toml";
const PICTURE: &str = "tradeoff.svg";

/// Rejects a folder with a configuration that `parm tune` did not write, before the search starts.
pub fn check(folder: &Path) -> anyhow::Result<()> {
    let path = folder.join(CONFIGURATION);
    if path.exists() {
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if !text.starts_with(parm_tuner::MARK) {
            bail!("--out: {} was not written by parm tune: name another folder", path.display());
        }
    }
    Ok(())
}

/// Writes both files and returns their paths.
pub fn write(folder: &Path, report: &Report) -> anyhow::Result<Vec<PathBuf>> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make folder {}", folder.display()))?;
    [(CONFIGURATION, to_toml(report)), (PICTURE, report.to_svg())]
        .into_iter()
        .map(|(name, text)| {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            Ok(path)
        })
        .collect()
}
