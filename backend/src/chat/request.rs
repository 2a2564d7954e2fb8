//! Reads requests for chats.

use http::StatusCode;
use parm_workload::Random;
use parm_workload::chat::Tokens;
use serde::Deserialize;

use super::problem::Problem;

/// Tokens of an answer without a limit.
const USUAL_OUTPUT: u32 = 16;

/// Most tokens of a prompt and its answer together: the longest prompts of public traces have 191,378.
const CONTEXT: u64 = 262_144;

/// A request for text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Generation {
    pub(super) model: String,
    /// Seed of the words: the same for the same prompt.
    pub(super) seed: u64,
    pub(super) tokens: Tokens,
    /// Whether the request limits the tokens of its answer.
    pub(super) limited: bool,
    pub(super) streams: bool,
    /// Whether the stream ends with the usage.
    pub(super) reports_usage: bool,
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
        let invalid = |error: serde_json::Error| Problem::invalid(format!("invalid body: {error}"));
        let ChatBody { messages, model, max_tokens, max_completion_tokens, stream, stream_options } =
            serde_json::from_slice(body).map_err(invalid)?;
        if model != known {
            let message = format!("The model `{model:.100}` does not exist: use `{known}`");
            return Err(Problem::failed(StatusCode::NOT_FOUND, message));
        }
        let (mut text, mut bytes) = (String::new(), 0);
        for Message { role, content } in &messages {
            bytes += content.len() as u64;
            [role, "\u{1}", content, "\u{1}"].into_iter().for_each(|part| text.push_str(part));
        }
        let limit = max_completion_tokens.or(max_tokens);
        let output = limit.unwrap_or(USUAL_OUTPUT);
        if messages.is_empty() || output == 0 {
            return Err(Problem::invalid("give one message and one token of max_tokens at least"));
        }
        // One token for four bytes, and at least one.
        let prompt = bytes.div_ceil(4).max(1);
        let fits = prompt + u64::from(output) <= CONTEXT;
        let prompt = u32::try_from(prompt).ok().filter(|_| fits).ok_or_else(|| {
            Problem::invalid(format!(
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
}
