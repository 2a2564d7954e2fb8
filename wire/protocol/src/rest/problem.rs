//! Errors in JSON: always `{"error": "<what failed and what to do>"}`.

use bytes::Bytes;
use serde::Serialize;

use crate::Error;

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
    fn long_error_message_is_cut() {
        let body = encode(&Error::UnknownDatatype { datatype: "é".repeat(1_000_000) });
        let read: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(read["error"].as_str().unwrap().chars().count(), LONGEST_MESSAGE);
    }
}
