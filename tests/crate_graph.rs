//! The crate graph is what ARCHITECTURE.md says: dependencies point one way, foreign types stop where they should.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Who may depend on whom, by crate folder. The binary may depend on all.
const ALLOWED: &[(&str, &[&str])] = &[
    ("random", &[]),
    ("charts", &[]),
    ("protocol", &[]),
    ("encoder", &[]),
    ("workload", &["random"]),
    ("arrays", &["protocol"]),
    ("wire", &["protocol"]),
    ("dispatch", &["encoder"]),
    ("parity-models", &["random", "protocol", "encoder"]),
    ("backend", &["protocol", "wire", "workload", "parity-models"]),
    ("frontend", &["protocol", "wire", "encoder", "dispatch", "parity-models"]),
    ("loadgen", &["random", "protocol", "arrays", "workload"]),
    ("simulator", &["dispatch", "workload"]),
    ("experiments", &["charts", "protocol", "wire", "dispatch", "workload", "loadgen", "simulator"]),
    (
        "tuner",
        &["charts", "protocol", "encoder", "dispatch", "workload", "parity-models", "loadgen", "simulator"],
    ),
    ("training", &["random", "charts", "protocol", "arrays", "encoder", "parity-models"]),
];

/// Foreign crates and the only places that may name them.
const CONFINED: &[(&str, &[&str])] = &[
    ("axum::", &["wire/src/server", "frontend/src/admin"]),
    ("tonic::", &["wire/src/server", "wire/src/client", "wire/src/grpc"]),
    ("tract_onnx::", &["backend/src/engine/tract"]),
    ("use ort::", &["backend/src/engine/ort"]),
    ("burn::", &["training/src"]),
    ("rand_chacha::", &["workload/src/arrivals.rs", "loadgen/src/statistics/bootstrap.rs"]),
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
        let ours: BTreeSet<_> = manifest
            .get("dependencies")
            .and_then(toml::Value::as_table)
            .into_iter()
            .flat_map(toml::Table::keys)
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
    for (file, text) in sources().filter(|(file, _)| file.starts_with("dispatch/src/")) {
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        // `names` looks up and never walks, so that no order leaks out of the hashing.
        let lookup = file.ends_with("src/names.rs");
        for needle in IMPURE.iter().filter(|needle| !(lookup && **needle == "HashMap")) {
            let named = code.lines().any(|line| line.split("//").next().unwrap_or_default().contains(needle));
            assert!(!named, "{file} names {needle}: the dispatcher is a pure state machine");
        }
    }
}
