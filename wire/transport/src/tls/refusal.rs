//! The response to a plain-text request on a TLS-only port, for users who forgot the `s` of `https`.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const WORDS: &str = "this port requires TLS: use https:// (grpcs://, frames+tls://)";

/// The start of HTTP/2 without TLS.
const PREFACE: &[u8] = b"PRI * HTTP/2";

/// INADEQUATE_SECURITY of HTTP/2.
const INADEQUATE: u32 = 0xc;

/// Time and bytes for which the client is read after the response.
const PATIENCE: Duration = Duration::from_secs(1);
const HEARD: usize = 256 << 10;

/// Responds to the client, and returns the error to log.
pub(super) async fn of_plain(mut stream: TcpStream) -> io::Error {
    match tell(&mut stream).await {
        Ok(()) => {
            linger(stream).await;
            io::Error::new(
                io::ErrorKind::InvalidData,
                "the client does not speak TLS, and tls.mode is require",
            )
        }
        Err(error) => error,
    }
}

async fn tell(stream: &mut TcpStream) -> io::Result<()> {
    let mut begin = [0; PREFACE.len()];
    let seen = stream.peek(&mut begin).await?;
    let answer = if PREFACE.starts_with(&begin[..seen]) { goaway() } else { bad_request() };
    stream.write_all(&answer).await
}

/// Closes a connection after its client had time to read the response: closing with unread data would reset it earlier.
pub(super) async fn linger(mut stream: TcpStream) {
    let end = async {
        stream.shutdown().await?;
        let (mut heard, mut buffer) = (0, [0; 4096]);
        while heard < HEARD {
            match stream.read(&mut buffer).await? {
                0 => break,
                read => heard += read,
            }
        }
        Ok::<(), io::Error>(())
    };
    // A client that disconnects earlier has read the response.
    let _ = tokio::time::timeout(PATIENCE, end).await;
}

fn bad_request() -> Vec<u8> {
    let body = format!("{{\"error\":\"{WORDS}\"}}");
    let head =
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length:";
    format!("{head} {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Empty settings, then GOAWAY with the message as debug data.
fn goaway() -> Vec<u8> {
    let mut frames = vec![0, 0, 0, 4, 0, 0, 0, 0, 0];
    let length = (8 + WORDS.len()) as u32;
    frames.extend_from_slice(&length.to_be_bytes()[1..]);
    frames.extend([7, 0, 0, 0, 0, 0]);
    frames.extend(0u32.to_be_bytes());
    frames.extend(INADEQUATE.to_be_bytes());
    frames.extend(WORDS.as_bytes());
    frames
}
