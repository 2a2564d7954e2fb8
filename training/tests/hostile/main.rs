//! Hostile files: each must be rejected with a reason, within bounded memory and without a panic.
//!
//! One table per kind of file. This is a separate program because its allocator counts allocations.

#[path = "../../../wire/transport/tests/memory/counting.rs"]
mod counting;
mod data;
mod graphs;
mod recipes;

use std::fmt::{Debug, Display};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use parm_training::data::{Limit, Samples, Source, Unusable};
use tempfile::TempDir;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

/// Held while memory is counted.
static ALONE: Mutex<()> = Mutex::new(());

/// The limit for each file and for its rows.
const LIMIT: Limit = Limit(1 << 20);
/// Memory that a rejected file may take. A byte of a file becomes at most a 64-bit and a 32-bit float, and buffers
/// double.
const MOST: usize = 24 << 20;

/// Describes an attempt that does not fail with these words, or that takes more than `most` bytes.
fn complaint<T: Debug, E: Display>(
    name: &str,
    words: &str,
    most: usize,
    attempt: impl FnOnce() -> Result<T, E>,
) -> Option<String> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut outcome = None;
    let peak = counting::peak(|| {
        outcome = Some(catch_unwind(AssertUnwindSafe(|| match attempt() {
            Ok(_) => "is accepted".to_owned(),
            Err(error) => {
                let error = error.to_string();
                if error.contains(words) { String::new() } else { format!("error '{error}' lacks '{words}'") }
            }
        })));
    });
    let said = outcome.and_then(Result::ok).unwrap_or_else(|| "panics".to_owned());
    match said.is_empty() {
        true if peak <= most => None,
        true => Some(format!("{name} takes {peak} bytes")),
        false => Some(format!("{name} {said}")),
    }
}

/// A source of data: its text with `{}` for the folder, its files, and words of the expected error.
struct Case {
    source: &'static str,
    files: Vec<(&'static str, Vec<u8>)>,
    words: &'static str,
}

impl Case {
    fn new(source: &'static str, content: Vec<u8>, words: &'static str) -> Self {
        let name = source.split("{}/").nth(1).unwrap_or("f").split(['?', ',']).next().unwrap_or("f");
        Self { source, files: vec![(name, content)], words }
    }

    fn and(mut self, name: &'static str, content: Vec<u8>) -> Self {
        self.files.push((name, content));
        self
    }

    fn read(&self, folder: &TempDir) -> Result<Samples, Unusable> {
        let text = self.source.replace("{}", &folder.path().display().to_string());
        text.parse::<Source>()?.read(LIMIT)
    }
}

/// Reads each source and lists those that are not rejected as expected.
fn check(cases: Vec<Case>) {
    let mut wrong = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in &case.files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let name = format!("case {at}, {} ({})", case.source, case.words);
        wrong.extend(complaint(&name, case.words, MOST, || case.read(&folder)));
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// A numpy file.
fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let length = u16::try_from(header.len()).unwrap();
    [b"\x93NUMPY\x01\x00", &length.to_le_bytes()[..], header.as_bytes(), data].concat()
}

/// Little-endian 64-bit floats.
fn doubles(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}
