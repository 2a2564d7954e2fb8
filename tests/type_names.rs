//! Checks that the types of a crate have distinct names, so that a search finds one type and imports need no alias.
//!
//! A type is a declaration with `struct`, `enum`, `trait`, `union` or, outside of an `impl`, `type`. Test modules and
//! generated code are exempt. The configuration of a component is always its `Config`, and code names it with its module:
//! `server::Config`, `client::Config`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::support::process::root;
use crate::support::workspace::{files, members};

/// Each component may have one, because code names it with the component's module.
const OF_COMPONENTS: &str = "Config";

#[test]
fn types_of_a_crate_have_distinct_names() {
    let mut twice = Vec::new();
    let mut seen = 0;
    for folder in members().into_iter().map(|krate| root().join(krate)).chain([root()]) {
        let mut declared: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for path in files(&folder.join("src"), "rs").iter().filter(|path| !is_test(path)) {
            let text = fs::read_to_string(path).unwrap();
            if text.contains("@generated") {
                continue;
            }
            for (line, name) in types(&text) {
                seen += 1;
                declared.entry(name).or_default().push(format!("{}:{line}", path.display()));
            }
        }
        declared.remove(OF_COMPONENTS);
        twice.extend(declared.into_iter().filter(|(_, places)| places.len() > 1));
    }
    assert!(seen > 900, "only {seen} types were found: does this test still read declarations?");
    assert!(twice.is_empty(), "rename the narrower one by a noun of the domain: {twice:#?}");
}

#[test]
fn declarations_are_read_at_any_place() {
    let text = "pub(crate) struct A<T>(T);\nfn f() {\n    enum B {}\n}\nimpl C for A {\n    type Error = D;\n}\n\
                type E = u8;\npub unsafe trait F {}\n// struct G;\n#[cfg(test)]\nmod tests {\n    struct H;\n}\n";
    let names: Vec<_> = types(text).into_iter().map(|(line, name)| format!("{line} {name}")).collect();
    assert_eq!(names, ["1 A", "3 B", "8 E", "9 F"]);
}

/// Test modules in files of their own.
fn is_test(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "tests.rs") || path.iter().any(|part| part == "tests")
}

/// The types that a file declares before its tests, with their lines.
fn types(text: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let is_tests = |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ");
    let end =
        lines.windows(2).position(|pair| is_tests(pair) && pair[1].ends_with('{')).unwrap_or(lines.len());
    let found = lines[..end].iter().enumerate().filter_map(|(at, line)| Some((at + 1, declared(line)?)));
    found.collect()
}

/// The type that a line declares.
fn declared(line: &str) -> Option<String> {
    let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub") || *word == "unsafe");
    let keyword = words.next()?;
    let is_type = match keyword {
        "struct" | "enum" | "trait" | "union" => true,
        // Indented it belongs to an `impl` or a trait.
        "type" => !line.starts_with(' '),
        _ => false,
    };
    let name = words.next().filter(|_| is_type)?;
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    Some(name[..end].to_owned())
}
