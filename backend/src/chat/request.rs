//! Requests in OpenAI's form: their sizes in tokens, and the seed of their answers.
//!
//! A token is four bytes of text. Fields that affect the text of an answer alone, such as `temperature`, are ignored.

use parm_workload::Random;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::problem::Problem;
use super::{Config, vectors};

/// Tokens of an answer without a limit.
const USUAL_OUTPUT: u64 = 16;
/// Most inputs of one request for embeddings, as at OpenAI.
const MOST_INPUTS: usize = 2048;
/// Values of an embedding, unless the request names another number.
const USUAL_DIMENSIONS: usize = 256;
/// Most values of an embedding.
const MOST_DIMENSIONS: usize = 4096;

/// The form of a request for text and of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completion,
}

/// A request for text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Generation {
    pub(super) form: Form,
    pub(super) model: String,
    /// Seed of the words: the same for the same prompt.
    pub(super) seed: u64,
    pub(super) prompt_tokens: u32,
    pub(super) output_tokens: u32,
    /// Whether the request limits the tokens of its answer.
    pub(super) limited: bool,
    pub(super) streams: bool,
    /// Whether the stream ends with the usage.
    pub(super) reports_usage: bool,
}

/// A request for embeddings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Embedding {
    model: String,
    /// The seed and the tokens of each input.
    inputs: Vec<(u64, u32)>,
    dimensions: usize,
    base64: bool,
}

#[derive(Deserialize)]
struct ChatBody {
    messages: Vec<Message>,
    #[serde(flatten)]
    common: Common,
}

#[derive(Deserialize)]
struct CompletionBody {
    prompt: Input,
    #[serde(flatten)]
    common: Common,
}

#[derive(Deserialize)]
struct Common {
    model: String,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    n: Option<u64>,
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
    content: Option<Content>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "content must be a text or a list of parts")]
enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
}

/// A part of a message; images and other parts without text are not tokens here.
#[derive(Deserialize)]
struct ContentPart {
    text: Option<String>,
}

#[derive(Deserialize)]
struct EmbeddingBody {
    model: String,
    input: Input,
    dimensions: Option<usize>,
    encoding_format: Option<String>,
}

/// Text or numbers of tokens, one or several.
#[derive(Deserialize)]
#[serde(untagged, expecting = "give a text, a list of texts, a list of tokens or a list of such lists")]
enum Input {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    TokenLists(Vec<Vec<u32>>),
}

impl Generation {
    /// Reads the body of `/v1/chat/completions`.
    pub(super) fn chat(body: &[u8], config: &Config) -> Result<Self, Problem> {
        let ChatBody { messages, common } = parsed(body)?;
        if messages.is_empty() {
            return Err(Problem::invalid("messages is empty: give one at least", Some("messages")));
        }
        let (mut text, mut bytes) = (String::new(), 0);
        let mut add = |part: &str| {
            bytes += part.len();
            text.push_str(part);
            text.push('\u{1}');
        };
        let mut roles = String::new();
        for Message { role, content } in &messages {
            match content {
                Some(Content::Text(content)) => add(content),
                Some(Content::Parts(parts)) => {
                    parts.iter().filter_map(|it| it.text.as_deref()).for_each(&mut add)
                }
                None => {}
            }
            roles.push_str(role);
            roles.push('\u{1}');
        }
        let seed = Random::named(Random::named(0, &roles).bits(), &text).bits();
        Self::of(Form::Chat, common, (seed, tokens(bytes)), config)
    }

    /// Reads the body of `/v1/completions`.
    pub(super) fn completion(body: &[u8], config: &Config) -> Result<Self, Problem> {
        let CompletionBody { prompt, common } = parsed(body)?;
        let [prompt] = prompt.sizes()[..] else {
            return Err(Problem::invalid("several prompts are not supported: send one", Some("prompt")));
        };
        Self::of(Form::Completion, common, prompt, config)
    }

