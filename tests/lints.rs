//! Checks that each crate's `clippy.toml` repeats the bans of the root, whose file it replaces.

use std::collections::BTreeSet;
use std::fs;

use crate::support::process::root;
use crate::support::workspace::members;

#[test]
fn crate_bans_include_those_of_the_root() {
    let of_all = read("");
    let mut own = Vec::new();
    for krate in members() {
        if !root().join(&krate).join("clippy.toml").exists() {
            continue;
        }
        let here = read(&krate);
        assert_eq!(here.threshold, of_all.threshold, "{krate}/clippy.toml: too-many-arguments-threshold");
        let lost: Vec<_> = of_all.banned.difference(&here.banned).collect();
        assert!(lost.is_empty(), "{krate}/clippy.toml lacks {lost:?} of the root's file");
        own.push((krate, here.banned));
    }
    // Their tests pause time, so they must not read a clock that does not stop.
    for krate in ["core/dispatcher", "frontend", "wire/transport"] {
        let (_, banned) = own.iter().find(|(name, _)| name == krate).expect(krate);
        assert!(banned.contains("std::time::Instant::now"), "{krate} may read the machine's clock");
    }
}

struct Rules {
    threshold: i64,
    banned: BTreeSet<String>,
}

fn read(krate: &str) -> Rules {
    let text = fs::read_to_string(root().join(krate).join("clippy.toml")).unwrap();
    let table: toml::Table = text.parse().unwrap();
    let banned = table["disallowed-methods"].as_array().unwrap();
    Rules {
        threshold: table["too-many-arguments-threshold"].as_integer().unwrap(),
        banned: banned.iter().map(|method| method["path"].as_str().unwrap().to_owned()).collect(),
    }
}
