//! Rows of a text model from texts.

use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};
use parm_backend::engine::{Signature, Texts};
use parm_protocol::Tensor;
use parm_stand_ins::Rows;

/// Largest file.
const MOST_BYTES: u64 = 256 << 20;

/// Reads a text from each line. The texts of a pair are separated by a tab.
pub fn read(file: &Path, signature: &Signature, texts: &Texts) -> anyhow::Result<Rows> {
    let shown = || file.display().to_string();
    ensure!(fs::metadata(file).with_context(shown)?.len() <= MOST_BYTES, "{}: more than 256 MiB", shown());
    let text = fs::read_to_string(file).with_context(shown)?;
    let in_row = texts.served(signature)?.inputs[0].shape[1] as usize;
    let lines = text.lines().filter(|line| !line.trim().is_empty()).enumerate().map(|(at, line)| {
        let parts: Vec<String> = match in_row {
            1 => vec![line.to_owned()],
            _ => line.split('\t').map(str::to_owned).collect(),
        };
        ensure!(parts.len() == in_row, "{}: text {} has no tab between query and text", shown(), at + 1);
        Ok(parts)
    });
    let lines = lines.collect::<anyhow::Result<Vec<_>>>()?.concat();
    ensure!(!lines.is_empty(), "{} has no text: write one in a line", shown());
    rows(&lines, signature, texts)
}

/// The rows of texts, or of pairs.
pub fn rows(lines: &[String], signature: &Signature, texts: &Texts) -> anyhow::Result<Rows> {
    let arrays: Vec<Tensor> = texts.tokens(signature, lines)?;
    Ok(Rows::new(signature, &arrays)?)
}
