//! Incoming frames.
//!
//! One buffer receives many small frames or one large one, and bodies are slices of it, so tensors are not copied.
//!
//! A peer may be connected but silent: stopped, hung, or behind a broken network. Every received byte counts as a sign of life, not
//! only a whole frame: one of 48 MB takes ten seconds over a slow link. A large outgoing frame precedes the ping, so the peer's
//! timeout starts when the ping was sent. Until then the peer must keep reading.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use parm_protocol::Error;
use tokio::time::Instant;

use super::Config;
use super::frame::{Frame, Header, Kind, LENGTH};
use super::socket::ReadHalf;
use super::writer::{Urgency, Writer};
use crate::budget::{Budget, Share};

/// Size of a read; a chunk lives until the last tensor in it is dropped.
const CHUNK: usize = 64 << 10;

/// With less room than this a new chunk is allocated, instead of many small reads at the end of the old one.
const LEAST_ROOM: usize = 8 << 10;

#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) header: Header,
    pub(super) body: Bytes,
    /// The body's share of the reader's budget. If the budget is spent, the body was skipped and is empty.
    pub(super) share: Result<Option<Arc<Share>>, Error>,
}

pub(super) struct Reader {
    half: ReadHalf,
    buffer: BytesMut,
    limit: usize,
    budget: Option<Arc<Budget>>,
    /// The share of the frame that is being read.
    share: Option<Arc<Share>>,
    heard: Arc<Heard>,
    /// Timeout of a frame, from its header to its end.
    timeout: Duration,
    /// Deadline of the frame that is being read.
    due: Option<Instant>,
}

impl Reader {
    /// `already_read` arrived with the negotiation. Received bytes are recorded in `heard`: a large frame takes time
    /// while its sender is alive.
    pub(super) fn new(half: ReadHalf, already_read: &[u8], config: &Config, heard: Arc<Heard>) -> Self {
        let mut buffer = BytesMut::with_capacity(CHUNK.max(already_read.len()));
        buffer.extend_from_slice(already_read);
        let limit = config.max_body_bytes.get() as usize;
        let timeout = config.body_timeout;
        Self { half, buffer, limit, budget: None, share: None, heard, timeout, due: None }
    }

    /// Charges bodies to this budget as soon as their headers arrived.
    pub(super) fn within(mut self, budget: Arc<Budget>) -> Self {
        self.budget = Some(budget);
        self
    }

    /// The next frame; `None` if the peer closed the connection between two frames.
    pub(super) async fn next(&mut self) -> io::Result<Option<Incoming>> {
        loop {
            let missing = match self.peek()? {
                Some(header) => {
                    let whole = LENGTH + header.body as usize;
                    // Other frames are small and handled at once. A lost order would make the client wait.
                    let charged = header.kind == Kind::Request || whole > LEAST_ROOM;
                    if charged && let Err(refusal) = self.count(whole) {
                        self.pass_over(whole).await?;
                        return Ok(Some(Incoming { header, body: Bytes::new(), share: Err(refusal) }));
                    }
                    if self.buffer.len() >= whole {
                        self.due = None;
                        let body = self.buffer.split_to(whole).freeze().slice(LENGTH..);
                        return Ok(Some(Incoming { header, body, share: Ok(self.share.take()) }));
                    }
                    self.due.get_or_insert_with(|| Instant::now() + self.timeout);
                    whole - self.buffer.len()
                }
                None => LENGTH - self.buffer.len(),
            };
            self.make_room(missing);
            if self.read().await? == 0 {
                let clean = self.buffer.is_empty();
                return if clean { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        }
    }

    /// Reads available bytes, within the timeout of the frame.
    async fn read(&mut self) -> io::Result<usize> {
        let read = self.half.read(&mut self.buffer);
        let read = match self.due {
            None => read.await?,
            Some(due) => tokio::time::timeout_at(due, read).await.map_err(|_| {
                let message = format!("a frame did not arrive within {:?}", self.timeout);
                io::Error::new(io::ErrorKind::TimedOut, message)
            })??,
        };
        self.heard.note();
        Ok(read)
    }

    /// Charges the frame at the front, once.
    fn count(&mut self, bytes: usize) -> Result<(), Error> {
        if let (Some(budget), None) = (&self.budget, &self.share) {
            let share = budget.share();
            share.grow(bytes)?;
            self.share = Some(share);
        }
        Ok(())
    }

    async fn pass_over(&mut self, mut missing: usize) -> io::Result<()> {
        self.due.get_or_insert_with(|| Instant::now() + self.timeout);
        loop {
            let here = missing.min(self.buffer.len());
            self.buffer.advance(here);
            missing -= here;
            if missing == 0 {
                self.due = None;
                return Ok(());
            }
            self.make_room(LEAST_ROOM);
            if self.read().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn peek(&self) -> io::Result<Option<Header>> {
        let Some(bytes) = self.buffer.first_chunk() else {
            return Ok(None);
        };
        let header = Header::from_bytes(bytes)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the peer sent an invalid frame"))?;
        if header.body as usize > self.limit {
            let message =
                format!("the peer sent a frame of {} bytes, over the limit of {}", header.body, self.limit);
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        Ok(Some(header))
    }

    fn make_room(&mut self, missing: usize) {
        if self.buffer.capacity() - self.buffer.len() < missing.max(LEAST_ROOM) {
            self.buffer.reserve(missing.max(CHUNK - self.buffer.len().min(CHUNK)));
        }
    }
}

/// Counts what arrives from the peer.
#[derive(Debug, Default)]
pub(super) struct Heard(AtomicU64);

impl Heard {
    pub(super) fn note(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Returns when the peer did not respond to a ping in time.
pub(super) async fn keep_alive(heard: &Heard, writer: &Writer, config: &Config) {
    loop {
        let before = heard.count();
        tokio::time::sleep(config.ping_interval).await;
        if heard.count() != before {
            continue;
        }
        if writer.send(Frame::bare(Kind::Ping, 0), Urgency::Now).is_err() {
            return;
        }
        let asked = writer.accepted();
        loop {
            let written = writer.written();
            tokio::time::sleep(config.ping_timeout).await;
            if heard.count() != before {
                break;
            }
            if written >= asked || writer.written() == written {
                return;
            }
        }
    }
}
