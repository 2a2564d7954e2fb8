//! Errors in JSON: always `{"error": "<what failed and what to do>"}`.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{Code, Error};

/// Longer messages are cut: they may be a proxy's whole page, or quote a client.
const LONGEST_MESSAGE: usize = 2000;

/// The body of an error response.
pub fn encode(error: &Error) -> Bytes {
    #[derive(Serialize)]
    struct Problem<'a> {
        error: &'a str,
    }
    let mut message = error.to_string();
    shorten(&mut message);
    Bytes::from(serde_json::to_vec(&Problem { error: &message }).unwrap_or_default())
}

/// The error in a response with `code`; a body of another form is quoted.
pub fn decode(code: Code, body: &[u8]) -> Error {
    #[derive(Deserialize)]
    struct Foreign {
        #[serde(alias = "detail", alias = "message")]
        error: String,
    }
    let mut message = match serde_json::from_slice::<Foreign>(body) {
        Ok(problem) => problem.error,
        Err(_) => String::from_utf8_lossy(&body[..body.len().min(LONGEST_MESSAGE)]).trim().to_owned(),
    };
    shorten(&mut message);
    if message.is_empty() {
        message = format!("the server answered {code:?} without a message");
    }
    Error::Remote { code, message }
}

/// Cuts a message that is longer than an error or a line of a log should be.
pub fn shorten(message: &mut String) {
    if let Some((end, _)) = message.char_indices().nth(LONGEST_MESSAGE) {
        message.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_survives_the_wire_as_its_message_and_code() {
        let error = Error::UnknownModel { name: "a \"quoted\" name".into() };
        let back = decode(Code::NotFound, &encode(&error));
        assert_eq!(back, Error::Remote { code: Code::NotFound, message: error.to_string() });
    }

    #[test]
    fn foreign_error_body_is_quoted_and_cut() {
        let page = "<html>é".repeat(1000);
        let Error::Remote { message, .. } = decode(Code::Unavailable, page.as_bytes()) else {
            unreachable!()
        };
        assert!(message.starts_with("<html>é") && message.len() <= LONGEST_MESSAGE + 4);
        let Error::Remote { message, .. } = decode(Code::Internal, b"") else { unreachable!() };
        assert_eq!(message, "the server answered Internal without a message");
    }

    #[test]
    fn long_error_message_is_cut() {
        let error = Error::UnknownDatatype { datatype: "é".repeat(1_000_000) };
        let Error::Remote { message, .. } = decode(Code::InvalidArgument, &encode(&error)) else {
            unreachable!()
        };
        assert_eq!(message.chars().count(), LONGEST_MESSAGE);
        assert!(error.to_string().starts_with(&message));
    }
}
