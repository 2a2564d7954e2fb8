//! The settings of a configuration as its JSON schema lists them, and the range of each.
//!
//! Errors of serde say which type a field has, such as `a nonzero u32`. Operators do not know Rust's types: the range comes
//! from the schema, which the reference is made from as well.

use serde_json::Value;

/// Stands in a path for the names of a table and for the places of a list.
const ANY: &str = "*";

/// One setting.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// Its path. `*` stands for a name that the operator chooses, and for a place in a list.
    pub path: Vec<String>,
    /// The schema of its type.
    pub schema: Value,
}

/// Every setting of a schema, in the schema's order. A list of plain values counts as its members.
pub fn leaves(schema: &Value) -> Vec<Leaf> {
    let mut found = Vec::new();
    descend(schema, schema, &mut Vec::new(), &mut found);
    found
}

/// The values that the setting at a path takes, such as `a whole number from 1 to 65535`; `None` if it is not a number.
pub fn range<P: AsRef<str>>(schema: &Value, path: impl IntoIterator<Item = P>) -> Option<String> {
    let mut here = resolved(schema, schema);
    for name in path {
        let name = name.as_ref();
        let below = [&here["properties"][name], &here["additionalProperties"], &here["items"]];
        let below = below.into_iter().find(|one| one.is_object())?;
        here = resolved(schema, below);
    }
    let types = &here["type"];
    let is =
        |name: &str| types == name || types.as_array().is_some_and(|all| all.iter().any(|one| one == name));
    let (what, most) = if is("integer") {
        ("a whole number", largest(here["format"].as_str()))
    } else if is("number") {
        ("a number", None)
    } else {
        return None;
    };
    let shown = |bound: &Value| {
        Some(bound.to_string().trim_end_matches(".0").to_owned()).filter(|_| bound.is_number())
    };
    let most = shown(&here["maximum"]).or_else(|| most.map(|most| most.to_string()))?;
    Some(format!("{what} from {} to {most}", shown(&here["minimum"])?))
}

/// Appends the range of a setting to the error about its value, unless the text already states it.
pub fn with_range<P: AsRef<str>>(
    problem: String,
    schema: &Value,
    path: impl IntoIterator<Item = P>,
) -> String {
    let range = range(schema, path);
    let bounds = |range: &str| range.find("from").map(|at| range[at..].to_owned()).unwrap_or_default();
    match range.filter(|range| !problem.contains(&bounds(range))) {
        Some(range) => format!("{problem}: give {range}"),
        None => problem,
    }
}

fn largest(format: Option<&str>) -> Option<u64> {
    Some(match format? {
        "uint8" => u8::MAX.into(),
        "uint16" => u16::MAX.into(),
        "uint32" => u32::MAX.into(),
        _ => u64::MAX,
    })
}

fn descend(whole: &Value, schema: &Value, path: &mut Vec<String>, found: &mut Vec<Leaf>) {
    let schema = resolved(whole, schema);
    let below = |name: &str, of: &Value, path: &mut Vec<String>, found: &mut Vec<Leaf>| {
        path.push(name.to_owned());
        descend(whole, of, path, found);
        path.pop();
    };
    if let Some(fields) = schema["properties"].as_object() {
        fields.iter().for_each(|(name, of)| below(name, of, path, found));
    } else if let Some(of) = schema.get("additionalProperties").filter(|of| of.is_object()) {
        below(ANY, of, path, found);
    } else if let Some(of) = schema.get("items") {
        below(ANY, of, path, found);
    } else {
        found.push(Leaf { path: path.clone(), schema });
    }
}

/// The type that a schema refers to, optional ones included, or the schema itself.
fn resolved(whole: &Value, schema: &Value) -> Value {
    let optional = || schema["anyOf"].as_array()?.iter().find_map(|one| one["$ref"].as_str());
    let named = schema["$ref"].as_str().or_else(optional).and_then(|path| path.rsplit('/').next());
    named.map_or_else(|| schema.clone(), |name| whole["$defs"][name].clone())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::num::{NonZeroU8, NonZeroU32};

    use schemars::{JsonSchema, schema_for};

    use super::*;

    #[derive(JsonSchema)]
    #[allow(dead_code)] // only its schema is looked at
    struct Outer {
        plain: NonZeroU32,
        list: Vec<NonZeroU8>,
        inner: Inner,
        named: BTreeMap<String, Inner>,
        some: Option<Inner>,
    }

    #[derive(JsonSchema)]
    #[allow(dead_code)]
    struct Inner {
        #[schemars(extend("minimum" = 0.0, "maximum" = 1.0))]
        share: f64,
        name: String,
    }

    #[test]
    fn every_field_of_a_schema_is_a_leaf() {
        let schema = schema_for!(Outer).to_value();
        let mut paths: Vec<_> = leaves(&schema).into_iter().map(|leaf| leaf.path.join(".")).collect();
        paths.sort();
        let want = [
            "inner.name",
            "inner.share",
            "list.*",
            "named.*.name",
            "named.*.share",
            "plain",
            "some.name",
            "some.share",
        ];
        assert_eq!(paths, want);
    }

    #[test]
    fn range_is_known_for_numbers_only() {
        let schema = schema_for!(Outer).to_value();
        let of = |path: &str| range(&schema, path.split('.'));
        assert_eq!(of("plain").as_deref(), Some("a whole number from 1 to 4294967295"));
        assert_eq!(of("list.3").as_deref(), Some("a whole number from 1 to 255"));
        assert_eq!(of("named.one.share").as_deref(), Some("a number from 0 to 1"));
        assert_eq!(of("some.share").as_deref(), Some("a number from 0 to 1"));
        assert_eq!(of("inner.name"), None);
        assert_eq!(of("inner.nothing"), None);
        let told = |problem: &str| with_range(problem.to_owned(), &schema, ["plain"]);
        assert_eq!(told("invalid value"), "invalid value: give a whole number from 1 to 4294967295");
        assert_eq!(told("0 is not from 1 to 4294967295"), "0 is not from 1 to 4294967295");
    }
}
