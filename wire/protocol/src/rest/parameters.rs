//! Parameters in JSON, separated from those of the binary extension.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::bounds::Parts;
use crate::{Error, Parameter, Parameters};

/// Names that the binary extension reserves.
const BINARY_DATA_SIZE: &str = "binary_data_size";
const BINARY_DATA: &str = "binary_data";
const BINARY_DATA_OUTPUT: &str = "binary_data_output";
const OURS: [&str; 3] = [BINARY_DATA_SIZE, BINARY_DATA, BINARY_DATA_OUTPUT];

/// The parameters of a request, response or tensor as they stand in JSON.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Split {
    /// Parameters that are not the codec's.
    pub(super) others: Parameters,
    /// Bytes of this tensor after the JSON.
    pub(super) binary_data_size: Option<usize>,
    /// Whether this output is requested as raw bytes.
    pub(super) binary_data: Option<bool>,
    /// Whether outputs without their own setting are requested as raw bytes.
    pub(super) binary_data_output: Option<bool>,
}

impl Split {
    /// Counts the parameters, and the text in them.
    pub(super) fn count(&self, parts: &mut Parts) -> Result<(), Error> {
        parts.parameters(self.others.len())?;
        let value = |value: &Parameter| value.as_str().map_or(0, str::len);
        self.others.iter().try_for_each(|(name, it)| parts.text(name.len() + value(it)))
    }
}

impl<'de> Deserialize<'de> for Split {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_option(SplitVisitor)
    }
}

struct SplitVisitor;

impl<'de> Visitor<'de> for SplitVisitor {
    type Value = Split;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of parameters")
    }

    fn visit_none<E>(self) -> Result<Split, E> {
        Ok(Split::default())
    }

    fn visit_unit<E>(self) -> Result<Split, E> {
        Ok(Split::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Split, D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Split, A::Error> {
        let mut split = Split::default();
        let mut parts = Parts::default();
        while let Some(Text(key)) = map.next_key()? {
            parts.parameters(1).map_err(A::Error::custom)?;
            match &*key {
                BINARY_DATA_SIZE => split.binary_data_size = Some(map.next_value()?),
                BINARY_DATA => split.binary_data = Some(map.next_value()?),
                BINARY_DATA_OUTPUT => split.binary_data_output = Some(map.next_value()?),
                _ => {
                    split.others.insert(key.into_owned(), map.next_value()?);
                }
            }
        }
        Ok(split)
    }
}

/// A string of a bounded length, borrowed where it has no escapes.
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Cow<'de, str>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: serde::de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Parts::default().text(text.len()).map(|()| Cow::Borrowed(text)).map_err(E::custom)
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Parts::default().text(text.len()).map(|()| Cow::Owned(text.to_owned())).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(TextVisitor).map(Text)
    }
}

/// Parameters to write: those of the request, response or tensor, and the codec's own.
///
/// Over gRPC a parameter may have one of the codec's names. It is left out: it would contradict the codec's value about
/// where a tensor lies.
pub(super) struct Joined<'a> {
    pub(super) others: &'a Parameters,
    pub(super) binary_data_size: Option<usize>,
    pub(super) binary_data: Option<bool>,
    pub(super) binary_data_output: Option<bool>,
}

impl<'a> Joined<'a> {
    pub(super) fn new(others: &'a Parameters) -> Self {
        Self { others, binary_data_size: None, binary_data: None, binary_data_output: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.others().next().is_none()
            && self.binary_data_size.is_none()
            && self.binary_data.is_none()
            && self.binary_data_output.is_none()
    }

    fn others(&self) -> impl Iterator<Item = (&'a String, &'a Parameter)> {
        self.others.iter().filter(|(name, _)| !OURS.contains(&name.as_str()))
    }
}

impl Serialize for Joined<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(size) = self.binary_data_size {
            map.serialize_entry(BINARY_DATA_SIZE, &size)?;
        }
        if let Some(binary) = self.binary_data {
            map.serialize_entry(BINARY_DATA, &binary)?;
        }
        if let Some(binary) = self.binary_data_output {
            map.serialize_entry(BINARY_DATA_OUTPUT, &binary)?;
        }
        for (name, value) in self.others() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_named_like_the_codecs_is_not_written() {
        let others = Parameters::from([
            (BINARY_DATA_SIZE.to_string(), Parameter::Int64(1 << 40)),
            ("timeout".to_string(), Parameter::Int64(5)),
        ]);
        let joined = Joined { binary_data_size: Some(8), ..Joined::new(&others) };
        assert_eq!(serde_json::to_string(&joined).unwrap(), r#"{"binary_data_size":8,"timeout":5}"#);

        let only_ours = OURS.map(|name| (name.to_string(), Parameter::Bool(true))).into();
        assert!(Joined::new(&only_ours).is_empty());
    }
}
