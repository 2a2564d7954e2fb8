//! Measures the English of comments, texts and pages: at most two mannerisms per 1,000 words in each crate and page.
//!
//! CONTRIBUTING.md has the rules. A pattern cannot judge style, but these nine were 20 times as frequent here as in six
//! projects that are read with ease, and a sentence that is rewritten to avoid one of them almost always becomes clearer.
//! Quotations are exempt: text between backticks is not read, nor are code blocks, tables and headings.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

use crate::support::process::root;
use crate::support::workspace::files;

/// Mannerisms per 1,000 words that a crate or a page may have.
const BOUND: f64 = 2.0;

/// Shorter texts are judged as if they had this many words, because one hit in a short page shows no trend.
const SHORT: usize = 500;

/// The longest name of a test.
const LONGEST_NAME: usize = 60;

struct Pattern {
    regex: Regex,
    /// Words that may follow in the group named `next`, and make the match harmless.
    harmless: &'static [&'static str],
}

static PATTERNS: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    let pattern = |text, harmless| Pattern { regex: Regex::new(text).unwrap(), harmless };
    vec![
        pattern(r"\b(?:[Nn]obody|[Ss]omebody|[Ee]verybody|[Aa]nybody|[Ww]hoever|[Ww]hom)\b", &[][..]),
        pattern(
            r"(?:^|[.;:,] |\b(?:of|to|by|for|from|and|where|than|beside|says|tells|tell|say) )[Ww]ho (?<next>\w+)",
            &["they", "you", "we", "I"],
        ),
        pattern(
            r"(?:^|[.;:,] |\b(?:of|to|by|for|from|and|with|than|beside|only|that) )[Ww]hat (?:is|was|are|were|has|had|cannot|can|may|must|an?|the|it|comes|came|runs|waits|others?|nobody|somebody)\b",
            &[],
        ),
        pattern(
            r"\b(?:is|are|was|were) no (?<next>\w+)",
            &["longer", "more", "less", "way", "need", "reason"],
        ),
        pattern(r"\b[Bb]eside\b", &[]),
        pattern(r"(?:^|[,;:] |\band |\bor )[Ee]lse\b|\bElse\b", &[]),
        pattern(r"(?:^|[.!?] )(?:Of|Where|Under|Beside|Beyond|By|Between) ", &[]),
        pattern(
            r"\b(?:[Ll]ikewise|[Bb]esides|at hand|in force|as it comes|any more|all the same|after all|mostly)\b",
            &[],
        ),
        pattern(r"\bwish(?:es|ed)?\b", &[]),
    ]
});

static CODE: LazyLock<Regex> = LazyLock::new(|| Regex::new("`[^`]*`").unwrap());
static WORD: LazyLock<Regex> = LazyLock::new(|| Regex::new("[A-Za-z']+").unwrap());
static COMMENT: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^(?:[^/]*[;{}),] |\s*)//[/!]? ?(.*)$").unwrap());
static TEXT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#""((?:[^"\\]|\\.)*)""#).unwrap());
static TEST: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"#\[(?:tokio::)?test[^\n]*\]\n(?:\s*#\[[^\n]*\n)*\s*(?:async )?fn (\w+)").unwrap()
});

#[derive(Default)]
struct Measure {
    words: usize,
    hits: Vec<String>,
}

impl Measure {
    fn read(&mut self, place: &str, prose: &[(usize, String)]) {
        for (line, text) in prose {
            let text = CODE.replace_all(text, "X");
            self.words += WORD.find_iter(&text).count();
            self.hits.extend(mannerisms(&text).map(|hit| format!("{place}:{line}: [{hit}] {}", text.trim())));
        }
    }

    fn exceeds(&self) -> bool {
        1000.0 * self.hits.len() as f64 > BOUND * self.words.max(SHORT) as f64
    }
}

fn mannerisms(text: &str) -> impl Iterator<Item = String> {
    PATTERNS.iter().flat_map(move |pattern| {
        let found = pattern
            .regex
            .captures_iter(text)
            .filter(|found| found.name("next").is_none_or(|next| !pattern.harmless.contains(&next.as_str())));
        found.map(|found| found[0].trim().to_owned())
    })
}

/// The lines of prose in a page: without code blocks, tables and headings.
fn of_page(text: &str) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut prose = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced && !["|", "#", "    "].iter().any(|start| line.starts_with(start)) {
            prose.push((at + 1, line.to_owned()));
        }
    }
    prose
}

/// The comments of a source file, and its texts of four words or more: errors, log messages and help.
fn of_source(text: &str) -> Vec<(usize, String)> {
    let mut prose = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let comment = COMMENT.captures(line).map(|found| found.get(1).unwrap());
        let code = comment.map_or(line, |comment| &line[..comment.start()]);
        let texts = TEXT.captures_iter(code).map(|found| found[1].to_owned());
        prose.extend(texts.filter(|text| WORD.find_iter(text).count() >= 4).map(|text| (at + 1, text)));
        prose.extend(comment.map(|comment| (at + 1, comment.as_str().to_owned())));
    }
    prose
}

