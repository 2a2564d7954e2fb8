//! Answers in OpenAI's form, each a pure function of the request: identifiers and times are derived too.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use parm_transport::server::GuestBody;
use parm_workload::Random;
use serde_json::{Value, json};

use super::request::{Form, Generation};
use super::words;

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
pub(super) fn models(model: &str, context: usize) -> Value {
    let one = json!({
        "id": model, "object": "model", "created": CREATED, "owned_by": "parm", "max_model_len": context,
    });
    json!({ "object": "list", "data": [one] })
}

impl Generation {
    /// The answer in one piece.
    pub(super) fn whole(&self) -> Value {
        let text = words::text(self.seed, self.output_tokens);
        let mut choice = json!({ "index": 0, "logprobs": null, "finish_reason": self.finish_reason() });
        let object = match self.form {
            Form::Chat => {
                choice["message"] = json!({ "role": "assistant", "content": text, "refusal": null });
                "chat.completion"
            }
            Form::Completion => {
                choice["text"] = text.into();
                "text_completion"
            }
        };
        self.document(object, json!([choice]), Some(self.usage()))
    }

    /// The first chunk of a stream, which has no content; `None` if this form has none.
    pub(super) fn opening(&self) -> Option<Value> {
        let role = json!({ "role": "assistant", "content": "" });
        (self.form == Form::Chat).then(|| self.chunk(role, Value::Null))
    }

    /// The chunk of one token.
    pub(super) fn token(&self, number: u32) -> Value {
        let mut text = String::new();
        words::push(&mut text, self.seed, number);
        match self.form {
            Form::Chat => self.chunk(json!({ "content": text }), Value::Null),
            Form::Completion => self.chunk(text.into(), Value::Null),
        }
    }

    /// The last chunk with a choice.
    pub(super) fn closing(&self) -> Value {
        let empty = if self.form == Form::Chat { json!({}) } else { "".into() };
        self.chunk(empty, self.finish_reason().into())
    }

    /// The chunk with the usage.
    pub(super) fn report(&self) -> Value {
        self.document(self.chunk_object(), json!([]), Some(self.usage()))
    }

    fn chunk(&self, content: Value, finish: Value) -> Value {
        let mut choice = json!({ "index": 0, "logprobs": null, "finish_reason": finish });
        choice[if self.form == Form::Chat { "delta" } else { "text" }] = content;
        self.document(self.chunk_object(), json!([choice]), self.reports_usage.then_some(Value::Null))
    }

    fn chunk_object(&self) -> &'static str {
        if self.form == Form::Chat { "chat.completion.chunk" } else { "text_completion" }
    }

    fn document(&self, object: &str, choices: Value, usage: Option<Value>) -> Value {
        let prefix = if self.form == Form::Chat { "chatcmpl" } else { "cmpl" };
        let name = [u64::from(self.prompt_tokens), u64::from(self.output_tokens)];
        let id = format!("{prefix}-{:016x}", Random::of(self.seed, name).bits());
        let mut document = json!({
            "id": id, "object": object, "created": CREATED, "model": self.model, "choices": choices,
        });
        if let Some(usage) = usage {
            document["usage"] = usage;
        }
        document
    }

    fn usage(&self) -> Value {
        let (prompt, output) = (self.prompt_tokens, self.output_tokens);
        json!({ "prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output })
    }

    /// A model stops by itself unless the request limits its answer.
    fn finish_reason(&self) -> &'static str {
        if self.limited { "length" } else { "stop" }
    }
}
