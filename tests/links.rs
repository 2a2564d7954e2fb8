//! Checks that links and paths in the documents exist.

use std::fs;

use crate::support::process::root;
use crate::support::workspace::files;

/// Targets of `[text](target)`, without anchors and web addresses.
fn link_targets(text: &str) -> Vec<String> {
    text.match_indices("](")
        .filter_map(|(at, _)| text[at + 2..].split(')').next())
        .filter(|target| !target.contains("://") && !target.starts_with('#'))
        .map(|target| target.split('#').next().unwrap_or_default().to_owned())
        .collect()
}

/// Paths in backticks that begin with a folder of the repository: `frontend/src/serve/`.
fn code_paths(text: &str) -> Vec<String> {
    let ours = |code: &str| code.split_once('/').is_some_and(|(first, _)| is_folder(first));
    text.split('`')
        .skip(1)
        .step_by(2)
        .filter(|code| ours(code))
        .filter(|code| !code.contains([' ', '*', '{', '<', '\n']) && !code.contains("NAME"))
        .map(str::to_owned)
        .collect()
}

fn is_folder(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && name != "target" && root().join(name).is_dir()
}

#[test]
fn links_and_paths_in_the_documents_exist() {
    let root = root();
    let documents = files(&root, "md");
    assert!(documents.contains(&root.join("README.md")), "README.md is missing");
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

#[test]
fn book_lists_every_page_once() {
    let docs = root().join("docs");
    let mut listed = link_targets(&fs::read_to_string(docs.join("SUMMARY.md")).unwrap());
    listed.sort();
    let pages = files(&docs, "md").into_iter().filter(|page| !page.ends_with("SUMMARY.md"));
    let mut pages: Vec<_> =
        pages.map(|page| page.strip_prefix(&docs).unwrap().display().to_string()).collect();
    pages.sort();
    assert_eq!(listed, pages, "docs/SUMMARY.md is the book's list of pages");
}
