//! A response that is read line by line as it arrives.

use std::io;

use bytes::{Buf, Bytes, BytesMut};

use super::Hearing;

/// The lines of a response, each of limited length. Empty lines are skipped.
#[derive(Debug)]
pub struct Lines {
    hearing: Hearing,
    longest: usize,
    rest: BytesMut,
    /// Length of the prefix that contains no end of a line.
    searched: usize,
}

impl Lines {
    /// The remaining lines of a response.
    pub fn of(hearing: Hearing, longest: usize) -> Self {
        Self { hearing, longest, rest: BytesMut::new(), searched: 0 }
    }

    /// The next line; `None` after the regular end. A line that is too long is `InvalidData`. Cancel safe: may be
    /// dropped and called again.
    pub async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if let Some(end) = self.rest[self.searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.rest.split_to(self.searched + end).freeze();
                self.rest.advance(1);
                self.searched = 0;
                if line.is_empty() {
                    continue;
                }
                return Ok(Some(line));
            }
            self.searched = self.rest.len();
            if self.rest.len() > self.longest {
                let reason = format!("a line has more than {} bytes", self.longest);
                return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
            }
            match self.hearing.chunk().await? {
                Some(chunk) => self.rest.extend_from_slice(&chunk),
                None if self.rest.is_empty() => return Ok(None),
                None => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the response ended within a line",
                    ));
                }
            }
        }
    }
}
