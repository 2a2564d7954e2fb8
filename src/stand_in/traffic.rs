//! Reads rows from the captures of a frontend.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{bail, ensure};
use parm_backend::engine::Signature;
use parm_captures::Record;
use parm_protocol::Tensor;
use parm_stand_ins::Rows;

/// Largest number of rows; the newest are taken.
const MOST_ROWS: usize = 100_000;

/// Reads the rows that a frontend captured from `model`, as [`arrays`].
pub fn read(folder: &Path, model: &str, signature: &Signature) -> anyhow::Result<Rows> {
    Ok(Rows::new(signature, &arrays(folder, model, signature)?)?)
}

/// Reads the inputs that a frontend captured from `model`, oldest first. If rows vary in size, it takes those of the most
/// frequent size.
pub fn arrays(folder: &Path, model: &str, signature: &Signature) -> anyhow::Result<Vec<Tensor>> {
    let parm_captures::Captured { records, lost } = parm_captures::read(folder, model)?;
    if lost > 0 {
        eprintln!("{lost} bytes at the ends of files are incomplete queries: they are ignored");
    }
    let mut sizes: BTreeMap<Vec<Vec<usize>>, Vec<Vec<Tensor>>> = BTreeMap::new();
    let mut count = 0;
    for record in records.iter().rev() {
        if count >= MOST_ROWS {
            break;
        }
        let inputs = in_order(record, signature, folder)?;
        if inputs.iter().all(|input| input.data().is_empty()) {
            // Such a request has no data, and may claim more rows than fit into a number.
            continue;
        }
        let rows = inputs.first().map_or(0, Tensor::rows);
        let shapes = inputs.iter().map(|input| input.shape().get(1..).unwrap_or_default().to_vec()).collect();
        sizes.entry(shapes).or_default().push(inputs);
        count += rows;
    }
    let rows = |requests: &Vec<Vec<Tensor>>| requests.iter().map(|inputs| inputs[0].rows()).sum::<usize>();
    let Some((shapes, mut requests)) = sizes.into_iter().max_by_key(|(_, requests)| rows(requests)) else {
        bail!("{} holds requests without inputs", folder.display());
    };
    if rows(&requests) < count {
        eprintln!("{} of {count} rows have the sizes {shapes:?}; the others are ignored", rows(&requests));
    }
    requests.reverse();
    let column = |place: usize| {
        let parts: Vec<Tensor> = requests.iter().map(|inputs| inputs[place].clone()).collect();
        Tensor::concat_rows(&parts)
    };
    finite((0..signature.inputs.len()).map(column).collect::<Result<Vec<_>, _>>()?, folder)
}

/// Keeps the rows whose numbers are all finite: clients may have sent any values.
fn finite(columns: Vec<Tensor>, folder: &Path) -> anyhow::Result<Vec<Tensor>> {
    let count = columns.first().map_or(0, Tensor::rows);
    let mut usable = vec![true; count];
    for column in &columns {
        let width = (column.len() / count.max(1)).max(1);
        let numbers = parm_arrays::numbers(column).into_iter().flatten().enumerate();
        numbers.filter(|(_, number)| !number.is_finite()).for_each(|(at, _)| usable[at / width] = false);
    }
    let rows: Vec<usize> = (0..count).filter(|&row| usable[row]).collect();
    let ignored = count - rows.len();
    if ignored == 0 {
        return Ok(columns);
    }
    ensure!(!rows.is_empty(), "{} has no usable rows: all have values that are not finite", folder.display());
    eprintln!("{ignored} of {count} rows have values that are not finite: they are ignored");
    let chosen = columns.iter().map(|column| {
        let rows = rows.iter().map(|&row| column.slice_rows(row, 1)).collect::<Result<Vec<_>, _>>()?;
        Ok(Tensor::concat_rows(&rows)?)
    });
    chosen.collect()
}

/// Returns a request's inputs in the model's order.
fn in_order(record: &Record, signature: &Signature, folder: &Path) -> anyhow::Result<Vec<Tensor>> {
    let wanted = signature.inputs.iter();
    let found = wanted.map(|wanted| {
        let named = record.inputs.iter().find(|named| named.name == wanted.name);
        named.map(|named| named.tensor.clone())
    });
    match found.collect::<Option<Vec<Tensor>>>() {
        Some(inputs) if inputs.len() == record.inputs.len() && !inputs.is_empty() => Ok(inputs),
        _ => {
            let given: Vec<&str> = record.inputs.iter().map(|named| named.name.as_str()).collect();
            let wanted: Vec<&str> = signature.inputs.iter().map(|input| input.name.as_str()).collect();
            bail!(
                "{} was captured from a model with the inputs {}, but this model has {}: give the model that was captured",
                folder.display(),
                given.join(", "),
                wanted.join(", ")
            )
        }
    }
}
