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
    raw_scores: Option<bool>,
    return_text: Option<bool>,
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
    return_documents: Option<bool>,
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

/// The texts by falling score of the model: a score from 0 to 1 is equal for all high ones.
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
    let mut ranked: Vec<_> =
        values.iter().zip(texts.iter()).enumerate().map(|(at, (value, text))| (at, *value, text)).collect();
    ranked.sort_by(|(_, one, _), (_, other, _)| other.total_cmp(one));
    Ok(ranked.into_iter().map(|(at, value, text)| (at, score(value), text)).collect())
}

fn sigmoid(value: f32) -> f32 {
    1.0 / (1.0 + (-value).exp())
}

impl Exchange for Rerank {
    const IN_ROW: usize = 2;
    const OPENAI: bool = false;

    fn rows(&mut self, room: &mut Room) -> Result<Packed, Error> {
        self.texts.after(&self.query, room)
    }

    fn answer(&self, response: &InferResponse, _: usize) -> Result<Bytes, Error> {
        let score = |value| if self.raw_scores == Some(true) { value } else { sigmoid(value) };
        let ranked = ranked(response, &self.texts, score)?;
        let shown = |(index, score, text)| Ranked {
            index,
            score,
            text: (self.return_text == Some(true)).then_some(text),
        };
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
            let document = (self.return_documents == Some(true)).then_some(Returned { text });
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
    fn absent_options_may_be_null() {
        let response = answer(&[1, 1], &[0.0]);
        let ranked = body::<Rerank>(
            r#"{"query": "q", "texts": ["a"], "raw_scores": null, "return_text": null}"#,
            &response,
        );
        assert_eq!(ranked, json!([{ "index": 0, "score": 0.5 }]));
        let request =
            r#"{"model": "m", "query": "q", "documents": ["a"], "top_n": null, "return_documents": null}"#;
        let results = body::<ScoreDocuments>(request, &response);
        assert_eq!(results["results"], json!([{ "index": 0, "relevance_score": 0.5 }]));
    }

    #[test]
    fn high_scores_are_ranked_by_the_model() {
        let response = answer(&[3, 1], &[18.0, 40.0, 25.0]);
        for request in [
            r#"{"query": "q", "texts": ["a", "b", "c"]}"#,
            r#"{"query": "q", "texts": ["a", "b", "c"], "raw_scores": true}"#,
        ] {
            let ranked = body::<Rerank>(request, &response);
            let order: Vec<_> = ranked.as_array().unwrap().iter().map(|text| &text["index"]).collect();
            assert_eq!(order, [&json!(1), &json!(2), &json!(0)], "{ranked}");
        }
    }

    #[test]
    fn answer_with_several_values_for_a_pair_is_rejected() {
        let request: Rerank = read(br#"{"query": "q", "texts": ["a"]}"#).unwrap();
        let error = request.answer(&answer(&[1, 2], &[0.0, 1.0]), 1).unwrap_err().to_string();
        assert!(error.contains("gives 2 values for a pair, not a score"), "{error}");
    }
}
