//! Rows of token ids, which clients with their own tokenizer send in place of texts.
//!
//! *Problem.* A text model has one input of strings. OpenAI's interface also takes token ids.
//!
//! *Choice.* A row of ids is a string that cannot be a text: a byte that UTF-8 does not have, then four bytes for each id.
//! Batches, hedges and stand-ins then need no change. The model's configuration states which ids it takes, so each
//! frontend and worker rejects others before anything runs.
//!
//! *Rejected.* A second, optional input: the protocol has no optional inputs.

use serde::{Deserialize, Serialize};

use crate::{DataType, Error, InferRequest, ModelConfig, ModelMetadata};

/// The first byte of a row of ids.
const MARK: u8 = 0xff;

/// The parameter of a model's configuration.
const NAME: &str = "parm_token_ids";

/// The token ids that a text model takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenIds {
    /// Each id is less.
    pub vocabulary: u32,
    /// The special tokens with which a row begins, such as `[CLS]`.
    pub first: Vec<u32>,
    /// The special tokens with which a row ends, such as `[SEP]`.
    pub last: Vec<u32>,
    /// The id of padding, which a row must not have.
    pub padding: Option<u32>,
    /// Most tokens of a row.
    pub longest: usize,
}

impl TokenIds {
    /// The error in a row.
    fn check(&self, row: &[u32]) -> Result<(), String> {
        let Self { vocabulary, first, last, padding, longest } = self;
        if row.is_empty() {
            return Err("the row is empty: send at least one id".into());
        }
        if let Some(id) = row.iter().find(|id| *id >= vocabulary) {
            return Err(format!(
                "id {id} is not below {vocabulary}, the size of the vocabulary: use the model's own tokenizer"
            ));
        }
        let has_both = row.len() >= first.len() + last.len();
        if !has_both || !row.starts_with(first) || !row.ends_with(last) {
            return Err(format!(
                "a row begins with {first:?} and ends with {last:?}: use the model's own tokenizer, with its special tokens"
            ));
        }
        if let Some(padding) = padding.filter(|padding| row.contains(padding)) {
            return Err(format!("id {padding} is padding: send each row in its own length"));
        }
        if row.len() > *longest {
            return Err(format!("{} ids, and the model reads at most {longest}: send fewer", row.len()));
        }
        Ok(())
    }
}

impl ModelConfig {
    /// Sets the token ids that the model takes in place of texts; `None` if it takes none.
    pub fn set_token_ids(&mut self, ids: Option<&TokenIds>) {
        self.set_parameter(NAME, ids.map(|ids| serde_json::json!(ids).to_string()));
    }

    /// The token ids that the model takes; invalid values are ignored.
    pub fn token_ids(&self) -> Option<TokenIds> {
        serde_json::from_str(self.parameter(NAME)?).ok()
    }
}

/// Whether a string of a tensor is a row of ids.
pub(crate) fn is_marked(text: &[u8]) -> bool {
    text.first() == Some(&MARK) && text.len() % 4 == 1
}

/// The ids of a row, or `None` for a text.
pub fn ids_of(text: &[u8]) -> Option<Vec<u32>> {
    let rest = text.strip_prefix(&[MARK])?;
    let (ids, []) = rest.as_chunks::<4>() else { return None };
    Some(ids.iter().map(|id| u32::from_le_bytes(*id)).collect())
}

/// The string of a tensor for a row of ids.
pub(super) fn packed(ids: &[u32]) -> Vec<u8> {
    std::iter::once(MARK).chain(ids.iter().flat_map(|id| id.to_le_bytes())).collect()
}

