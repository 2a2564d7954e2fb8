//! Answers in OpenAI's form, each a pure function of the request: words, identifiers and times are derived from it.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use parm_transport::server::GuestBody;
use parm_workload::Random;
use parm_workload::chat::{Tokens, word};
use serde_json::{Value, json};

use super::request::Generation;

/// The time of creation: constant, so that replicas give the same bytes.
const CREATED: u64 = 1_700_000_000;

/// A response with this document.
pub(super) fn json(status: StatusCode, document: &Value) -> Response<GuestBody> {
    let mut response = Response::new(Full::new(Bytes::from(document.to_string())).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The list of models.
pub(super) fn models(model: &str) -> Value {
    let one = json!({ "id": model, "object": "model", "created": CREATED, "owned_by": "parm" });
    json!({ "object": "list", "data": [one] })
}

impl Generation {
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

    /// The last chunk with a choice.
    pub(super) fn closing(&self) -> Value {
        self.chunk(json!({}), self.finish_reason().into())
    }

    /// The chunk with the usage.
    pub(super) fn report(&self) -> Value {
        self.document("chat.completion.chunk", json!([]), Some(self.usage()))
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
