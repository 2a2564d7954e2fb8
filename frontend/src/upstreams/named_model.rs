//! The model that a request names: the field `model` of its JSON body, as in OpenAI's interface.

use std::fmt;

use serde::Deserializer as _;
use serde::de::{IgnoredAny, MapAccess, Visitor};

/// The model's name; `None` if the body is not a JSON object with one. Reads the body up to the name.
pub(super) fn of_body(body: &[u8]) -> Option<String> {
    let mut name = None;
    // Leaving in the middle of the object is an error of the parser.
    let _ = serde_json::Deserializer::from_slice(body).deserialize_map(Fields(&mut name));
    name
}

/// Reads fields until the model's name.
struct Fields<'a>(&'a mut Option<String>);

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(field) = fields.next_key::<String>()? {
            if field == "model" {
                *self.0 = Some(fields.next_value()?);
                break;
            }
            fields.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_that_of_the_outer_object() {
        for (body, name) in [
            (r#"{"model": "a"}"#, Some("a")),
            (r#"{"messages": [{"model": "b", "content": "{"}], "model": "a\u002f1", "n": 1}"#, Some("a/1")),
            (r#"{"model": "a", and the rest is not read"#, Some("a")),
            (r#"{"model": 1}"#, None),
            (r#"{"model": null}"#, None),
            (r#"{"input": {"model": "a"}}"#, None),
            (r#"["model", "a"]"#, None),
            (r#"{"model""#, None),
            ("model=a", None),
            ("", None),
        ] {
            assert_eq!(of_body(body.as_bytes()).as_deref(), name, "{body}");
        }
    }
}
