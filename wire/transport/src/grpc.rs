//! gRPC without a framework: messages in their frames, timeouts, and the methods of the protocol.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderMap;
use parm_protocol::grpc::inference as proto;
use parm_protocol::{Error, ModelMetadata};
use prost::Message;

/// Bytes in front of each message: a flag, and the message's length.
pub(crate) const PREFIX: usize = 5;

/// The header of a call's timeout: at most eight digits and a unit.
pub(crate) const TIMEOUT: &str = "grpc-timeout";
const MAX_DIGITS: usize = 8;

/// The request of a method with one message each way.
pub trait Method: Message + Default {
    /// The path of the method.
    const PATH: &'static str;
    /// The message of the answer.
    type Answer: Message + Default;
}

/// A message in its frame.
pub fn frame(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX + length);
    bytes.put_u8(0);
    // A longer message could not be sent: the limits of bodies are lower.
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.encode(&mut bytes).expect("the buffer has room");
    bytes.freeze()
}

/// The length of the message that follows a frame's prefix; an error for people if the prefix is invalid.
pub(crate) fn length(prefix: [u8; PREFIX]) -> Result<usize, String> {
    let [flag, length @ ..] = prefix;
    match flag {
        0 => usize::try_from(u32::from_be_bytes(length)).map_err(|error| error.to_string()),
        1 => Err("a message is compressed, and the call names no grpc-encoding".into()),
        other => Err(format!("a message has the flag {other}, which gRPC does not know")),
    }
}

/// The only message of a whole answer.
pub(crate) fn only<M: Message + Default>(body: Bytes) -> Result<M, String> {
    let Some((prefix, _)) = body.split_first_chunk::<PREFIX>() else {
        return Err("the answer has no message".into());
    };
    if length(*prefix)? != body.len() - PREFIX {
        return Err("the answer is not one whole message".into());
    }
    M::decode(body.slice(PREFIX..)).map_err(|error| error.to_string())
}

/// The timeout of the call, if the client sent one.
pub(crate) fn timeout_of(headers: &HeaderMap) -> Result<Option<Duration>, Error> {
    let Some(value) = headers.get(TIMEOUT) else { return Ok(None) };
    match value.to_str().ok().and_then(parse) {
        Some(timeout) => Ok(Some(timeout)),
        None => {
            let message =
                format!("header {TIMEOUT} is {value:?}: send up to 8 digits and one of H M S m u n");
            Err(Error::Malformed { message })
        }
    }
}

/// The header's value for a timeout.
pub(crate) fn timeout_text(left: Duration) -> String {
    let units = [(left.as_nanos(), 'n'), (left.as_micros(), 'u'), (left.as_millis(), 'm')];
    let fits = units.into_iter().find(|(count, _)| *count < 100_000_000);
    let (count, unit) = fits.unwrap_or((u128::from(left.as_secs().min(99_999_999)), 'S'));
    format!("{count}{unit}")
}

fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > MAX_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let value: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(value * 3600),
        "M" => Duration::from_secs(value * 60),
        "S" => Duration::from_secs(value),
        "m" => Duration::from_millis(value),
        "u" => Duration::from_micros(value),
        "n" => Duration::from_nanos(value),
        _ => return None,
    })
}

macro_rules! methods {
    ($($request:ident $method:literal $answer:ty;)+) => {
        $(impl Method for proto::$request {
            const PATH: &'static str = concat!("/inference.GRPCInferenceService/", $method);
            type Answer = $answer;
        })+
    };
}

methods! {
    ModelInferRequest "ModelInfer" proto::ModelInferResponse;
    ServerLiveRequest "ServerLive" proto::ServerLiveResponse;
    ServerReadyRequest "ServerReady" proto::ServerReadyResponse;
    ServerMetadataRequest "ServerMetadata" proto::ServerMetadataResponse;
    ModelReadyRequest "ModelReady" proto::ModelReadyResponse;
    ModelMetadataRequest "ModelMetadata" ModelMetadata;
    ModelConfigRequest "ModelConfig" proto::ModelConfigResponse;
    ModelStatisticsRequest "ModelStatistics" proto::ModelStatisticsResponse;
    RepositoryIndexRequest "RepositoryIndex" proto::RepositoryIndexResponse;
    RepositoryModelLoadRequest "RepositoryModelLoad" proto::RepositoryModelLoadResponse;
    RepositoryModelUnloadRequest "RepositoryModelUnload" proto::RepositoryModelUnloadResponse;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_digits_and_a_unit() {
        let cases = [
            ("3H", Some(Duration::from_secs(3 * 3600))),
            ("2M", Some(Duration::from_secs(120))),
            ("42S", Some(Duration::from_secs(42))),
            ("250m", Some(Duration::from_millis(250))),
            ("10u", Some(Duration::from_micros(10))),
            ("99999999n", Some(Duration::from_nanos(99_999_999))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3600))),
            ("0m", Some(Duration::ZERO)),
            ("", None),
            ("m", None),
            ("10", None),
            ("10x", None),
            ("-1m", None),
            ("+1m", None),
            ("1.5S", None),
            ("100000000m", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), expected, "{text}");
        }
    }
}
