//! Rows and labels from files.

use std::path::Path;

use anyhow::{Context, bail};
use parm_arrays::Format;
use parm_backend::engine::Signature;
use parm_protocol::{DataType, Tensor};
use parm_stand_ins::Rows;

/// Most bytes of one file's array.
const MOST_BYTES: u64 = 4 << 30;

/// Rows as the model takes them, and their labels where there is a file more than the model has inputs.
pub fn read(source: &str, signature: &Signature) -> anyhow::Result<(Rows, Option<Vec<usize>>)> {
    let (kind, files) = source.split_once(':').unwrap_or(("npy", source));
    if !matches!(kind, "npy" | "idx") {
        bail!("'{kind}' is no kind of file that is read here: save the rows with numpy and give npy:FILE");
    }
    let files: Vec<&Path> = files.split(',').map(Path::new).collect();
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
        bail!("{}: the model has {inputs} inputs, and one file of labels may follow", more.display());
    }
    Ok((rows, labels))
}

/// Bytes of pictures as models are sent them: 0 to 1.
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
    classes.with_context(|| {
        format!("{} has numbers that are no classes: give whole ones from 0 on", file.display())
    })
}
