//! Requests for chats, and their answers in OpenAI's form: words, identifiers and times are derived from the request.

use http::StatusCode;
use parm_workload::Random;
use parm_workload::chat::{Tokens, word};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Problem;

/// The time of creation: constant, so that replicas give the same bytes.
const CREATED: u64 = 1_700_000_000;

/// Tokens of an answer without a limit.
const USUAL_OUTPUT: u32 = 16;

/// Most tokens of a prompt and its answer together: the longest prompts of public traces have 191,378.
const CONTEXT: u64 = 262_144;

/// A request for text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Generation {
    model: String,
    /// Seed of the words: the same for the same prompt.
    pub(super) seed: u64,
    pub(super) tokens: Tokens,
    /// Whether the request limits the tokens of its answer.
    limited: bool,
    pub(super) streams: bool,
    /// Whether the stream ends with the usage.
    reports_usage: bool,
}

#[derive(Deserialize)]
struct ChatBody {
    messages: Vec<Message>,
    model: String,
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    content: String,
}

impl Generation {
    /// Reads the body of a request for this model.
    pub(super) fn parse(body: &[u8], known: &str) -> Result<Self, Problem> {
        let invalid = |message: String| Problem::new(StatusCode::BAD_REQUEST, message);
        let ChatBody { messages, model, max_tokens, max_completion_tokens, stream, stream_options } =
            serde_json::from_slice(body).map_err(|error| invalid(format!("invalid body: {error}")))?;
        if model != known {
            let message = format!("The model `{model:.100}` does not exist: use `{known}`");
            return Err(Problem::new(StatusCode::NOT_FOUND, message));
        }
        let (mut text, mut bytes) = (String::new(), 0);
        for Message { role, content } in &messages {
            bytes += content.len() as u64;
            [role, "\u{1}", content, "\u{1}"].into_iter().for_each(|part| text.push_str(part));
        }
        let limit = max_completion_tokens.or(max_tokens);
        let output = limit.unwrap_or(USUAL_OUTPUT);
        if messages.is_empty() || output == 0 {
            return Err(invalid("give one message and one token of max_tokens at least".into()));
        }
        // One token for four bytes, and at least one.
        let prompt = bytes.div_ceil(4).max(1);
        let fits = prompt + u64::from(output) <= CONTEXT;
        let prompt = u32::try_from(prompt).ok().filter(|_| fits).ok_or_else(|| {
            invalid(format!(
                "The context has {CONTEXT} tokens at most, and {prompt} of the prompt and {output} of the answer are \
                 more: shorten one of them"
            ))
        })?;
        let reports_usage = stream_options.and_then(|options| options.include_usage).unwrap_or(false);
        Ok(Self {
            model,
            seed: Random::named(0, &text).bits(),
            tokens: Tokens { prompt, output },
            limited: limit.is_some(),
            streams: stream.unwrap_or(false),
            reports_usage,
        })
    }

    /// The answer in one piece.
    pub(super) fn whole(&self) -> Value {
        let text: String = (0..self.tokens.output).map(|number| self.word(number)).collect();
        let message = json!({ "role": "assistant", "content": text, "refusal": null });
        let choice = json!({ "index": 0, "message": message, "finish_reason": self.finish_reason() });
        self.document("chat.completion", json!([choice]), Some(self.usage()))
    }

    /// The first chunk of a stream, which has no content.
    pub(super) fn opening(&self) -> Value {
        self.chunk(json!({ "role": "assistant", "content": "" }), Value::Null)
    }

    /// The chunk of one token.
    pub(super) fn token(&self, number: u32) -> Value {
        self.chunk(json!({ "content": self.word(number) }), Value::Null)
    }

    /// The last chunk with a choice, and that with the usage if it is wanted.
    pub(super) fn closing(&self) -> Vec<Value> {
        let last = self.chunk(json!({}), self.finish_reason().into());
        let usage = || self.document("chat.completion.chunk", json!([]), Some(self.usage()));
        [last].into_iter().chain(self.reports_usage.then(usage)).collect()
    }

    fn chunk(&self, delta: Value, finish: Value) -> Value {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
        self.document("chat.completion.chunk", json!([choice]), self.reports_usage.then_some(Value::Null))
    }

    fn document(&self, object: &str, choices: Value, usage: Option<Value>) -> Value {
        let Tokens { prompt, output } = self.tokens;
        let id = Random::of(self.seed, [u64::from(prompt), u64::from(output)]).bits();
        let id = format!("chatcmpl-{id:016x}");
        let mut document = json!({
            "id": id, "object": object, "created": CREATED, "model": self.model, "choices": choices,
        });
        if let Some(usage) = usage {
            document["usage"] = usage;
        }
        document
    }

    fn usage(&self) -> Value {
        let Tokens { prompt, output } = self.tokens;
        json!({ "prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output })
    }

    /// The token of this number.
    fn word(&self, number: u32) -> String {
        format!("{}{}", if number > 0 { " " } else { "" }, word(self.seed, number))
    }

    /// A model stops by itself unless the request limits its answer.
    fn finish_reason(&self) -> &'static str {
        if self.limited { "length" } else { "stop" }
    }
}

/// The list of models.
pub(super) fn models(model: &str) -> Value {
    let one = json!({ "id": model, "object": "model", "created": CREATED, "owned_by": "parm" });
    json!({ "object": "list", "data": [one] })
}
