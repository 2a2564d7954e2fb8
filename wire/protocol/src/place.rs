//! A server's node, zone and card.
//!
//! Servers on one node or card slow down together, so redundancy should avoid one that is in use already. A server reports
//! its place in its metadata; clients of the protocol skip fields that they do not know.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// Longest name of a node, zone or card: that of a DNS name.
pub const LONGEST: usize = 253;

/// A server's place, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The machine.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "announced")]
    pub node: Option<String>,
    /// The zone.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "announced")]
    pub zone: Option<String>,
    /// The graphics card, by its UUID.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "announced")]
    pub card: Option<String>,
}

impl Place {
    /// The place that a server reports; an invalid name counts as none.
    pub fn announced(node: &str, zone: &str, card: &str) -> Self {
        let name = |text| name(text).unwrap_or_default();
        Self { node: name(node), zone: name(zone), card: name(card) }
    }

    /// Fills in from `other` whatever is unknown here.
    pub fn or(self, other: Self) -> Self {
        Self {
            node: self.node.or(other.node),
            zone: self.zone.or(other.zone),
            card: self.card.or(other.card),
        }
    }
}

/// Parses the name of a node, zone or card; `None` if it is empty. It becomes a metric label and appears on pages, so it must
/// be one short word.
pub fn name(text: &str) -> Result<Option<String>, String> {
    let text = text.trim();
    if text.len() > LONGEST {
        return Err(format!("it has {} bytes: give a name of at most {LONGEST}", text.len()));
    }
    match text.chars().find(|char| char.is_whitespace() || char.is_control()) {
        Some(char) => Err(format!("'{}' contains {char:?}: give a name of one word", text.escape_debug())),
        None => Ok((!text.is_empty()).then(|| text.to_owned())),
    }
}

/// Reads such a name from a configuration. Environment variables that look like numbers arrive as numbers; empty ones
/// count as unset.
pub fn setting<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let text = match Value::deserialize(from)? {
        Value::Null => String::new(),
        Value::String(text) => text,
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(float) => float.to_string(),
            None => number.to_string(),
        },
        Value::Array(_) | Value::Object(_) => {
            return Err(D::Error::custom("it is not the name of a machine, zone or card"));
        }
    };
    name(&text).map_err(D::Error::custom)
}

/// Ignores a field of another form: the server is used nevertheless, without a place.
fn announced<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let said = Value::deserialize(from)?;
    Ok(said.as_str().and_then(|text| name(text).ok().flatten()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ServerMetadata;

    #[test]
    fn name_must_be_one_short_word() {
        assert_eq!(name(" gke-pool-1 "), Ok(Some("gke-pool-1".into())));
        assert_eq!(name("10.0.0.5"), Ok(Some("10.0.0.5".into())));
        assert_eq!(name("  "), Ok(None));
        assert!(name("rack 4").unwrap_err().contains("one word"));
        assert!(name("a\u{7}").unwrap_err().contains("'a\\u{7}'"));
        assert!(name(&"n".repeat(254)).unwrap_err().contains("at most 253"));
    }

    #[test]
    fn place_of_another_form_is_ignored() {
        let read = |text: &str| serde_json::from_str::<ServerMetadata>(text).unwrap().place;
        let head = r#""name": "s", "version": "1", "extensions": []"#;
        let place = Place { node: Some("n1".into()), zone: Some("z".into()), card: Some("GPU-1".into()) };
        assert_eq!(read(&format!(r#"{{{head}, "node": "n1", "zone": "z", "card": "GPU-1"}}"#)), place);
        for other in [
            r#""node": 5, "zone": null"#,
            r#""node": {"a": 1}"#,
            r#""node": "two words", "zone": """#,
            r#""card": [1]"#,
        ] {
            assert_eq!(read(&format!("{{{head}, {other}}}")), Place::default(), "{other}");
        }
        let plain = serde_json::to_string(&ServerMetadata::default()).unwrap();
        assert!(!["node", "zone", "card"].iter().any(|name| plain.contains(name)), "{plain}");
    }
}
