//! The crate graph is what ARCHITECTURE.md says: dependencies point one way, foreign types stop where they should.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Who may depend on whom, by crate folder. The binary may depend on all.
const ALLOWED: &[(&str, &[&str])] = &[
    ("protocol", &[]),
    ("encoder", &[]),
    ("faults", &[]),
    ("parity-models", &["protocol", "encoder"]),
    ("backend", &["protocol", "faults", "parity-models"]),
    ("frontend", &["protocol", "encoder", "parity-models"]),
    ("loadgen", &["protocol", "faults"]),
    ("simulator", &["frontend", "faults", "loadgen"]),
    ("experiments", &["protocol", "faults", "loadgen", "simulator"]),
    ("tuner", &["protocol", "encoder", "faults", "parity-models", "frontend", "loadgen", "simulator"]),
    ("training", &["encoder", "parity-models"]),
];

/// Foreign crates and the only places that may name them.
const CONFINED: &[(&str, &[&str])] = &[
    ("axum::", &["protocol/src/server", "frontend/src/admin", "frontend/src/dashboard"]),
    ("tonic::", &["protocol/src/server", "protocol/src/client", "protocol/src/grpc"]),
    ("tract_onnx::", &["backend/src/engine/tract"]),
    ("use ort::", &["backend/src/engine/ort"]),
    ("burn::", &["training/src"]),
    ("hickory_resolver::", &["frontend/src/discovery/resolver.rs"]),
];

/// What the pure dispatcher may never name: clocks, runtimes, randomness, unordered maps, tensors.
const IMPURE: &[&str] = &[
    "tokio",
    "std::time::Instant",
    "SystemTime",
    "std::thread",
    "std::net",
    "rand::",
    "HashMap",
    "HashSet",
    "parm_protocol",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

fn sources() -> impl Iterator<Item = (String, String)> {
    ALLOWED.iter().flat_map(|(krate, _)| rust_files(&root().join(krate).join("src"))).map(|path| {
        let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        (name, fs::read_to_string(&path).unwrap())
    })
}

#[test]
fn crates_depend_only_on_those_below_them() {
    let allowed: BTreeMap<_, _> = ALLOWED.iter().copied().collect();
    for (krate, below) in &allowed {
        let manifest: toml::Table =
            fs::read_to_string(root().join(krate).join("Cargo.toml")).unwrap().parse().unwrap();
        let ours: BTreeSet<_> = manifest["dependencies"]
            .as_table()
            .unwrap()
            .keys()
            .filter_map(|name| name.strip_prefix("parm-").map(str::to_owned))
            .collect();
        let below: BTreeSet<_> = below.iter().map(|name| (*name).to_owned()).collect();
        assert!(ours.is_subset(&below), "{krate} depends on {ours:?}, allowed are {below:?}");
    }
}

#[test]
fn foreign_types_stay_in_their_files() {
    for (file, text) in sources() {
        for (needle, places) in CONFINED {
            let named = text.lines().any(|line| {
                let code = line.split("//").next().unwrap_or_default();
                code.match_indices(needle)
                    .any(|(at, _)| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
            });
            let allowed = places.iter().any(|place| file.starts_with(place));
            assert!(!named || allowed, "{file} names {needle}, which belongs in {places:?}");
        }
    }
}

#[test]
fn the_dispatcher_has_no_io_no_clock_and_no_randomness() {
    for (file, text) in sources().filter(|(file, _)| file.starts_with("frontend/src/dispatch/")) {
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        // `names` looks up and never walks, so that no order leaks out of the hashing.
        let lookup = file.ends_with("dispatch/names.rs");
        for needle in IMPURE.iter().filter(|needle| !(lookup && **needle == "HashMap")) {
            let named = code.lines().any(|line| line.split("//").next().unwrap_or_default().contains(needle));
            assert!(!named, "{file} names {needle}: the dispatcher is a pure state machine");
        }
    }
}

#[test]
fn what_a_code_is_is_asked_of_the_encoder_and_not_of_its_name() {
    let names = parm_encoder::Kind::ALL.map(|kind| format!("Kind::{kind:?}"));
    let binary = rust_files(&root().join("src")).into_iter().map(|path| {
        let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        (name, fs::read_to_string(&path).unwrap())
    });
    for (file, text) in sources().chain(binary).filter(|(file, _)| !file.starts_with("encoder/")) {
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for line in code.lines().map(|line| line.split("//").next().unwrap_or_default()) {
            let asked =
                ["==", "!=", "=>", "matches!", "if let", "let Some("].iter().any(|word| line.contains(word));
            let named = names.iter().any(|name| {
                // Other crates have kinds of other things, and names that end so.
                line.match_indices(name.as_str()).any(|(at, name)| {
                    let after = line[at + name.len()..].starts_with(char::is_alphanumeric);
                    let before = line[..at].ends_with(|c: char| c.is_alphanumeric());
                    !after && !before
                })
            });
            assert!(!(asked && named), "{file} matches on a code: ask a method of Kind or CodeSpec\n{line}");
        }
    }
}