/// Rejects rows of ids that the model does not take. Its configuration is read only if there are any.
pub fn check_ids(
    request: &InferRequest,
    metadata: &ModelMetadata,
    config: impl FnOnce() -> ModelConfig,
) -> Result<(), Error> {
    if !crate::validate::takes_text(metadata) {
        return Ok(());
    }
    let strings = request.inputs.iter().filter(|input| input.tensor.datatype() == DataType::Bytes);
    let mut marked = strings.flat_map(|input| {
        let texts = input.tensor.strings().enumerate();
        texts.filter(|(_, text)| is_marked(text)).map(move |(number, text)| (input, number, text))
    });
    let Some(first) = marked.next() else { return Ok(()) };
    let taken = config().token_ids();
    for (input, number, text) in std::iter::once(first).chain(marked) {
        let (Some(taken), Some(ids)) = (&taken, ids_of(text)) else {
            return Err(Error::NotText { name: input.name.clone(), number });
        };
        taken.check(&ids).map_err(|problem| Error::Malformed {
            message: format!("the model cannot use token ids of row {number} from 0: {problem}"),
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ModelRef, NamedTensor, Tensor, TensorMetadata};

    fn taken() -> TokenIds {
        TokenIds { vocabulary: 200, first: vec![101], last: vec![102], padding: Some(0), longest: 4 }
    }

    fn check(rows: &[&[u8]], ids: Option<&TokenIds>) -> Result<(), Error> {
        let data: Vec<u8> = rows
            .iter()
            .flat_map(|row| (row.len() as u32).to_le_bytes().into_iter().chain(row.iter().copied()))
            .collect();
        let tensor = Tensor::new(DataType::Bytes, [rows.len(), 1].as_slice(), data.into()).unwrap();
        let text = TensorMetadata { name: "text".into(), datatype: "BYTES".into(), shape: vec![-1, 1] };
        let platform = "onnx_tract".into();
        let metadata = ModelMetadata { platform, inputs: vec![text], ..ModelMetadata::default() };
        let inputs = vec![NamedTensor::new("text", tensor)];
        let request = InferRequest { model: ModelRef::latest("m"), inputs, ..InferRequest::default() };
        let mut config = ModelConfig::default();
        config.set_token_ids(ids);
        check_ids(&request, &metadata, || config)
    }

    #[test]
    fn rows_of_ids_are_checked_against_the_models_terms() {
        let row = |ids: &[u32]| check(&[b"a text", &packed(ids)], Some(&taken()));
        assert_eq!(row(&[101, 7, 102]), Ok(()));
        for (ids, problem) in [
            (&[][..], "the row is empty"),
            (&[101, 200, 102], "id 200 is not below 200"),
            (&[101, 7], "begins with [101] and ends with [102]"),
            (&[7, 102], "begins with [101] and ends with [102]"),
            (&[101, 0, 102], "id 0 is padding"),
            (&[101, 7, 7, 7, 102], "5 ids, and the model reads at most 4"),
        ] {
            let error = row(ids).unwrap_err().to_string();
            assert!(error.contains(problem) && error.contains("row 1 from 0"), "{ids:?}: {error}");
        }
        let one = TokenIds { first: vec![1], last: vec![1], ..taken() };
        assert!(check(&[&packed(&[1])], Some(&one)).is_err(), "one token is not both");
    }

    #[test]
    fn rows_of_ids_are_no_text_for_other_models() {
        let not_text = |number| Err(Error::NotText { name: "text".into(), number });
        assert_eq!(check(&[b"a", &packed(&[101, 102])], None), not_text(1));
        assert!(!is_marked(b"\xff\x01") && is_marked(b"\xff\x01\0\0\0"), "an id has four bytes");
        assert_eq!(check(&[b"a", b""], None), Ok(()));
    }

    #[test]
    fn ids_are_read_as_they_were_packed() {
        assert_eq!(ids_of(&packed(&[0, u32::MAX])), Some(vec![0, u32::MAX]));
        assert_eq!(ids_of(b"text"), None);
        let mut config = ModelConfig::default();
        assert_eq!(config.token_ids(), None);
        config.set_token_ids(Some(&taken()));
        assert_eq!(config.token_ids(), Some(taken()));
    }
}
