//! One HTTP request over a plain socket.

use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Posts JSON and reads the JSON response. HTTP/1.0 responses are never chunked.
pub(crate) fn post(url: &str, body: &Value) -> Result<Value> {
    let rest = url.strip_prefix("http://").context("the address must begin with http://")?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut stream = TcpStream::connect(host).with_context(|| format!("connecting to {host}"))?;
    let body = body.to_string();
    write!(
        stream,
        "POST /{path} HTTP/1.0\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         \r\n{body}",
        body.len()
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).context("reading the answer")?;
    let answer = String::from_utf8(answer).context("the answer is not text")?;
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer is not HTTP")?;
    let body: Value =
        serde_json::from_str(body).with_context(|| format!("the answer is not JSON: {head}"))?;
    if head.split(' ').nth(1) != Some("200") {
        bail!("{}: {}", head.lines().next().unwrap_or_default(), body["error"].as_str().unwrap_or_default());
    }
    Ok(body)
}
