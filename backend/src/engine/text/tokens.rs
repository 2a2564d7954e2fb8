//! The tokenizer of a text model.

use std::fs;
use std::path::Path;

use parm_parity_models::repository::TOKENIZER;
use serde::Deserialize;
use tokenizers::{EncodeInput, Encoding, PostProcessor as _, Tokenizer, TruncationParams};

use crate::Error;

/// The most tokens of a row, if neither the tokenizer nor its configuration says.
const LENGTH: usize = 512;
/// A larger limit in `tokenizer_config.json` means none.
const LONGEST: f64 = 1_048_576.0;
/// The most bytes of a text for each token of the longest row: the end of a longer text is cut off before it is split.
const BYTES: usize = 1024;

/// A tokenizer, and the most tokens of a row.
pub(super) struct Tokeniser {
    tokenizer: Tokenizer,
    most: usize,
    padding: u32,
}

/// The token ids of rows, padded to one length.
pub(super) struct Tokenised {
    pub(super) rows: usize,
    pub(super) length: usize,
    pub(super) ids: Vec<u32>,
    /// 1 for tokens, 0 for padding.
    pub(super) mask: Vec<u32>,
    /// 1 for the second text of a pair.
    pub(super) kinds: Vec<u32>,
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
        let mut tokenizer = Tokenizer::from_file(&path).map_err(refused)?;
        let own = tokenizer.get_truncation().map(|cut| cut.max_length);
        let most = own.unwrap_or_else(|| configured(&model.with_file_name("tokenizer_config.json"))).max(1);
        let padding = match tokenizer.get_padding() {
            Some(padding) => padding.pad_id,
            None => ["[PAD]", "<pad>"].iter().find_map(|token| tokenizer.token_to_id(token)).unwrap_or(0),
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

    /// The tokens of rows of texts, in a fixed length or in a multiple of `step`.
    pub(super) fn rows(
        &self,
        texts: &[String],
        in_row: usize,
        fixed: Option<usize>,
        step: usize,
    ) -> Result<Tokenised, Error> {
        let rows = texts.chunks(in_row).map(|row| self.row(row)).collect::<Result<Vec<_>, _>>()?;
        let longest = rows.iter().map(Encoding::len).max().unwrap_or(1).max(1);
        let length = fixed.unwrap_or_else(|| longest.next_multiple_of(step).min(self.most.max(longest)));
        let padded = |of: fn(&Encoding) -> &[u32], padding: u32| {
            let row = |row: &Encoding| {
                let own = of(row).to_vec();
                own.into_iter().chain(std::iter::repeat(padding)).take(length)
            };
            rows.iter().flat_map(row).collect()
        };
        Ok(Tokenised {
            rows: rows.len(),
            length,
            ids: padded(Encoding::get_ids, self.padding),
            mask: padded(Encoding::get_attention_mask, 0),
            kinds: padded(Encoding::get_type_ids, 0),
        })
    }

    fn row(&self, row: &[String]) -> Result<Encoding, Error> {
        let cut = |text: &String| {
            let end = text.floor_char_boundary(self.most.saturating_mul(BYTES));
            text[..end].to_owned()
        };
        let input: EncodeInput<'_> = match row {
            [first, second] => (cut(first), cut(second)).into(),
            row => row.first().map(cut).unwrap_or_default().into(),
        };
        self.tokenizer.encode_fast(input, true).map_err(|error| Error::Run { message: error.to_string() })
    }
}

/// The limit in `tokenizer_config.json`.
fn configured(path: &Path) -> usize {
    let read = fs::read(path).ok().and_then(|bytes| serde_json::from_slice::<TokenizerConfig>(&bytes).ok());
    let length = read.unwrap_or_default().model_max_length.filter(|most| (1.0..=LONGEST).contains(most));
    length.map_or(LENGTH, |most| most as usize)
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
            tokeniser.row(&texts).unwrap().get_ids().to_vec()
        };
        assert_eq!(row(&["1 2 3"]), [8, 1, 2, 3, 9]);
        assert_eq!(row(&["0 0 1 2 3 4"]), [8, 1, 2, 3, 4, 9]);
        assert_eq!(row(&["1 2 3", "4"]), [8, 2, 3, 9, 4, 9]);
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
