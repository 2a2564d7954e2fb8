//! Reads rows and labels from files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use parm_arrays::{Format, TOKENS, tokens, walk};
use parm_backend::engine::{Signature, Texts};
use parm_protocol::{DataType, Tensor};
use parm_random::Random;
use parm_stand_ins::Rows;

use super::traffic;

/// Largest array of a file, and largest file of texts, in bytes.
const MOST_BYTES: u64 = 4 << 30;
const MOST_TEXT: u64 = 256 << 20;
/// Largest number of files to search, and of rows to make from them.
const MOST_FILES: usize = 4_000_000;
const MOST_ROWS: usize = 10_000;
/// Largest number of files with the same ending: a few kinds make up most files of a machine.
const OF_AN_ENDING: usize = 100;

/// Rows for a model, with labels if there are any.
pub struct Asked {
    /// Rows in the shape of the model's inputs.
    pub rows: Rows,
    /// Their labels, if the source has one file more than the model has inputs.
    pub labels: Option<Vec<usize>>,
    /// Whether they are in temporal order.
    pub in_time: bool,
}

impl Asked {
    /// Returns the different rows that are not among those of the search; the others would flatter the candidates.
    pub fn unseen(self, seen: &Rows) -> anyhow::Result<Self> {
        let own = self.rows.distinct(false);
        let outside = self.rows.outside(seen);
        let places: Vec<usize> =
            own.into_iter().filter(|place| outside.binary_search(place).is_ok()).collect();
        let given = self.rows.len();
        if places.len() == given {
            return Ok(self);
        }
        eprintln!(
            "--test: {} of {given} rows are copies, or in --data too: they are left out",
            given - places.len()
        );
        ensure!(!places.is_empty(), "--test has no row that is not in --data: give other rows");
        let labels = self.labels.map(|labels| places.iter().map(|&place| labels[place]).collect());
        Ok(Self { rows: self.rows.select(&places)?, labels, in_time: self.in_time })
    }
}

/// The model that rows are for.
#[derive(Clone, Copy)]
pub struct Model<'a> {
    /// Its name.
    pub name: &'a str,
    /// The inputs and outputs of its graph.
    pub signature: &'a Signature,
    /// The tokenizer of a text model.
    pub texts: Option<&'a Texts>,
}

/// Reads rows for a model.
pub fn read(source: &str, model: Model<'_>, seed: u64) -> anyhow::Result<Asked> {
    let Model { name, signature, texts } = model;
    let (kind, files) = source.split_once(':').unwrap_or(("npy", source));
    let files: Vec<&Path> = files.split(',').map(Path::new).collect();
    match kind {
        "npy" | "idx" => {}
        "texts" => {
            let texts = texts.context("texts: the model has no tokenizer.json beside it")?;
            let [file] = files[..] else { bail!("give one file of texts, one in a line") };
            let rows = read_lines(file, signature, texts)?;
            return Ok(Asked { rows, labels: None, in_time: false });
        }
        "bytes" => {
            let rows = Rows::new(signature, &[of_files(&files, seed)?])?;
            return Ok(Asked { rows, labels: None, in_time: false });
        }
        "capture" => {
            let [folder] = files[..] else {
                bail!("give one folder that `parm serve --capture` has written")
            };
            let rows = match texts {
                Some(texts) => {
                    let arrays = traffic::arrays(folder, name, &texts.served(signature)?)?;
                    rows_of_lines(&parm_backend::engine::texts_of(&arrays[0])?, signature, texts)?
                }
                None => traffic::read(folder, name, signature)?,
            };
            return Ok(Asked { rows, labels: None, in_time: true });
        }
        _ => {
            bail!(
                "unknown source '{kind}': save the rows with numpy and give npy:FILE, or texts:FILE for a text model"
            )
        }
    }
    let inputs = signature.inputs.len();
    let mut arrays = Vec::new();
    for (file, input) in files.iter().zip(&signature.inputs) {
        let array = parm_arrays::read(file, MOST_BYTES)?;
        let is_pixels = array.format == Format::Idx && array.tensor.datatype() == DataType::Uint8;
        arrays.push(match is_pixels && input.datatype == DataType::Fp32 {
            true => pixels(&array.tensor)?,
            false => array.tensor,
        });
    }
    let rows = Rows::new(signature, &arrays)?;
    let labels = match files.get(inputs) {
        Some(file) => Some(labels(file, rows.len())?),
        None => None,
    };
    if let Some(more) = files.get(inputs + 1) {
        bail!(
            "{}: too many files: the model has {inputs} inputs, and one file of labels may follow",
            more.display()
        );
    }
    Ok(Asked { rows, labels, in_time: false })
}

