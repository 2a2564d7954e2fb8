//! The documents point at things that exist.

use std::fs;
use std::path::{Path, PathBuf};

fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for folder in
        [root.to_path_buf(), root.join("docs"), root.join("docs/results"), root.join("models/magika")]
    {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "md") {
                found.push(entry.path());
            }
        }
    }
    found
}

/// Targets of `[text](target)`, without anchors and web addresses.
fn link_targets(text: &str) -> Vec<String> {
    text.match_indices("](")
        .filter_map(|(at, _)| text[at + 2..].split(')').next())
        .filter(|target| !target.contains("://") && !target.starts_with('#'))
        .map(|target| target.split('#').next().unwrap_or_default().to_owned())
        .collect()
}

/// Paths in backticks that look like files or folders of ours: `frontend/src/serve/`.
fn code_paths(text: &str) -> Vec<String> {
    const OURS: &[&str] = &[
        "src/",
        "protocol/",
        "encoder/",
        "parity-models/",
        "backend/",
        "frontend/",
        "training/",
        "loadgen/",
        "tests/",
        "docs/",
        "models/",
        "interop/",
        "bench/",
        "fuzz/",
        "examples/",
    ];
    text.split('`')
        .skip(1)
        .step_by(2)
        .filter(|code| OURS.iter().any(|folder| code.starts_with(folder)))
        .filter(|code| !code.contains([' ', '*', '{', '<', '\n']) && !code.contains("NAME"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn links_and_paths_in_the_documents_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let documents = documents();
    assert!(documents.iter().any(|path| path.ends_with("README.md")), "README.md is missing");
    for document in documents {
        let text = fs::read_to_string(&document).unwrap();
        let folder = document.parent().unwrap();
        for target in link_targets(&text) {
            assert!(folder.join(&target).exists(), "{}: link to missing {target}", document.display());
        }
        for path in code_paths(&text) {
            assert!(root.join(&path).exists(), "{}: names missing {path}", document.display());
        }
    }
}
