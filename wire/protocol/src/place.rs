//! Where a server stands: its machine, and the zone of that. What stands together becomes slow together, so whoever makes
//! use of several servers wants to know. A server says it with its metadata; the protocol's own clients skip what they do
//! not know.

use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Longest name of a node or zone: that of a name in DNS.
pub const LONGEST: usize = 253;

/// Where a server stands, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The machine.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "announced")]
    pub node: Option<String>,
    /// The zone.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "announced")]
    pub zone: Option<String>,
}

impl Place {
    /// What a server says of itself; a name that is none counts as none.
    pub fn announced(node: &str, zone: &str) -> Self {
        Self { node: name(node).unwrap_or_default(), zone: name(zone).unwrap_or_default() }
    }

    /// This, and the other where this says nothing.
    pub fn or(self, other: Self) -> Self {
        Self { node: self.node.or(other.node), zone: self.zone.or(other.zone) }
    }
}

/// The name of a node or zone; none if it is empty. It becomes a label of metrics and a word on pages, so it is short and
/// of one word; else what is wrong with it.
pub fn name(text: &str) -> Result<Option<String>, String> {
    let text = text.trim();
    if text.len() > LONGEST {
        return Err(format!("it has {} bytes: give a name of at most {LONGEST}", text.len()));
    }
    match text.chars().find(|char| char.is_whitespace() || char.is_control()) {
        Some(char) => Err(format!("{char:?} stands in '{}': give a name of one word", text.escape_debug())),
        None => Ok((!text.is_empty()).then(|| text.to_owned())),
    }
}

/// Reads such a name from a configuration. Variables of the environment that look like numbers come as numbers, and those
/// that are set to nothing say nothing.
pub fn setting<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    from.deserialize_any(Words).and_then(|text| name(&text).map_err(de::Error::custom))
}

/// Servers that mean something else by the field say nothing of where they stand, and serve all the same.
fn announced<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let said = serde_json::Value::deserialize(from)?;
    Ok(said.as_str().and_then(|text| name(text).ok().flatten()))
}

struct Words;

impl<'de> Visitor<'de> for Words {
    type Value = String;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("the name of a machine or zone")
    }

    fn visit_str<E>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_bool<E>(self, value: bool) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_i64<E>(self, value: i64) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_u64<E>(self, value: u64) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_f64<E>(self, value: f64) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_unit<E>(self) -> Result<String, E> {
        Ok(String::new())
    }

    fn visit_none<E>(self) -> Result<String, E> {
        Ok(String::new())
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<String, D::Error> {
        from.deserialize_any(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ServerMetadata;

    #[test]
    fn a_name_is_one_short_word_or_says_what_is_wrong() {
        assert_eq!(name(" gke-pool-1 "), Ok(Some("gke-pool-1".into())));
        assert_eq!(name("10.0.0.5"), Ok(Some("10.0.0.5".into())));
        assert_eq!(name("  "), Ok(None));
        assert!(name("rack 4").unwrap_err().contains("one word"));
        assert!(name("a\u{7}").unwrap_err().contains("'a\\u{7}'"));
        assert!(name(&"n".repeat(254)).unwrap_err().contains("at most 253"));
    }

    #[test]
    fn a_server_says_where_it_stands_and_one_that_means_something_else_serves_all_the_same() {
        let read = |text: &str| serde_json::from_str::<ServerMetadata>(text).unwrap().place;
        let head = r#""name": "s", "version": "1", "extensions": []"#;
        let place = Place { node: Some("n1".into()), zone: Some("z".into()) };
        assert_eq!(read(&format!(r#"{{{head}, "node": "n1", "zone": "z"}}"#)), place);
        for other in
            [r#""node": 5, "zone": null"#, r#""node": {"a": 1}"#, r#""node": "two words", "zone": """#]
        {
            assert_eq!(read(&format!("{{{head}, {other}}}")), Place::default(), "{other}");
        }
        let plain = serde_json::to_string(&ServerMetadata::default()).unwrap();
        assert!(!plain.contains("node") && !plain.contains("zone"), "{plain}");
    }

    #[test]
    fn who_knows_better_is_believed_name_by_name() {
        let told = Place { node: Some("a".into()), zone: None };
        let announced = Place { node: Some("b".into()), zone: Some("z".into()) };
        assert_eq!(told.or(announced), Place { node: Some("a".into()), zone: Some("z".into()) });
    }
}
