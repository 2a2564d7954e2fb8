//! What is told who speaks plain where only TLS is spoken: people who forgot an `s` should read so.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const WORDS: &str = "TLS is spoken here and nothing else: write https:// (grpcs://, frames+tls://)";

/// How HTTP/2 without TLS begins.
const PREFACE: &[u8] = b"PRI * HTTP/2";

/// INADEQUATE_SECURITY of HTTP/2.
const INADEQUATE: u32 = 0xc;

/// How long, and how many bytes of it, is listened to a caller after it was told.
const PATIENCE: Duration = Duration::from_secs(1);
const HEARD: usize = 256 << 10;

/// Tells a caller, and returns what there is to log.
pub(super) async fn of_plain(mut stream: TcpStream) -> io::Error {
    match tell(&mut stream).await {
        Ok(()) => {
            linger(stream).await;
            io::Error::new(io::ErrorKind::InvalidData, "it speaks plain, and tls.mode is require")
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

/// Ends a connection once its caller had time to read why: one that has said more than was read would be cut off before.
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
    // Whoever goes before knows why.
    let _ = tokio::time::timeout(PATIENCE, end).await;
}

fn bad_request() -> Vec<u8> {
    let body = format!("{{\"error\":\"{WORDS}\"}}");
    let head =
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length:";
    format!("{head} {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Empty settings, then the end with the words as what is there for people to read.
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
