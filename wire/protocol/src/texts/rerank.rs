//! Requests for the scores of texts by a query.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{Exchange, Packed, output, written};
use crate::bounds::Room;
use crate::{Error, InferResponse};

/// `POST /rerank` of Text Embeddings Inference.
#[derive(Debug, Deserialize)]
pub struct Rerank {
    query: String,
    texts: Packed,
    #[serde(default)]
    raw_scores: bool,
    #[serde(default)]
    return_text: bool,
}

#[derive(Serialize)]
struct Ranked<'a> {
    index: usize,
    score: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
}

/// `POST /v1/rerank`, as Cohere's, Jina's and vLLM's.
#[derive(Debug, Deserialize)]
pub struct ScoreDocuments {
    model: String,
    query: String,
    documents: Packed,
    top_n: Option<usize>,
    #[serde(default)]
    return_documents: bool,
}

#[derive(Serialize)]
struct Results<'a> {
    model: &'a str,
    results: Vec<Relevant<'a>>,
}

#[derive(Serialize)]
struct Relevant<'a> {
    index: usize,
    relevance_score: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<Returned<'a>>,
}

#[derive(Serialize)]
struct Returned<'a> {
    text: &'a str,
}

/// The texts by falling score.
fn ranked<'a>(
    response: &InferResponse,
    texts: &'a Packed,
    score: impl Fn(f32) -> f32,
) -> Result<Vec<(usize, f32, &'a str)>, Error> {
    let (values, width) = output(response, texts.count())?;
    if width != 1 {
        let message = format!("model '{}' gives {width} values for a pair, not a score", response.model_name);
        return Err(Error::Malformed { message });
    }
    let mut ranked: Vec<_> = values
        .iter()
        .zip(texts.iter())
        .enumerate()
        .map(|(at, (value, text))| (at, score(*value), text))
        .collect();
    ranked.sort_by(|(_, one, _), (_, other, _)| other.total_cmp(one));
    Ok(ranked)
}

fn sigmoid(value: f32) -> f32 {
    1.0 / (1.0 + (-value).exp())
}

impl Exchange for Rerank {
    const IN_ROW: usize = 2;
    const OPENAI: bool = false;

    fn model(&self) -> Option<&str> {
        None
    }

    fn rows(&mut self, room: &mut Room) -> Result<Packed, Error> {
        self.texts.after(&self.query, room)
    }

    fn answer(&self, response: &InferResponse, _: usize) -> Result<Bytes, Error> {
        let score = |value| if self.raw_scores { value } else { sigmoid(value) };
        let ranked = ranked(response, &self.texts, score)?;
        let shown = |(index, score, text)| Ranked { index, score, text: self.return_text.then_some(text) };
        written(&ranked.into_iter().map(shown).collect::<Vec<_>>())
    }
}

impl Exchange for ScoreDocuments {
    const IN_ROW: usize = 2;
    const OPENAI: bool = true;

    fn model(&self) -> Option<&str> {
        Some(&self.model)
    }

    fn rows(&mut self, room: &mut Room) -> Result<Packed, Error> {
        self.documents.after(&self.query, room)
    }

    fn answer(&self, response: &InferResponse, _: usize) -> Result<Bytes, Error> {
        let ranked = ranked(response, &self.documents, sigmoid)?;
        let shown = |(index, relevance_score, text)| {
            let document = self.return_documents.then_some(Returned { text });
            Relevant { index, relevance_score, document }
        };
        let results = ranked.into_iter().take(self.top_n.unwrap_or(usize::MAX)).map(shown).collect();
        written(&Results { model: &self.model, results })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::read;
    use super::super::tests::{answer, body};
    use super::*;

    #[test]
    fn texts_are_ranked_by_score() {
        let response = answer(&[3, 1], &[0.0, 2.0, -1.0]);
        let request = r#"{"query": "q", "texts": ["a", "b", "c"], "raw_scores": true, "return_text": true}"#;
        let ranked = body::<Rerank>(request, &response);
        assert_eq!(ranked[0], json!({ "index": 1, "score": 2.0, "text": "b" }));
        assert_eq!((&ranked[1]["index"], &ranked[2]["index"]), (&json!(0), &json!(2)));
        let plain = body::<Rerank>(r#"{"query": "q", "texts": ["a", "b", "c"]}"#, &response);
        assert_eq!(plain[1], json!({ "index": 0, "score": 0.5 }));
        let request = r#"{"model": "m", "query": "q", "documents": ["a", "b", "c"], "top_n": 2, "return_documents": true}"#;
        let best = body::<ScoreDocuments>(request, &response);
        assert_eq!(best["results"].as_array().unwrap().len(), 2);
        assert_eq!(
            best["results"][1],
            json!({ "index": 0, "relevance_score": 0.5, "document": { "text": "a" } })
        );
    }

    #[test]
    fn answer_with_several_values_for_a_pair_is_rejected() {
        let request: Rerank = read(br#"{"query": "q", "texts": ["a"]}"#).unwrap();
        let error = request.answer(&answer(&[1, 2], &[0.0, 1.0]), 1).unwrap_err().to_string();
        assert!(error.contains("gives 2 values for a pair, not a score"), "{error}");
    }
}
