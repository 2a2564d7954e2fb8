//! Texts as they are read: the data of a tensor of strings, and no string of its own for each.

use std::fmt;

use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, Error as _, SeqAccess, Visitor};

use super::ids::packed;
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
    has_ids: bool,
}

/// Texts, or rows of token ids in place of them.
#[derive(Clone, Debug, Default)]
pub(super) struct TextsOrIds(pub(super) Packed);

impl Packed {
    /// The number of texts.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether there are rows of token ids.
    pub fn has_ids(&self) -> bool {
        self.has_ids
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
        self.push_bytes(text.as_bytes())
    }

    fn push_ids(&mut self, ids: &[u32]) -> Result<(), String> {
        self.has_ids = true;
        self.push_bytes(&packed(ids))
    }

    fn push_bytes(&mut self, bytes: &[u8]) -> Result<(), String> {
        let length = u32::try_from(bytes.len()).map_err(|_| "a text has at most 4 GiB".to_owned())?;
        self.data.extend_from_slice(&length.to_le_bytes());
        self.data.extend_from_slice(bytes);
        self.count += 1;
        Ok(())
    }
}

/// One text or a list of texts.
impl<'de> Deserialize<'de> for Packed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let TextsOrIds(packed) = TextsOrIds::deserialize(deserializer)?;
        match packed.has_ids {
            true => Err(D::Error::custom("token ids are not accepted: send a text or a list of texts")),
            false => Ok(packed),
        }
    }
}

/// One text or a list of texts, the ids of one text, or a list of lists of ids.
impl<'de> Deserialize<'de> for TextsOrIds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Texts).map(Self)
    }
}

struct Texts;

impl<'de> Visitor<'de> for Texts {
    type Value = Packed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of texts, or token ids")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Packed, E> {
        let mut packed = Packed::default();
        packed.push(text).map_err(E::custom)?;
        Ok(packed)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Packed, A::Error> {
        let mut packed = Packed::default();
        let mut row: Vec<u32> = Vec::new();
        while let Some(listed) = seq.next_element()? {
            let pushed = match listed {
                ListedText::Id(id) if packed.count == 0 => {
                    row.push(id);
                    continue;
                }
                _ if packed.count == MOST => Err(format!("more than {MOST} texts: split the request")),
                ListedText::Text(text) if row.is_empty() && !packed.has_ids => packed.push(&text),
                ListedText::Ids(ids) if row.is_empty() && packed.has_ids == (packed.count > 0) => {
                    packed.push_ids(&ids)
                }
                _ => Err("texts and token ids are mixed: send them in two requests".into()),
            };
            pushed.map_err(A::Error::custom)?;
        }
        if !row.is_empty() {
            packed.push_ids(&row).map_err(A::Error::custom)?;
        }
        if packed.count == 0 { Err(A::Error::custom("no text: send at least one")) } else { Ok(packed) }
    }
}

enum ListedText {
    Text(String),
    Id(u32),
    Ids(Vec<u32>),
}

impl<'de> Deserialize<'de> for ListedText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneText;
        impl<'de> Visitor<'de> for OneText {
            type Value = ListedText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                Texts.expecting(f)
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ListedText, E> {
                Ok(ListedText::Text(text.to_owned()))
            }

            fn visit_string<E: serde::de::Error>(self, text: String) -> Result<ListedText, E> {
                Ok(ListedText::Text(text))
            }

            fn visit_u64<E: serde::de::Error>(self, id: u64) -> Result<ListedText, E> {
                let id =
                    u32::try_from(id).map_err(|_| E::custom(format!("{id} is too large for a token id")))?;
                Ok(ListedText::Id(id))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<ListedText, A::Error> {
                let mut ids = Vec::new();
                while let Some(id) = seq.next_element()? {
                    ids.push(id);
                }
                Ok(ListedText::Ids(ids))
            }
        }
        deserializer.deserialize_any(OneText)
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

    fn read_ids(json: &str) -> Result<Vec<Vec<u32>>, String> {
        let TextsOrIds(read) = serde_json::from_str(json).map_err(|error| error.to_string())?;
        let (rows, data) = (read.count(), read.into_data());
        let tensor = crate::Tensor::new(crate::DataType::Bytes, [rows].as_slice(), data).unwrap();
        Ok(tensor.strings().map(|row| crate::texts::ids_of(row).unwrap_or_default()).collect())
    }

    #[test]
    fn token_ids_are_one_row_or_a_list_of_rows() {
        assert_eq!(read_ids("[7, 8, 9]").unwrap(), [[7, 8, 9]]);
        assert_eq!(read_ids("[[7], [8, 9], []]").unwrap(), [vec![7], vec![8, 9], vec![]]);
        let long = serde_json::to_string(&vec![7; MOST + 1]).unwrap();
        assert_eq!(read_ids(&long).unwrap()[0].len(), MOST + 1, "the ids of one text");
        let many = serde_json::to_string(&vec![[7]; MOST + 1]).unwrap();
        for (json, message) in [
            ("[7, \"a\"]", "texts and token ids are mixed"),
            ("[\"a\", 7]", "texts and token ids are mixed"),
            ("[\"a\", [7]]", "texts and token ids are mixed"),
            ("[[7], \"a\"]", "texts and token ids are mixed"),
            ("[[7], 7]", "texts and token ids are mixed"),
            ("[7, [7]]", "texts and token ids are mixed"),
            ("[4294967296]", "4294967296 is too large for a token id"),
            ("[-1]", "or token ids"),
            ("[1.5]", "or token ids"),
            ("[[[1]]]", "invalid type: sequence"),
            (&many, "more than 2048 texts"),
        ] {
            let error = read_ids(json).unwrap_err();
            assert!(error.contains(message), "{json:.40}: {error}");
        }
    }

    #[test]
    fn other_inputs_are_rejected_with_the_cure() {
        let many = serde_json::to_string(&vec!["a"; MOST + 1]).unwrap();
        for (json, message) in [
            ("[1, 2]", "token ids are not accepted"),
            ("[[1, 2]]", "token ids are not accepted"),
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
