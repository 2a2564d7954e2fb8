//! The requests: which route, how many tokens, and a text of that length.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use parm_random::Random;
use parm_workload::chat::Tokens;
use serde_json::{Map, Value, json};

use crate::Error;

/// A route of OpenAI's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// `/v1/chat/completions`, as a stream.
    Chat,
    /// `/v1/completions`, as a stream.
    Completions,
    /// `/v1/embeddings`, whose answer is one piece.
    Embeddings,
}

/// Makes the requests of a run.
#[derive(Clone, Debug)]
pub struct Maker {
    /// The route.
    pub api: Api,
    /// The model.
    pub model: String,
    /// Seed of the texts.
    pub seed: u64,
    /// Further fields of each request, such as `ignore_eos` for vLLM. They replace the usual ones.
    pub extra: Map<String, Value>,
}

/// Words of three letters: with their space, each is one token of most tokenizers and four bytes.
const WORDS: [&str; 32] = [
    "the", "and", "for", "are", "but", "not", "you", "all", "any", "can", "had", "her", "was", "one", "our",
    "out", "day", "get", "has", "him", "his", "how", "man", "new", "now", "old", "see", "two", "way", "boy",
    "did", "car",
];

impl Api {
    /// All routes.
    pub const ALL: [Api; 3] = [Api::Chat, Api::Completions, Api::Embeddings];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Api::Chat => "chat",
            Api::Completions => "completions",
            Api::Embeddings => "embeddings",
        }
    }

    /// Its path.
    pub fn path(self) -> &'static str {
        match self {
            Api::Chat => "/v1/chat/completions",
            Api::Completions => "/v1/completions",
            Api::Embeddings => "/v1/embeddings",
        }
    }

    /// Whether its answers are streams.
    pub fn streams(self) -> bool {
        self != Api::Embeddings
    }
}

impl FromStr for Api {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Api::ALL.into_iter().find(|api| api.name() == text);
        found.ok_or_else(|| Error::BadApi { text: text.to_owned() })
    }
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Maker {
    /// Returns the body of request number `index`. Texts differ from the first word on, so that no cache of prefixes helps.
    pub fn body(&self, index: usize, Tokens { prompt, output }: Tokens) -> Bytes {
        let text = text(self.seed, index, prompt.max(1));
        let mut body = match self.api {
            Api::Chat => json!({ "messages": [{ "role": "user", "content": text }] }),
            Api::Completions => json!({ "prompt": text }),
            Api::Embeddings => json!({ "input": text, "encoding_format": "float" }),
        };
        body["model"] = self.model.as_str().into();
        if self.api.streams() {
            body["max_tokens"] = output.max(1).into();
            body["stream"] = true.into();
            body["stream_options"] = json!({ "include_usage": true });
        }
        for (name, value) in &self.extra {
            body[name.as_str()] = value.clone();
        }
        Bytes::from(body.to_string())
    }
}

/// A text of four bytes for each token.
fn text(seed: u64, index: usize, tokens: u32) -> String {
    let mut draw = Random::of(seed, [TEXT, index as u64]);
    let mut text = String::with_capacity(4 * tokens as usize);
    for _ in 0..tokens {
        text.push_str(WORDS[draw.below(WORDS.len())]);
        text.push(' ');
    }
    text
}

const TEXT: u64 = 0x7E87;

#[cfg(test)]
mod tests {
    use super::*;

    fn body(api: Api, extra: Value) -> Value {
        let extra = extra.as_object().cloned().unwrap_or_default();
        let maker = Maker { api, model: "m".into(), seed: 1, extra };
        assert_eq!(
            maker.body(3, Tokens { prompt: 5, output: 0 }),
            maker.body(3, Tokens { prompt: 5, output: 0 })
        );
        serde_json::from_slice(&maker.body(3, Tokens { prompt: 5, output: 0 })).unwrap()
    }

    #[test]
    fn bodies_have_the_form_of_their_route() {
        let chat = body(Api::Chat, json!({ "ignore_eos": true }));
        assert_eq!(chat["messages"][0]["content"].as_str().unwrap().len(), 20);
        assert_eq!(
            (&chat["max_tokens"], &chat["ignore_eos"], &chat["model"]),
            (&json!(1), &json!(true), &json!("m"))
        );
        assert_eq!(chat["stream_options"]["include_usage"], true);
        let completion = body(Api::Completions, json!({ "stream_options": null }));
        assert_eq!((completion["prompt"].as_str().unwrap().len(), &completion["stream"]), (20, &json!(true)));
        assert_eq!(completion["stream_options"], Value::Null);
        let embedding = body(Api::Embeddings, Value::Null);
        assert!(embedding["input"].is_string() && embedding.get("stream").is_none(), "{embedding}");
    }

    #[test]
    fn texts_of_requests_differ_from_the_first_word_on() {
        let firsts: std::collections::BTreeSet<String> =
            (0..100).map(|index| text(1, index, 9)[..8].to_owned()).collect();
        assert!(firsts.len() > 80, "{} of 100", firsts.len());
    }

    #[test]
    fn every_route_is_read_by_its_name() {
        for api in Api::ALL {
            assert_eq!(api.to_string().parse(), Ok(api));
        }
        assert_eq!("images".parse::<Api>(), Err(Error::BadApi { text: "images".into() }));
    }
}
