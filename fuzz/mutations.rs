//! Runs fuzz targets on their seeds and on mutations of these.
//!
//! The mutations find defects near the seeds. Long runs of the fuzzer itself search further.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// A target, which panics on a finding.
pub type Target = fn(&[u8]);

/// Mutations for each target, few enough that all targets together take seconds.
const RUNS: u64 = 2000;

/// Longer inputs are truncated, because they only take more time.
const LONGEST: usize = 8 << 10;

/// A small generator, so that a failure can be repeated from its number.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound.max(1)
    }
}

/// The seeds of a target, in the order of their names.
fn seeds(folder: &Path, target: &str) -> Vec<Vec<u8>> {
    let mut files: Vec<_> = fs::read_dir(folder.join(target))
        .unwrap_or_else(|error| panic!("{target} has no seeds: {error}"))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

/// A seed with a few bytes changed, removed, duplicated or taken from another seed.
fn mutated(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        let end = (at + 1 + random.below(16)).min(bytes.len());
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, b'9'][random.below(6)],
            2 => drop(bytes.drain(at..end)),
            3 => {
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            4 => {
                let other = &seeds[random.below(seeds.len())];
                let from = random.below(other.len());
                let piece = other[from..(from + 16).min(other.len())].to_vec();
                bytes.splice(at..end, piece);
            }
            _ => bytes.truncate(at.max(1)),
        }
        if bytes.is_empty() {
            bytes.push(0);
        }
    }
    bytes.truncate(LONGEST);
    bytes
}

fn runs(name: &str, target: Target, input: &[u8], what: &str) {
    let outcome = catch_unwind(AssertUnwindSafe(|| target(input)));
    assert!(outcome.is_ok(), "{name} fails on {what}: {:?}", String::from_utf8_lossy(input));
}

/// Runs these targets; `folder` has a folder of seeds for each.
pub fn survive(folder: &Path, targets: &[(&str, Target)]) {
    for (name, target) in targets {
        let seeds = seeds(folder, name);
        for (number, seed) in seeds.iter().enumerate() {
            runs(name, *target, seed, &format!("seed {number}"));
        }
        for number in 0..RUNS {
            let mut random = Random(number);
            runs(name, *target, &mutated(&seeds, &mut random), &format!("input {number}"));
        }
    }
}
