//! The requests: how many tokens, and a text of that length.

use std::sync::Arc;

use bytes::Bytes;
use parm_random::Random;
use parm_workload::chat::{Tokens, word};
use serde_json::{Map, Value, json};

/// The path of chats.
pub const PATH: &str = "/v1/chat/completions";

/// Makes the requests of a run.
#[derive(Clone, Debug)]
pub struct Maker {
    /// The model.
    pub model: String,
    /// The size of each request; the last one for all further requests.
    pub sizes: Arc<[Tokens]>,
    /// Seed of the texts.
    pub seed: u64,
    /// Further fields of each request, such as `ignore_eos` for vLLM. They replace the usual ones.
    pub extra: Map<String, Value>,
}

const TEXT: u64 = 0x7E87;

impl Maker {
    /// The size of request number `index`.
    pub(super) fn size(&self, index: usize) -> Tokens {
        let size = self.sizes.get(index).or(self.sizes.last());
        size.copied().unwrap_or(Tokens { prompt: 1, output: 1 })
    }

    /// The body of request number `index`. Texts differ from the first word on, so that no cache of prefixes helps.
    pub(super) fn body(&self, index: usize) -> Bytes {
        let Tokens { prompt, output } = self.size(index);
        let seed = Random::of(self.seed, [TEXT, index as u64]).bits();
        let text: String = (0..prompt.max(1)).flat_map(|number| [word(seed, number), " "]).collect();
        let mut body = json!({
            "model": self.model, "messages": [{ "role": "user", "content": text }], "max_tokens": output.max(1),
            "stream": true, "stream_options": { "include_usage": true },
        });
        for (name, value) in &self.extra {
            body[name.as_str()] = value.clone();
        }
        Bytes::from(body.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_differ_from_the_first_word_on_and_fields_are_replaced() {
        let extra = json!({ "ignore_eos": true, "stream_options": null });
        let sizes = [Tokens { prompt: 5, output: 0 }].into();
        let maker = Maker { model: "m".into(), sizes, seed: 1, extra: extra.as_object().cloned().unwrap() };
        let body = |index| -> Value { serde_json::from_slice(&maker.body(index)).unwrap() };
        let text = |index| body(index)["messages"][0]["content"].as_str().unwrap().to_owned();
        assert_eq!((body(3), text(3).len()), (body(3), 20));
        assert_eq!((&body(3)["max_tokens"], &body(3)["ignore_eos"]), (&json!(1), &json!(true)));
        assert_eq!((&body(3)["stream_options"], &body(3)["model"]), (&Value::Null, &json!("m")));
        let firsts: std::collections::BTreeSet<String> =
            (0..100).map(|index| text(index)[..8].into()).collect();
        assert!(firsts.len() > 80, "{} of 100", firsts.len());
    }
}
