//! Runs the fuzz targets that decode, and checks that the fuzzer has all targets. Those with a frontend run in the tests of
//! the frontend, which may pause the clock.

use std::fs;

use crate::support::process::root;

#[path = "../fuzz/mutations.rs"]
mod mutations;
#[path = "../fuzz/src/targets/mod.rs"]
mod targets;

#[test]
fn targets_survive_seeds_and_mutations() {
    mutations::survive(&root().join("fuzz/seeds"), &targets::ALL);
}

#[test]
fn every_target_is_in_the_fuzzer_and_the_recipe() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let files = fs::read_dir(root().join("fuzz/fuzz_targets")).unwrap();
    let mut names: Vec<String> =
        files.map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    let recipe = format!("targets=\"{}\"", names.join(" "));
    assert!(read("justfile").contains(&recipe), "the recipe's list is stale: {recipe}");
    let (manifest, frontends) = (read("fuzz/Cargo.toml"), read("fuzz/src/frontends/mod.rs"));
    for name in &names {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "fuzz/Cargo.toml lacks {name}");
        let decodes = targets::ALL.iter().any(|(target, _)| target == name);
        assert!(decodes || frontends.contains(&format!("(\"{name}\", ")), "no test runs {name}");
        let place = if decodes { "targets" } else { "frontends" };
        let target = read(&format!("fuzz/fuzz_targets/{name}.rs"));
        assert!(target.contains(&format!("{place}::{name}::run")), "{name} runs something else");
    }
    assert_eq!(manifest.matches("[[bin]]").count(), names.len());
}
