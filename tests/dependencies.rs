//! Checks that the sources name every dependency, because an unused one slows every build.

use std::fs;
use std::path::Path;

use crate::support::process::root;
use crate::support::workspace::{files, manifest, members, names, without_comments};

/// Folders that may use each kind of dependency.
const KINDS: &[(&str, &[&str])] =
    &[("dependencies", &["src"]), ("dev-dependencies", &["src", "tests", "benches", "examples"])];

/// Packages whose library has another name.
const RENAMED: &[(&str, &str)] = &[("md-5", "md5")];

#[test]
fn every_dependency_is_named_in_the_sources() {
    let crates = members().into_iter().map(|krate| root().join(krate));
    for folder in crates.chain([root(), root().join("fuzz")]) {
        let manifest = manifest(&folder);
        for (kind, places) in KINDS {
            let Some(dependencies) = manifest.get(*kind).and_then(toml::Value::as_table) else { continue };
            let code = code(&folder, places);
            for package in dependencies.keys() {
                let renamed =
                    RENAMED.iter().find(|(from, _)| from == package).map(|(_, name)| (*name).to_owned());
                let name = renamed.unwrap_or_else(|| package.replace('-', "_"));
                let krate = folder.display();
                assert!(
                    names(&code, &name),
                    "{krate}/Cargo.toml: {kind} has {package}, which {places:?} never name"
                );
            }
        }
    }
}

fn code(folder: &Path, places: &[&str]) -> String {
    // The fuzz targets are separate programs.
    let places = places.iter().chain(&["fuzz_targets"]);
    let sources = places.flat_map(|place| files(&folder.join(place), "rs"));
    sources.map(|path| without_comments(&fs::read_to_string(path).unwrap())).collect::<Vec<_>>().join("\n")
}
