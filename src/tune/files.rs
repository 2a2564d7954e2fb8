//! Writes the resulting configuration to a folder.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use parm_lab::tuner::{Report, to_toml};

const CONFIGURATION: &str = "parm.toml";

/// Rejects a folder with a configuration that `parm tune` did not write, before the search starts.
pub fn check(folder: &Path) -> anyhow::Result<()> {
    let path = folder.join(CONFIGURATION);
    if path.exists() {
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if !text.starts_with(parm_lab::tuner::MARK) {
            bail!("--out: {} was not written by parm tune: name another folder", path.display());
        }
    }
    Ok(())
}

/// Writes the file and returns its path.
pub fn write(folder: &Path, report: &Report) -> anyhow::Result<PathBuf> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make folder {}", folder.display()))?;
    let path = folder.join(CONFIGURATION);
    fs::write(&path, to_toml(report)).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
