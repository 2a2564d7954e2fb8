//! Texts as they are read: the data of a tensor of strings, and no string of its own for each.

use std::fmt;

use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, Error as _, SeqAccess, Visitor};

use crate::Error;
use crate::bounds::Room;
use crate::tensor::strings_in;

/// Most texts of one request, as at OpenAI.
const MOST: usize = 2048;

/// Texts, each after its length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    data: Vec<u8>,
    count: usize,
}

impl Packed {
    /// The number of texts.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The data of a tensor of strings.
    pub fn into_data(self) -> Bytes {
        self.data.into()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        strings_in(&self.data).map_while(|text| std::str::from_utf8(text).ok())
    }

    /// Each text after the same first one. The copies are taken from `room`.
    pub(super) fn after(&self, first: &str, room: &mut Room) -> Result<Self, Error> {
        room.take(self.count.saturating_mul(first.len()))?;
        let mut pairs = Self::default();
        for text in self.iter() {
            pairs.push(first).and_then(|()| pairs.push(text)).map_err(Error::malformed)?;
        }
        Ok(pairs)
    }

    fn push(&mut self, text: &str) -> Result<(), String> {
        let length = u32::try_from(text.len()).map_err(|_| "a text has at most 4 GiB".to_owned())?;
        self.data.extend_from_slice(&length.to_le_bytes());
        self.data.extend_from_slice(text.as_bytes());
        self.count += 1;
        Ok(())
    }
}

/// One text or a list of texts.
impl<'de> Deserialize<'de> for Packed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Texts)
    }
}

/// The hint is for clients that send token ids, of a tokenizer that is seldom the model's.
const EXPECTED: &str = "a text or a list of texts, and no token ids";

struct Texts;

impl<'de> Visitor<'de> for Texts {
    type Value = Packed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Packed, E> {
        let mut packed = Packed::default();
        packed.push(text).map_err(E::custom)?;
        Ok(packed)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Packed, A::Error> {
        let mut packed = Packed::default();
        let listed = |error: A::Error| A::Error::custom(format!("{error}: send {EXPECTED}"));
        while let Some(text) = seq.next_element::<String>().map_err(listed)? {
            if packed.count == MOST {
                return Err(A::Error::custom(format!("more than {MOST} texts: split the request")));
            }
            packed.push(&text).map_err(A::Error::custom)?;
        }
        if packed.count == 0 { Err(A::Error::custom("no text: send at least one")) } else { Ok(packed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Packed, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn texts_are_packed_as_the_data_of_a_tensor() {
        let texts = read(r#"["grün", ""]"#).unwrap();
        assert_eq!(texts.iter().collect::<Vec<_>>(), ["grün", ""]);
        assert_eq!(&texts.into_data()[..], b"\x05\0\0\0gr\xc3\xbcn\0\0\0\0");
        assert_eq!(read(r#""one""#).unwrap().count(), 1);
    }

    #[test]
    fn other_inputs_are_rejected_with_the_cure() {
        let many = serde_json::to_string(&vec!["a"; MOST + 1]).unwrap();
        for (json, message) in [
            ("[1, 2]", "no token ids"),
            ("[[1, 2]]", "no token ids"),
            ("{}", "a text or a list of texts"),
            ("[]", "send at least one"),
            (&many, "more than 2048 texts: split the request"),
        ] {
            let error = read(json).unwrap_err();
            assert!(error.contains(message), "{json:.40}: {error}");
        }
    }

    #[test]
    fn copies_of_a_long_query_need_room() {
        let texts = read(r#"["a", "b"]"#).unwrap();
        let pairs = texts.after("query", &mut Room::of(10)).unwrap();
        assert_eq!(pairs.iter().collect::<Vec<_>>(), ["query", "a", "query", "b"]);
        assert!(texts.after("query", &mut Room::of(9)).is_err());
    }
}