/// The crate of a source file: its first folder, or two below `core`, `wire` and `lab`.
fn crate_of(name: &str) -> String {
    let depth = if ["core/", "wire/", "lab/"].iter().any(|group| name.starts_with(group)) { 2 } else { 1 };
    name.split('/').take(depth).collect::<Vec<_>>().join("/")
}

fn sources() -> impl Iterator<Item = (String, String)> {
    let generated = |text: &String| text.starts_with("// This file is @generated");
    let read = |path: &Path| {
        let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        (name, fs::read_to_string(path).unwrap())
    };
    let found = files(&root(), "rs").into_iter().map(move |path| read(&path));
    // This file quotes the patterns.
    found.filter(move |(name, text)| name != "tests/prose.rs" && !generated(text))
}

#[test]
fn crates_and_pages_keep_the_bound_on_mannerisms() {
    let mut measures: BTreeMap<String, Measure> = BTreeMap::new();
    for (name, text) in sources() {
        measures.entry(crate_of(&name)).or_default().read(&name, &of_source(&text));
    }
    for path in files(&root(), "md") {
        let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        measures.entry(name.clone()).or_default().read(&name, &of_page(&fs::read_to_string(&path).unwrap()));
    }
    let words: usize = measures.values().map(|measure| measure.words).sum();
    assert!(words > 50_000, "only {words} words were found: does this test still read comments?");
    #[allow(clippy::disallowed_methods)] // a switch for the people who run the tests, not configuration
    let shown = if std::env::var_os("PROSE_ALL").is_some() { usize::MAX } else { 5 };
    let mut report = String::new();
    for (place, measure) in measures.iter().filter(|(_, measure)| measure.exceeds()) {
        let rate = 1000.0 * measure.hits.len() as f64 / measure.words.max(1) as f64;
        writeln!(report, "{place}: {rate:.1} per 1,000 words, {} in {}", measure.hits.len(), measure.words)
            .unwrap();
        measure.hits.iter().take(shown).for_each(|hit| writeln!(report, "    {hit}").unwrap());
    }
    assert!(report.is_empty(), "rewrite these as CONTRIBUTING.md says (PROSE_ALL=1 lists all):\n{report}");
}

#[test]
fn module_docs_begin_with_a_noun_or_a_verb() {
    let headless =
        Regex::new(r"^//! (?:What|Who|Where|Which|Whose|How|Whether|From|Why|When|Until)\b").unwrap();
    let first = |text: &str| text.lines().find(|line| line.starts_with("//! ")).map(str::to_owned);
    let found = sources().filter_map(|(name, text)| Some((name, first(&text)?)));
    let found: Vec<_> = found.filter(|(_, line)| headless.is_match(line)).collect();
    assert!(found.is_empty(), "begin with a noun phrase or a verb in the third person: {found:#?}");
}

#[test]
fn test_names_say_what_happens_and_when() {
    let headless = ["what_", "who_", "whoever_", "those_", "where_"];
    let mut seen = 0;
    let mut found = Vec::new();
    for (place, text) in sources() {
        for name in TEST.captures_iter(&text).map(|found| found[1].to_owned()) {
            seen += 1;
            if name.len() > LONGEST_NAME || headless.iter().any(|start| name.starts_with(start)) {
                found.push(format!("{place}: {name}"));
            }
        }
    }
    assert!(seen > 1_000, "only {seen} tests were found: does this test still read them?");
    assert!(found.is_empty(), "use <thing>_<does>_<when>, at most {LONGEST_NAME} characters: {found:#?}");
}

#[test]
fn planted_mannerisms_are_found() {
    let of_all = "//! Nobody is told of what is late, and who hangs is no instance\nlet x = \"beside it else all waits\"; // Of jobs\n\
                  /// wished for at hand, or else `nobody` says so\n";
    let mut measure = Measure::default();
    measure.read("planted", &of_source(of_all));
    let found: Vec<_> = measure.hits.iter().map(|hit| hit.split(['[', ']']).nth(1).unwrap()).collect();
    assert_eq!(
        found,
        [
            "Nobody",
            "and who hangs",
            "of what is",
            "is no instance",
            "beside",
            "Of",
            "or else",
            "at hand",
            "wished"
        ]
    );
    assert!(measure.exceeds());
    let plain =
        of_source("/// There is no longer a timer, and users who you know wait. What follows is a list.\n");
    let mut measure = Measure::default();
    measure.read("plain", &plain);
    assert_eq!(measure.hits, Vec::<String>::new());
    let page = of_page("# Of what is\n| nobody |\n```\nnobody\n```\nNobody\n");
    assert_eq!(page, [(6, "Nobody".to_owned())]);
}
