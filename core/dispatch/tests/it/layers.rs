//! Layers of the dispatcher: imports go down only, and files import each other in no cycle.
//!
//! The tests read the source files. Functions of the state are free functions, so an import shows every call.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The folders and the files between them, lowest first.
const LAYERS: [&str; 9] =
    ["api", "measure", "policy", "state", "turn", "rules", "moves", "placing", "reactions"];

/// A word that a layer may not contain, and the reason.
const BANNED: [(&str, &str, &str); 4] = [
    ("state", "Action", "data tells the driver nothing"),
    ("rules", "&mut State", "a rule decides and changes nothing"),
    ("rules", "&mut Turn", "a rule decides and tells nothing"),
    ("moves", "reactions", "a move does not start another reaction"),
];

/// Types whose methods would hide calls from the imports, so their methods stand in the layer of the type.
const OWN_METHODS: [(&str, &str); 7] = [
    ("State", "state"),
    ("Pool", "state"),
    ("Query", "state"),
    ("Job", "state"),
    ("Group", "state"),
    ("Instance", "state"),
    ("Turn", "turn"),
];

/// A module path, such as `["moves", "answer"]`.
type Module = Vec<String>;

/// The sources below the dispatcher: their code without comments, strings and tests, by module.
struct Sources(BTreeMap<Module, String>);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn module_of(path: &Path) -> Module {
    let inside = path.strip_prefix(root()).unwrap().with_extension("");
    let mut parts: Module = inside.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    if parts.last().is_some_and(|last| last == "mod") {
        parts.pop();
    }
    parts
}

/// The code of a file without comments, strings and its tests.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    let mut code = String::new();
    for line in text.lines() {
        let mut quoted = false;
        let mut before = ' ';
        for (at, letter) in line.char_indices() {
            if !quoted && line[at..].starts_with("//") {
                break;
            }
            if letter == '"' && before != '\\' {
                quoted = !quoted;
            } else if !quoted {
                code.push(letter);
            }
            before = letter;
        }
        code.push('\n');
    }
    code
}

impl Sources {
    fn read() -> Self {
        let mut files = Vec::new();
        let mut folders = vec![root()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { folders.push(path) } else { files.push(path) }
            }
        }
        let layered = |module: &Module| module.first().is_some_and(|first| LAYERS.contains(&first.as_str()));
        let sources = files.iter().map(|path| (module_of(path), code(&fs::read_to_string(path).unwrap())));
        Self(sources.filter(|(module, _)| layered(module)).collect())
    }

    fn children(&self, module: &Module) -> BTreeSet<&str> {
        let inside = |other: &&Module| other.len() == module.len() + 1 && other.starts_with(module);
        self.0.keys().filter(inside).map(|child| child.last().unwrap().as_str()).collect()
    }

    /// The files that a file imports from.
    fn imports(&self, module: &Module) -> BTreeSet<Module> {
        let text = &self.0[module];
        let mut found = Vec::new();
        for (at, _) in text.match_indices("crate::").filter(|(at, _)| is_word(text, *at)) {
            found.extend(paths(&text[at + "crate::".len()..]));
        }
        for (at, _) in text.match_indices("super::").filter(|(at, _)| is_word(text, *at)) {
            let parent = module[..module.len() - 1].to_vec();
            let tails = paths(&text[at + "super::".len()..]);
            found.extend(tails.into_iter().map(|tail| [parent.clone(), tail].concat()));
        }
        for child in self.children(module) {
            let head = format!("{child}::");
            for (at, _) in text.match_indices(&head).filter(|(at, _)| is_word(text, *at)) {
                let line = text[..at].rsplit('\n').next().unwrap();
                if !line.starts_with("pub") {
                    found.push([module.clone(), vec![child.to_owned()]].concat());
                }
            }
        }
        found.iter().filter_map(|path| self.file_of(path)).filter(|file| file != module).collect()
    }

    /// The file that defines the item of a path.
    fn file_of(&self, path: &Module) -> Option<Module> {
        let mut module = Module::new();
        let mut rest = path.as_slice();
        while let [next, after @ ..] = rest {
            let child = [module.clone(), vec![next.clone()]].concat();
            if !self.0.contains_key(&child) {
                break;
            }
            (module, rest) = (child, after);
        }
        if module.is_empty() {
            return None;
        }
        let again = rest.first().and_then(|item| self.exported_from(&module, item));
        Some(again.unwrap_or(module))
    }

    /// The child that a module exports an item from.
    fn exported_from(&self, module: &Module, item: &str) -> Option<Module> {
        let text = &self.0[module];
        let child = self.children(module).into_iter().find(|child| {
            let exports = ["pub use ", "pub(crate) use "].map(|word| format!("{word}{child}::"));
            exports.iter().any(|head| {
                text.match_indices(head.as_str()).any(|(at, _)| {
                    paths(&text[at + head.len()..]).iter().any(|path| path[..] == [item.to_owned()])
                })
            })
        })?;
        Some([module.clone(), vec![child.to_owned()]].concat())
    }
}

