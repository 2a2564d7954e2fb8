//! The tokenizer of a text model.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use parm_parity_models::repository::TOKENIZER;
use serde::Deserialize;
use serde_json::Value;
use tokenizers::{
    EncodeInput, Encoding, PostProcessor as _, Tokenizer, TruncationDirection, TruncationParams,
};

use crate::Error;

/// The most tokens of a row, if neither the tokenizer nor its configuration says.
const LENGTH: usize = 512;
/// A larger limit in `tokenizer_config.json` means none.
const LONGEST: f64 = 1_048_576.0;
/// The most bytes of a text for each token of the longest row: the rest of a longer text is cut off before it is split.
const BYTES: usize = 1024;

/// A tokenizer, and the most tokens of a row.
pub(super) struct Tokeniser {
    tokenizer: Tokenizer,
    most: usize,
    /// The id of padding, if it is known.
    padding: Option<u32>,
}

/// The token ids of rows, padded to one length.
pub(super) struct Tokenised {
    pub(super) length: usize,
    pub(super) ids: Vec<u32>,
    /// 1 for the second text of a pair.
    pub(super) kinds: Vec<u32>,
    /// The tokens of each row, without padding.
    pub(super) counts: Vec<u32>,
}

impl Tokenised {
    /// 1 for tokens, 0 for padding.
    pub(super) fn mask(&self) -> Vec<u32> {
        let tokens = self.counts.iter().flat_map(|count| (0..self.length as u32).map(move |at| at < *count));
        tokens.map(u32::from).collect()
    }
}

/// The tokens of one row.
pub(super) struct RowTokens {
    ids: Vec<u32>,
    kinds: Vec<u32>,
}

impl RowTokens {
    /// The number of tokens.
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }
}

/// `tokenizer_config.json`, as far as it is read.
#[derive(Default, Deserialize)]
struct TokenizerConfig {
    /// A float, because exporters write 1e30 for no limit.
    model_max_length: Option<f64>,
}

impl Tokeniser {
    /// Reads `tokenizer.json` next to a model; `None` without such a file.
    pub(super) fn beside(model: &Path) -> Result<Option<Self>, Error> {
        let path = model.with_file_name(TOKENIZER);
        if !path.is_file() {
            return Ok(None);
        }
        let refused =
            |error: tokenizers::Error| Error::Load { path: path.clone(), message: error.to_string() };
        let text = fs::read_to_string(&path).map_err(|error| refused(error.into()))?;
        check_charsmap(&text).map_err(|reason| refused(reason.into()))?;
        let mut tokenizer: Tokenizer = text.parse().map_err(refused)?;
        drop(text);
        let own = tokenizer.get_truncation().map(|cut| cut.max_length);
        let most = own.unwrap_or_else(|| configured(&model.with_file_name("tokenizer_config.json"))).max(1);
        let padding = match tokenizer.get_padding() {
            Some(padding) => Some(padding.pad_id),
            None => ["[PAD]", "<pad>"].iter().find_map(|token| tokenizer.token_to_id(token)),
        };
        tokenizer.with_padding(None);
        Ok(Some(Self { tokenizer, most, padding }))
    }

    /// The tokenizer that cuts rows of so many texts at its limit, and at this length if a graph takes no other.
    pub(super) fn limited(&self, fixed: Option<usize>, in_row: usize) -> Result<Self, String> {
        let (mut tokenizer, padding) = (self.tokenizer.clone(), self.padding);
        let most = self.most.min(fixed.unwrap_or(usize::MAX));
        let added = tokenizer.get_post_processor().map_or(0, |it| it.added_tokens(in_row == 2));
        // The tokenizer subtracts one from the other.
        if added >= most {
            return Err(format!("a row has at most {most} tokens, and the tokenizer adds {added} to each"));
        }
        let direction = tokenizer.get_truncation().map_or_else(Default::default, |own| own.direction);
        let cut = TruncationParams { max_length: most, direction, ..TruncationParams::default() };
        tokenizer.with_truncation(Some(cut)).map_err(|error| error.to_string())?;
        Ok(Self { tokenizer, most, padding })
    }

    /// The tokens of each row of so many texts.
    pub(super) fn tokens(&self, texts: &[String], in_row: usize) -> Result<Vec<RowTokens>, Error> {
        texts.chunks(in_row).map(|row| self.row(row)).collect()
    }

    /// These rows in a fixed length or in a multiple of `step`.
    pub(super) fn padded(&self, rows: &[RowTokens], fixed: Option<usize>, step: usize) -> Tokenised {
        let longest = rows.iter().map(|row| row.ids.len()).max().unwrap_or(1).max(1);
        let length = fixed.unwrap_or_else(|| longest.next_multiple_of(step).min(self.most.max(longest)));
        let padded = |of: fn(&RowTokens) -> &[u32], padding: u32| {
            let row = |row| of(row).iter().copied().chain(std::iter::repeat(padding)).take(length);
            rows.iter().flat_map(row).collect()
        };
        Tokenised {
            length,
            ids: padded(|row| &row.ids, self.padding.unwrap_or(0)),
            kinds: padded(|row| &row.kinds, 0),
            counts: rows.iter().map(|row| row.ids.len() as u32).collect(),
        }
    }

    fn row(&self, row: &[String]) -> Result<RowTokens, Error> {
        let tokens = self.encoded(row)?;
        Ok(RowTokens { ids: tokens.get_ids().to_vec(), kinds: tokens.get_type_ids().to_vec() })
    }