/// Reads a text from each line. The texts of a pair are separated by a tab.
fn read_lines(file: &Path, signature: &Signature, texts: &Texts) -> anyhow::Result<Rows> {
    let shown = || file.display().to_string();
    ensure!(
        std::fs::metadata(file).with_context(shown)?.len() <= MOST_TEXT,
        "{}: more than 256 MiB",
        shown()
    );
    let text = std::fs::read_to_string(file).with_context(shown)?;
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
    rows_of_lines(&lines, signature, texts)
}

/// The rows of texts, or of pairs.
fn rows_of_lines(lines: &[String], signature: &Signature, texts: &Texts) -> anyhow::Result<Rows> {
    let arrays: Vec<Tensor> = texts.tokens(signature, lines)?;
    Ok(Rows::new(signature, &arrays)?)
}

/// Returns rows for file-type models from the files below folders: a random choice of each ending, without duplicates.
fn of_files(folders: &[&Path], seed: u64) -> anyhow::Result<Tensor> {
    let folders: Vec<PathBuf> = folders.iter().map(|folder| folder.to_path_buf()).collect();
    let mut endings: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for path in walk(&folders, MOST_FILES)? {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        endings.entry(ending.to_ascii_lowercase()).or_default().push(path);
    }
    let mut random = Random::named(seed, "files");
    let mut drawn = Vec::new();
    for mut files in endings.into_values() {
        files.sort_unstable();
        random.shuffle(&mut files);
        drawn.extend(files.into_iter().take(OF_AN_ENDING));
    }
    random.shuffle(&mut drawn);
    let mut seen = BTreeSet::new();
    let rows = drawn
        .iter()
        .filter_map(|path| tokens(path).ok().flatten())
        .filter(|tokens| seen.insert(tokens.clone()));
    let rows: Vec<Vec<u16>> = rows.take(MOST_ROWS).collect();
    let data = rows.concat().into_iter().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    Ok(Tensor::new(DataType::Uint16, [rows.len(), TOKENS].as_slice(), data.into())?)
}

/// Converts bytes of pictures to the range 0 to 1, which models take.
fn pixels(bytes: &Tensor) -> anyhow::Result<Tensor> {
    let values: Vec<f32> = bytes.data().iter().map(|&byte| f32::from(byte) / 255.0).collect();
    Ok(Tensor::from_f32(bytes.shape(), &values)?)
}

fn labels(file: &Path, rows: usize) -> anyhow::Result<Vec<usize>> {
    let tensor = parm_arrays::read(file, MOST_BYTES)?.tensor;
    let numbers =
        parm_arrays::numbers(&tensor).with_context(|| format!("{} has no numbers", file.display()))?;
    if tensor.shape() != [rows] {
        bail!(
            "{} has the shape {:?}: give a class for each of the {rows} rows",
            file.display(),
            tensor.shape()
        );
    }
    let class = |number: f64| (number >= 0.0 && number.fract() == 0.0).then_some(number as usize);
    let classes: Option<Vec<usize>> = numbers.map(class).collect();
    classes
        .with_context(|| format!("{} has numbers that are not classes: give integers from 0", file.display()))
}
