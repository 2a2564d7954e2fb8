//! The layers of a configuration: defaults, the file, variables, flags. Later ones replace the values of earlier ones.
//!
//! Each layer names the source of its values, so that an error about a value says where it was written.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;
use toml::{Table, Value};

/// The values so far.
pub struct Layers {
    table: Table,
    /// The path of each value that a layer set, in order, and its source.
    sources: Vec<(Vec<String>, String)>,
}

/// A value that does not fit its field.
#[derive(Debug)]
pub struct Misfit {
    /// The path of the field; empty for the whole configuration.
    pub path: Vec<String>,
    pub problem: String,
    /// The source of the value, in brackets, with a space before it; empty for a default.
    pub source: String,
}

impl Layers {
    /// The defaults.
    pub fn new(defaults: &impl Serialize) -> Result<Self, toml::ser::Error> {
        Ok(Self { table: Table::try_from(defaults)?, sources: Vec::new() })
    }

    /// Adds a layer.
    pub fn merge(&mut self, layer: Table, source: &str) {
        merge(&mut self.table, layer, &mut Vec::new(), &mut |path| {
            self.sources.push((path.to_vec(), source.to_owned()));
        });
    }

    /// Adds one value, at a path such as `backend.instances`.
    pub fn set(&mut self, path: &str, value: Value, source: &str) {
        let mut names = path.split('.').rev();
        let mut layer = Table::new();
        layer.extend(names.next().map(|name| (name.to_owned(), value)));
        for name in names {
            layer = Table::from_iter([(name.to_owned(), Value::Table(layer))]);
        }
        self.merge(layer, source);
    }

    /// Reads all of them into a type.
    pub fn read<T: DeserializeOwned>(self) -> Result<T, Misfit> {
        let Self { table, sources } = self;
        serde_path_to_error::deserialize(Value::Table(table)).map_err(|error| {
            let path: Vec<String> = error.path().iter().filter_map(name).collect();
            let is_part = |(set, _): &&(Vec<String>, String)| set.iter().zip(&path).all(|(a, b)| a == b);
            let source = sources.iter().rev().find(is_part).filter(|_| !path.is_empty());
            let source = source.map(|(_, source)| format!(" ({source})"));
            let problem = error.into_inner().message().to_owned();
            Misfit { path, problem, source: source.unwrap_or_default() }
        })
    }
}

/// A value as a person writes it: TOML, or else a text. So a word needs no quotes, which would be nested ones in a shell.
pub fn written(text: &str) -> Value {
    let table: Option<Table> = format!("value = {text}").parse().ok();
    let value = table.filter(|table| table.len() == 1).and_then(|mut table| table.remove("value"));
    // No setting is a date, but a name may look like one.
    value.filter(|value| !value.is_datetime()).unwrap_or_else(|| Value::String(text.to_owned()))
}

fn merge(into: &mut Table, layer: Table, path: &mut Vec<String>, set: &mut impl FnMut(&[String])) {
    for (name, value) in layer {
        path.push(name.clone());
        match (into.get_mut(&name), value) {
            (Some(Value::Table(into)), Value::Table(layer)) => merge(into, layer, path, set),
            (_, value) => {
                set(path);
                into.insert(name, value);
            }
        }
        path.pop();
    }
}

fn name(segment: &Segment) -> Option<String> {
    match segment {
        Segment::Seq { index } => Some(index.to_string()),
        Segment::Map { key } => Some(key.clone()),
        Segment::Enum { variant } => Some(variant.clone()),
        Segment::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Outer {
        name: String,
        inner: Inner,
        all: BTreeMap<String, Inner>,
    }

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Inner {
        count: u8,
        list: Vec<u8>,
    }

    /// Counts to seven by default, unlike an `Inner` elsewhere.
    fn layers() -> Layers {
        Layers::new(&Outer { inner: Inner { count: 7, list: vec![1] }, ..Outer::default() }).unwrap()
    }

    #[test]
    fn later_layers_replace_single_values() {
        let mut layers = layers();
        layers
            .merge("name = 'a'\n[inner]\nlist = [2, 3]\n[all.x]\ncount = 1".parse().unwrap(), "from a file");
        layers.set("all.x.count", written("2"), "flag");
        layers.set("name", written("b"), "flag");
        let read: Outer = layers.read().unwrap();
        assert_eq!((read.name.as_str(), &read.inner), ("b", &Inner { count: 7, list: vec![2, 3] }));
        assert_eq!(read.all["x"].count, 2);
    }

    #[test]
    fn misfit_names_its_path_and_the_last_source() {
        let misfit = |path: &str, text: &str| {
            let mut layers = layers();
            layers.merge("name = 'a'\n[inner]\ncount = 8".parse().unwrap(), "from f.toml");
            layers.set(path, written(text), "on the command line");
            layers.read::<Outer>().unwrap_err()
        };
        let wrong = misfit("inner.count", "many");
        assert_eq!(
            (wrong.path.join("."), wrong.source.as_str()),
            ("inner.count".into(), " (on the command line)")
        );
        assert!(wrong.problem.contains("\"many\""), "{}", wrong.problem);
        assert_eq!(misfit("inner.list", "[1, 'x']").path, ["inner", "list", "1"]);
        let unknown = misfit("all.x.cuont", "1");
        assert_eq!(
            (unknown.path.join("."), unknown.source.as_str()),
            ("all.x.cuont".into(), " (on the command line)")
        );
        assert!(unknown.problem.contains("`count`"), "{}", unknown.problem);
        let mut layers = layers();
        layers.merge("[inner]\ncount = 300".parse().unwrap(), "from f.toml");
        layers.set("name", written("b"), "on the command line");
        assert_eq!(layers.read::<Outer>().unwrap_err().source, " (from f.toml)");
    }

    #[test]
    fn words_lists_and_dates_are_read_as_written() {
        assert_eq!(written("4"), Value::Integer(4));
        assert_eq!(written("[1, 2]"), Value::Array(vec![Value::Integer(1), Value::Integer(2)]));
        for text in ["hedge", "127.0.0.1:8000", "2026-01-01", "1\nother = 2", ""] {
            assert_eq!(written(text), Value::String(text.into()));
        }
        assert_eq!(written("'4'"), Value::String("4".into()));
    }
}