    fn encoded(&self, row: &[String]) -> Result<Encoding, Error> {
        let most = self.most.saturating_mul(BYTES);
        let keeps_end =
            self.tokenizer.get_truncation().map(|cut| cut.direction) == Some(TruncationDirection::Left);
        let cut = |text: &String| match keeps_end {
            true => text[text.ceil_char_boundary(text.len().saturating_sub(most))..].to_owned(),
            false => text[..text.floor_char_boundary(most)].to_owned(),
        };
        let input: EncodeInput<'_> = match row {
            [first, second] => (cut(first), cut(second)).into(),
            row => row.first().map(cut).unwrap_or_default().into(),
        };
        self.tokenizer.encode_fast(input, true).map_err(|error| Error::Run { message: error.to_string() })
    }
}

/// The limit in `tokenizer_config.json`.
pub(super) fn configured(path: &Path) -> usize {
    // A pipe would block.
    let read = path.is_file().then(|| fs::read(path).ok()).flatten();
    let read = read.and_then(|bytes| serde_json::from_slice::<TokenizerConfig>(&bytes).ok());
    let length = read.unwrap_or_default().model_max_length.filter(|most| (1.0..=LONGEST).contains(most));
    length.map_or(LENGTH, |most| most as usize)
}

/// `tokenizer.json`, as far as it is checked.
#[derive(Deserialize)]
struct TokenizerFile {
    normalizer: Option<Value>,
}

/// Characters that have the claim, the first four bytes.
const HEAD: usize = 8;

/// Returns an error if a table of replaced characters of this `tokenizer.json` claims a longer index than it has.
///
/// The tokenizer's library reserves the memory that such a table claims for its index: up to 8 GiB for a file of a few
/// bytes. If the memory is not available, the process ends.
fn check_charsmap(file: &str) -> Result<(), String> {
    // The library reports a file that cannot be read.
    let Ok(TokenizerFile { normalizer: Some(normalizer) }) = serde_json::from_str(file) else {
        return Ok(());
    };
    tables(&normalizer).try_for_each(|table| {
        // The library takes base64 with and without padding.
        let table = table.trim_end_matches('=').as_bytes();
        let head = BASE64_STANDARD_NO_PAD.decode(&table[..table.len().min(HEAD)]).unwrap_or_default();
        let Some(claim) = head.first_chunk() else { return Ok(()) };
        let (claimed, left) = (u32::from_le_bytes(*claim), table.len() * 3 / 4 - claim.len());
        if claimed as usize <= left {
            return Ok(());
        }
        Err(format!(
            "its precompiled_charsmap claims an index of {claimed} bytes and has {left}: export it again"
        ))
    })
}

/// The tables of a normalizer and of those in it.
fn tables(normalizer: &Value) -> Box<dyn Iterator<Item = &str> + '_> {
    let own = normalizer.get("precompiled_charsmap").and_then(Value::as_str);
    let inner = normalizer.get("normalizers").and_then(Value::as_array);
    Box::new(own.into_iter().chain(inner.into_iter().flatten().flat_map(tables)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words are split at spaces. The end of a long text is kept.
    const FILE: &str = r#"{
        "version": "1.0", "added_tokens": [], "normalizer": null, "padding": null,
        "truncation": { "direction": "Left", "max_length": 6, "strategy": "LongestFirst", "stride": 0 },
        "pre_tokenizer": { "type": "Whitespace" }, "decoder": null,
        "post_processor": { "type": "BertProcessing", "sep": ["[SEP]", 9], "cls": ["[CLS]", 8] },
        "model": { "type": "WordLevel", "unk_token": "0", "vocab": { "0": 0, "1": 1, "2": 2, "3": 3, "4": 4 } }
    }"#;

    fn tokeniser() -> Tokeniser {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(TOKENIZER), FILE).unwrap();
        Tokeniser::beside(&folder.path().join("model.onnx")).unwrap().unwrap()
    }

    #[test]
    fn rows_are_cut_at_the_end_that_the_tokenizer_names() {
        let row = |texts: &[&str]| {
            let texts: Vec<_> = texts.iter().map(|text| (*text).to_owned()).collect();
            let tokeniser = tokeniser().limited(None, texts.len()).unwrap();
            tokeniser.row(&texts).unwrap().ids
        };
        assert_eq!(row(&["1 2 3"]), [8, 1, 2, 3, 9]);
        assert_eq!(row(&["0 0 1 2 3 4"]), [8, 1, 2, 3, 4, 9]);
        assert_eq!(row(&["1 2 3", "4"]), [8, 2, 3, 9, 4, 9]);
        // Longer than a text that is split as a whole.
        let long = "0 \u{e9}".repeat(10 * BYTES) + " 1 2 3 4";
        assert_eq!(row(&[long.as_str()]), [8, 1, 2, 3, 4, 9]);
    }

    #[test]
    fn rows_are_counted_without_padding() {
        let texts = ["1 2 3", "4"].map(str::to_owned);
        let tokeniser = tokeniser().limited(None, 1).unwrap();
        let tokens = tokeniser.padded(&tokeniser.tokens(&texts, 1).unwrap(), None, 16);
        assert_eq!((tokens.length, &tokens.counts[..]), (6, &[5, 3][..]));
        assert_eq!(tokens.ids, [8, 1, 2, 3, 9, 0, 8, 4, 9, 0, 0, 0]);
        assert_eq!(tokens.mask(), [1, 1, 1, 1, 1, 0, 1, 1, 1, 0, 0, 0]);
    }

    #[test]
    fn length_without_room_for_a_text_is_an_error() {
        for (in_row, least) in [(1, 3), (2, 4)] {
            let error = tokeniser().limited(Some(least - 1), in_row).err().unwrap();
            assert!(error.contains(&format!("at most {} tokens", least - 1)), "{error}");
            assert!(tokeniser().limited(Some(least), in_row).is_ok());
        }
    }
}