    fn of(form: Form, common: Common, prompt: (u64, u64), config: &Config) -> Result<Self, Problem> {
        let model = served(common.model, config.model.as_deref().unwrap_or_default())?;
        if common.n.is_some_and(|count| count != 1) {
            return Err(Problem::invalid("n is not supported: use 1", Some("n")));
        }
        let limit = common.max_completion_tokens.or(common.max_tokens);
        let output = limit.unwrap_or(USUAL_OUTPUT);
        if output == 0 {
            return Err(Problem::invalid("max_tokens is 0: give 1 at least", Some("max_tokens")));
        }
        let (seed, prompt) = prompt;
        let context = config.context.get();
        let too_long = || {
            let param = if form == Form::Chat { "messages" } else { "prompt" };
            Problem::too_long(prompt, output, context, param)
        };
        if prompt.saturating_add(output) > context as u64 {
            return Err(too_long());
        }
        let small = |count: u64| u32::try_from(count).map_err(|_| too_long());
        let streams = common.stream.unwrap_or(false);
        let reports_usage = common.stream_options.and_then(|options| options.include_usage).unwrap_or(false);
        if reports_usage && !streams {
            let message = "stream_options needs `stream: true`";
            return Err(Problem::invalid(message, Some("stream_options")));
        }
        let (prompt_tokens, output_tokens) = (small(prompt)?, small(output)?);
        let limited = limit.is_some();
        Ok(Self { form, model, seed, prompt_tokens, output_tokens, limited, streams, reports_usage })
    }
}

impl Embedding {
    /// Reads the body of `/v1/embeddings` for this model.
    pub(super) fn parse(body: &[u8], model: &str) -> Result<Self, Problem> {
        let EmbeddingBody { model: wanted, input, dimensions, encoding_format } = parsed(body)?;
        let model = served(wanted, model)?;
        let sizes = input.sizes();
        if !(1..=MOST_INPUTS).contains(&sizes.len()) {
            let message = format!("input has {} entries: give 1 to {MOST_INPUTS}", sizes.len());
            return Err(Problem::invalid(message, Some("input")));
        }
        let small = |(seed, tokens)| (seed, u32::try_from(tokens).unwrap_or(u32::MAX));
        let dimensions = dimensions.unwrap_or(USUAL_DIMENSIONS);
        if !(1..=MOST_DIMENSIONS).contains(&dimensions) {
            let message = format!("dimensions is {dimensions}: give 1 to {MOST_DIMENSIONS}");
            return Err(Problem::invalid(message, Some("dimensions")));
        }
        let base64 = match encoding_format.as_deref() {
            None | Some("float") => false,
            Some("base64") => true,
            Some(_) => {
                let message = "unknown encoding_format: use float or base64";
                return Err(Problem::invalid(message, Some("encoding_format")));
            }
        };
        Ok(Self { model, inputs: sizes.into_iter().map(small).collect(), dimensions, base64 })
    }

    /// Tokens of all inputs.
    pub(super) fn tokens(&self) -> u32 {
        self.inputs.iter().fold(0, |sum, (_, tokens)| sum.saturating_add(*tokens))
    }

    /// Returns the vector of an input, or a wrong one, in the list of the answer.
    pub(super) fn vector(&self, index: usize, wrong: bool) -> Option<Value> {
        let seed = self.inputs.get(index)?.0;
        let vector = vectors::unit(if wrong { !seed } else { seed }, self.dimensions);
        let embedding = vectors::encoded(&vector, self.base64);
        Some(json!({ "object": "embedding", "index": index, "embedding": embedding }))
    }

    /// Returns the answer with an empty list of vectors.
    pub(super) fn frame(&self) -> Value {
        let usage = json!({ "prompt_tokens": self.tokens(), "total_tokens": self.tokens() });
        json!({ "object": "list", "data": [], "model": self.model, "usage": usage })
    }
}

impl Input {
    /// Returns the seed and the tokens of each entry.
    fn sizes(&self) -> Vec<(u64, u64)> {
        let text = |text: &String| (Random::named(0, text).bits(), tokens(text.len()));
        let list = |list: &Vec<u32>| {
            let seed = list.iter().fold(1, |seed, token| Random::of(seed, [u64::from(*token)]).bits());
            (seed, (list.len() as u64).max(1))
        };
        match self {
            Input::Text(one) => vec![text(one)],
            Input::Texts(several) => several.iter().map(text).collect(),
            Input::Tokens(one) => vec![list(one)],
            Input::TokenLists(several) => several.iter().map(list).collect(),
        }
    }
}

fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let invalid = |error: serde_json::Error| Problem::invalid(format!("invalid body: {error}"), None);
    serde_json::from_slice(body).map_err(invalid)
}

fn served(wanted: String, model: &str) -> Result<String, Problem> {
    if wanted == model { Ok(wanted) } else { Err(Problem::unknown_model(&wanted, model)) }
}

/// One token for four bytes, and at least one.
fn tokens(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(4).max(1)
}
