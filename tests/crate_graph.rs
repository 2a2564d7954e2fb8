//! Keeps the crate graph: allowed dependencies, a row of ARCHITECTURE.md for each crate, and the only places of foreign types.

use std::collections::BTreeSet;
use std::fs;

use crate::support::process::root;
use crate::support::workspace::{files, manifest, members, names, without_comments};

/// Allowed dependencies of each crate, by folder. A crate without a row fails; the binary may depend on all.
const ALLOWED: &[(&str, &[&str])] = &[
    ("core/random", &[]),
    ("core/shares", &["durations"]),
    ("core/grants", &[]),
    ("core/durations", &[]),
    ("wire/protocol", &["grants"]),
    ("encoder", &[]),
    ("lab/grids", &[]),
    ("core/workload", &["random", "durations"]),
    ("wire/arrays", &["protocol"]),
    ("wire/captures", &["protocol"]),
    ("wire/transport", &["durations", "protocol", "grants"]),
    ("core/dispatcher", &["durations", "encoder", "grants", "shares"]),
    ("core/settings", &["dispatcher", "durations", "encoder"]),
    ("parity-models", &["random", "protocol", "encoder"]),
    ("backend", &["durations", "shares", "grants", "protocol", "transport", "workload", "parity-models"]),
    ("stand-ins", &["random", "protocol", "arrays", "parity-models", "backend"]),
    (
        "frontend",
        &[
            "durations",
            "shares",
            "grants",
            "protocol",
            "captures",
            "transport",
            "encoder",
            "settings",
            "dispatcher",
            "parity-models",
            "random",
        ],
    ),
    ("loadgen", &["random", "protocol", "arrays", "workload"]),
    (
        "lab",
        &[
            "arrays",
            "dispatcher",
            "durations",
            "encoder",
            "grants",
            "grids",
            "loadgen",
            "parity-models",
            "protocol",
            "settings",
            "workload",
        ],
    ),
    ("training", &["random", "grids", "protocol", "arrays", "encoder", "parity-models"]),
];

/// Foreign crates and the only places that may name them.
const CONFINED: &[(&str, &[&str])] = &[
    ("axum::", &["wire/transport/src/server", "frontend/src/admin"]),
    ("tonic::", &["wire/transport/src/server", "wire/transport/src/client", "wire/transport/src/grpc"]),
    ("rustls::", &["wire/transport/src/tls"]),
    ("tokio_rustls::", &["wire/transport/src/tls"]),
    ("webpki::", &["wire/transport/src/tls"]),
    ("x509_parser::", &["wire/transport/src/tls"]),
    ("ring::default_provider", &["wire/transport/src/tls/identity"]),
    ("tract_onnx::", &["backend/src/engine/tract"]),
    ("use ort::", &["backend/src/engine/ort"]),
    ("burn::", &["training/src"]),
    ("rand_chacha::", &["core/workload/src/arrivals.rs", "loadgen/src/statistics/bootstrap.rs"]),
    ("hickory_resolver::", &["frontend/src/discovery/resolver.rs"]),
];

/// Names that the pure dispatcher must not contain: clocks, runtimes, randomness, unordered maps, tensors.
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

fn sources() -> impl Iterator<Item = (String, String)> {
    members().into_iter().flat_map(|krate| files(&root().join(krate).join("src"), "rs")).map(|path| {
        let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        (name, fs::read_to_string(&path).unwrap())
    })
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn crates_depend_only_on_those_below_them() {
    let ruled: BTreeSet<_> = ALLOWED.iter().map(|(krate, _)| (*krate).to_owned()).collect();
    assert_eq!(ruled, members().into_iter().collect(), "every crate has a row with its allowed dependencies");
    for (krate, below) in ALLOWED {
        let manifest = manifest(&root().join(krate));
        let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table);
        let dependencies = dependencies.into_iter().flat_map(toml::Table::keys);
        let ours: BTreeSet<_> =
            dependencies.filter_map(|name| name.strip_prefix("parm-").map(str::to_owned)).collect();
        let below = set(below);
        assert!(ours.is_subset(&below), "{krate} depends on {ours:?}, allowed are {below:?}");
    }
}

#[test]
fn code_map_has_every_crate() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for (krate, _) in ALLOWED {
        let row = text.lines().any(|line| line.starts_with(&format!("| `{krate}/` |")));
        assert!(row, "ARCHITECTURE.md: the code map has no row for {krate}/");
    }
}

#[test]
fn foreign_types_stay_in_their_files() {
    for (needle, places) in CONFINED {
        for place in *places {
            let exists = root().join(place).exists() || root().join(format!("{place}.rs")).exists();
            assert!(exists, "{needle} is confined to {place}, which does not exist");
        }
    }
    for (file, text) in sources() {
        let code = without_comments(&text);
        for (needle, places) in CONFINED {
            let allowed = places.iter().any(|place| file.starts_with(place));
            assert!(allowed || !names(&code, needle), "{file} names {needle}, which belongs in {places:?}");
        }
    }
}

#[test]
fn the_dispatcher_has_no_io_no_clock_and_no_randomness() {
    for (file, text) in sources().filter(|(file, _)| file.starts_with("core/dispatcher")) {
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for needle in IMPURE {
            let named = code.lines().any(|line| line.split("//").next().unwrap_or_default().contains(needle));
            assert!(!named, "{file} names {needle}: the dispatcher is a pure state machine");
        }
    }
}

/// Dependencies of servers. The simulator, the tuner and model tools must build without them.
const HEAVY: &[&str] = &["axum", "hyper", "tonic", "hickory-resolver", "prometheus"];

#[test]
fn crates_without_a_server_link_no_server_dependency() {
    let lock: toml::Table = fs::read_to_string(root().join("Cargo.lock")).unwrap().parse().unwrap();
    let packages = lock["package"].as_array().unwrap();
    let members: Vec<_> = members().into_iter().map(|folder| manifest(&root().join(folder))).collect();
    // The manifests of members are read because the lock file also lists the dependencies of their tests.
    let below = |name: &str| -> Vec<String> {
        let own = members.iter().find(|member| member["package"]["name"].as_str() == Some(name));
        if let Some(member) = own {
            let dependencies = member.get("dependencies").and_then(toml::Value::as_table);
            return dependencies.into_iter().flat_map(toml::Table::keys).cloned().collect();
        }
        let of = packages.iter().filter(|package| package["name"].as_str() == Some(name));
        let named = of.filter_map(|package| package.get("dependencies")?.as_array());
        named.flatten().map(|name| name.as_str().unwrap().split(' ').next().unwrap().to_owned()).collect()
    };
    for light in ["parm-dispatcher", "parm-lab", "parm-parity-models", "parm-training"] {
        let mut linked = BTreeSet::from([light.to_owned()]);
        let mut next = vec![light.to_owned()];
        while let Some(name) = next.pop() {
            next.extend(below(&name).into_iter().filter(|name| linked.insert(name.clone())));
        }
        for heavy in HEAVY {
            assert!(
                !linked.contains(*heavy),
                "{light} links {heavy}: move the code that needs it to a crate above"
            );
        }
        assert!(linked.len() > 3, "{light} is not found in Cargo.lock");
    }
}