/// Whether no letter stands before this place.
fn is_word(text: &str, at: usize) -> bool {
    !text[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_' || before == ':')
}

/// The paths that begin here: several where the text names them in braces.
fn paths(text: &str) -> Vec<Module> {
    let text = text.trim_start();
    if let Some(inside) = text.strip_prefix('{') {
        let (mut depth, mut start, mut found) = (1, 0, Vec::new());
        for (at, letter) in inside.char_indices() {
            match letter {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 || (depth == 1 && letter == ',') {
                found.extend(paths(&inside[start..at]));
                start = at + 1;
            }
            if depth == 0 {
                break;
            }
        }
        return found;
    }
    let word: String = text.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
    if word.is_empty() {
        return Vec::new();
    }
    match text[word.len()..].strip_prefix("::") {
        Some(rest) => {
            let tails = paths(rest);
            if tails.is_empty() {
                return vec![vec![word]];
            }
            tails.into_iter().map(|tail| [vec![word.clone()], tail].concat()).collect()
        }
        None => vec![vec![word]],
    }
}

fn layer(module: &Module) -> usize {
    LAYERS.iter().position(|layer| *layer == module[0]).unwrap()
}

#[test]
fn layers_import_only_from_below() {
    let sources = Sources::read();
    for module in sources.0.keys() {
        for other in sources.imports(module) {
            assert!(layer(&other) <= layer(module), "{module:?} imports {other:?}, which is above it");
        }
    }
    assert!(sources.0.len() > 60, "the sources are found");
}

#[test]
fn layers_do_not_name_what_is_not_theirs() {
    for (module, text) in &Sources::read().0 {
        for (layer, word, why) in BANNED {
            assert!(module[0] != layer || !text.contains(word), "{module:?} names {word}: {why}");
        }
        for (name, layer) in OWN_METHODS {
            let hidden = module[0] != layer && text.contains(&format!("\nimpl {name} "));
            assert!(!hidden, "{module:?} adds methods to {name}: imports do not show their calls");
        }
        assert!(!text.contains("Dispatcher"), "{module:?} names the dispatcher");
    }
}

#[test]
fn files_import_each_other_in_no_cycle() {
    let sources = Sources::read();
    let mut left: BTreeMap<&Module, BTreeSet<Module>> =
        sources.0.keys().map(|module| (module, sources.imports(module))).collect();
    let edges: usize = left.values().map(BTreeSet::len).sum();
    assert!(edges > 250, "the imports are found: {edges}");
    // A file that imports none of those left is in no cycle.
    while let Some(free) =
        left.iter().find(|(_, imports)| imports.is_empty()).map(|(module, _)| (*module).clone())
    {
        left.remove(&free);
        left.values_mut().for_each(|imports| {
            imports.remove(&free);
        });
    }
    assert!(left.is_empty(), "these files import each other: {left:#?}");
}
