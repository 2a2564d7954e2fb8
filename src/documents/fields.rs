//! Formats one setting for the configuration page: name, type, range, default and doc comment.

use std::fmt::Write;

use serde_json::Value;

/// Columns of the page.
const WIDTH: usize = 118;

/// Units, by the ends of names.
const UNITS: &[(&str, &str)] = &[
    ("_ms", "milliseconds"),
    ("_us", "microseconds"),
    ("_bytes", "bytes"),
    ("max_bytes_in_flight", "bytes"),
    ("_mb", "megabytes"),
];

/// A setting.
pub(super) struct Field<'a> {
    pub(super) path: &'a str,
    /// The schema of the field, with its comment.
    pub(super) schema: &'a Value,
    /// The schema of its type.
    pub(super) kind: Value,
    pub(super) default: &'a Value,
    pub(super) required: bool,
}

/// The lines of the setting.
pub(super) fn described(field: &Field<'_>, also: Option<&str>) -> String {
    let name = field.path.rsplit('.').next().unwrap_or(field.path);
    let comment = field.schema["description"].as_str();
    let comment = comment.unwrap_or_else(|| panic!("{} has no doc comment", field.path));
    let comment = without_default(field.path, comment, field.default);
    let default = match field.default {
        Value::Null if field.required => "required".to_owned(),
        Value::Null => "default none".to_owned(),
        value => format!("default `{value}`{}", in_units(name, value)),
    };
    let mut text = String::new();
    writeln!(text, "- **`{name}`** ({}; {default})", words(field, name)).unwrap();
    writeln!(text, "{}", wrapped(&comment, "  ")).unwrap();
    for (value, comment) in values(&field.kind) {
        let lines = wrapped(&format!("- `{value}`: {comment}"), "    ");
        writeln!(text, "{}", &lines[2..]).unwrap();
    }
    if let Some(also) = also {
        writeln!(text, "{}", wrapped(also, "  ")).unwrap();
    }
    text
}

/// The default in MiB or GiB, for settings in bytes.
fn in_units(name: &str, value: &Value) -> String {
    let bytes = value.as_u64().filter(|_| name.contains("bytes")).unwrap_or(1);
    let unit = [(30, "GiB"), (20, "MiB")].into_iter().find(|(shift, _)| bytes.is_multiple_of(1 << shift));
    unit.map(|(shift, unit)| format!(", that is {} {unit}", bytes >> shift)).unwrap_or_default()
}

/// Type, unit and range.
fn words(field: &Field<'_>, name: &str) -> String {
    let kind = &field.kind;
    let types: Vec<&str> = match &kind["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => {
            several.iter().filter_map(Value::as_str).filter(|name| *name != "null").collect()
        }
        _ => Vec::new(),
    };
    let unit = UNITS.iter().find(|(end, _)| name.ends_with(end)).map(|(_, unit)| *unit);
    match types.as_slice() {
        ["integer"] => format!("{}, {}", unit.unwrap_or("whole number"), range(kind)),
        ["integer", "string"] => {
            let words = kind["pattern"].as_str().unwrap_or_default().split('|');
            let words = words.map(|word| format!("`\"{}\"`", word.trim_matches(['^', '$'])));
            format!("whole number, {}, or {}", range(kind), words.collect::<Vec<_>>().join(" or "))
        }
        ["number"] if kind["minimum"].is_number() => format!("{}, {}", unit.unwrap_or("number"), range(kind)),
        ["number"] => unit.unwrap_or("number").to_owned(),
        ["boolean"] => "`true` or `false`".to_owned(),
        ["array"] => "list".to_owned(),
        ["object"] => "table".to_owned(),
        _ if !values(kind).is_empty() => "one of the words below".to_owned(),
        ["string"] => "text".to_owned(),
        other => panic!("{}: no words for the type {other:?} of {kind}", field.path),
    }
}

fn range(kind: &Value) -> String {
    match (&kind["minimum"], &kind["maximum"]) {
        (Value::Number(least), Value::Number(most)) => format!("{least} to {most}").replace(".0", ""),
        (Value::Number(least), _) => format!("{least} or more"),
        _ => panic!("a number without a least value: {kind}"),
    }
}

/// The possible words of a setting, each with its comment.
fn values(kind: &Value) -> Vec<(&str, &str)> {
    let variants = kind["oneOf"].as_array().into_iter().flatten();
    variants.filter_map(|one| Some((one["const"].as_str()?, one["description"].as_str()?))).collect()
}

/// A comment without the default that it states, as the page has it already; a wrong one fails. A clause that states more, such
/// as "Default 1024: about ...", stays.
fn without_default(path: &str, comment: &str, default: &Value) -> String {
    let comment = comment.split_whitespace().collect::<Vec<_>>().join(" ");
    let Some((from, to, stated)) = clause(&comment) else { return comment };
    let whole = default.as_str() == Some(stated);
    let value = if whole { stated } else { stated.split([',', ':', ';', ' ']).next().unwrap_or(stated) };
    let bare = value.trim_matches('`');
    let same = match (default, bare.parse::<f64>()) {
        (Value::Number(real), Ok(stated)) => real.as_f64() == Some(stated),
        (Value::String(real), _) => real == bare,
        (Value::Null, _) => bare == "none",
        (Value::Array(real), _) if real.is_empty() => bare == "none",
        (Value::Object(real), _) if real.is_empty() => bare == "none",
        (Value::Bool(real), _) => bare.parse() == Ok(*real),
        (real, _) => {
            let real = real.to_string();
            real == bare
        }
    };
    // Words may describe a default; a number, a switch or a word in backticks is one.
    let exact = bare.parse::<f64>().is_ok() || ["true", "false"].contains(&bare) || value != bare;
    assert!(same || !exact, "{path}: the comment states the default {value}, which is {default}");
    let rest = format!("{}{}", comment[..from].trim_end(), &comment[to..]);
    if same && value == stated { rest.trim().to_owned() } else { comment }
}

/// The place in a comment that states a default, and the statement.
fn clause(comment: &str) -> Option<(usize, usize, &str)> {
    let within = |open: &'static str, close: &'static str| {
        let from = comment.find(open)?;
        let start = from + open.len();
        let length = comment[start..].find(close).unwrap_or(comment.len() - start);
        let stated = comment[start..start + length].trim_start_matches([':', ' ']);
        Some((from, (start + length + 1).min(comment.len()), stated.trim_end_matches('.')))
    };
    within("(default", ")").filter(|(.., stated)| !stated.is_empty()).or_else(|| within("Default", ". "))
}

/// Text in lines of the page's width, each with an indent.
pub(super) fn wrapped(text: &str, indent: &str) -> String {
    let mut lines = vec![indent.to_owned()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("begun with one");
        let begun = line.len() > indent.len();
        if begun && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(format!("{indent}{word}"));
        } else {
            let space = if begun { " " } else { "" };
            write!(line, "{space}{word}").unwrap();
        }
    }
    lines.join("\n")
}
