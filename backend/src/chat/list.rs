//! Answers with embeddings, one piece for each: eight million numbers at once would take 400 MB.

use std::convert::Infallible;

use bytes::Bytes;
use futures::stream;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use parm_transport::server::GuestBody;

use super::request::Embedding;

/// The response whose body is made as its client reads it.
pub(super) fn response(request: Embedding, wrong: bool) -> Response<GuestBody> {
    let pieces = stream::iter(pieces(request, wrong).map(|piece| Ok::<_, Infallible>(Frame::data(piece))));
    let mut response = Response::new(StreamBody::new(pieces).boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The document in pieces.
fn pieces(request: Embedding, wrong: bool) -> impl Iterator<Item = Bytes> + Send {
    let frame = request.frame().to_string();
    // No other list precedes that of the vectors.
    let place = frame.find("[]").map_or(frame.len(), |at| at + 1);
    let (begin, end) = (Bytes::from(frame[..place].to_owned()), Bytes::from(frame[place..].to_owned()));
    let vectors = (0..).map_while(move |index| {
        let comma = if index == 0 { "" } else { "," };
        request.vector(index, wrong).map(|vector| Bytes::from(format!("{comma}{vector}")))
    });
    std::iter::once(begin).chain(vectors).chain(std::iter::once(end))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn request(inputs: usize, dimensions: usize) -> Embedding {
        let body = json!({ "model": "m[]", "input": vec!["a"; inputs], "dimensions": dimensions });
        Embedding::parse(body.to_string().as_bytes(), "m[]").unwrap_or_else(|_| panic!("it is valid"))
    }

    #[test]
    fn pieces_are_the_document() {
        let whole: Vec<u8> = pieces(request(3, 2), false).flatten().collect();
        let whole: Value = serde_json::from_slice(&whole).unwrap();
        let data = whole["data"].as_array().unwrap();
        assert_eq!(data.iter().map(|one| one["index"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(data.iter().all(|one| one["embedding"].as_array().unwrap().len() == 2));
        assert_eq!((&whole["object"], &whole["model"]), (&json!("list"), &json!("m[]")));
        assert_eq!(whole["usage"], json!({ "prompt_tokens": 3, "total_tokens": 3 }));
    }

    #[tokio::test]
    async fn largest_answer_is_made_as_it_is_read() {
        let mut body = response(request(2048, 4096), false).into_body();
        for _ in 0..4 {
            let piece = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert!(piece.len() < 200_000, "{} bytes at once", piece.len());
        }
    }
}
