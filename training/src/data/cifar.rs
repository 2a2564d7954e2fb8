//! CIFAR's binary batches: records of one or two label bytes and 3072 bytes of pixels, channel after channel.

use std::path::Path;

use super::file::{self, Limit};
use super::{Samples, Unusable};
use crate::Array;

const PIXELS: usize = 3 * 32 * 32;

/// The two data sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cifar {
    /// Ten classes, one label byte.
    Ten,
    /// A hundred classes; a coarse label stands before the fine one, which is used.
    Hundred,
}

pub(super) fn read(batches: &[&Path], kind: Cifar, limit: Limit) -> Result<Samples, Unusable> {
    let (classes, label_bytes) = match kind {
        Cifar::Ten => (10, 1),
        Cifar::Hundred => (100, 2),
    };
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for &path in batches {
        let content = file::read(path, limit)?;
        let record = label_bytes + PIXELS;
        if content.len() % record != 0 || content.is_empty() {
            let detail = format!("{} bytes are not a multiple of a record's {record}", content.len());
            return Err(Unusable::Format { path: path.into(), expected: "a CIFAR batch", detail });
        }
        for record in content.chunks_exact(record) {
            let label = usize::from(record[label_bytes - 1]);
            if label >= classes {
                let detail = format!("label {label} of {classes} classes");
                return Err(Unusable::Format { path: path.into(), expected: "a CIFAR batch", detail });
            }
            labels.push(label);
            pixels.extend(record[label_bytes..].iter().map(|&byte| f32::from(byte) / 255.0));
        }
    }
    let inputs = Array::new(vec![labels.len(), 3, 32, 32], pixels).expect("each record adds one row");
    Samples::new(inputs, Some(labels))
}
