//! Outgoing frames, from many tasks to one socket.
//!
//! Waking a writer task for every frame costs more than the write itself. A task that sends while the socket is idle
//! therefore writes immediately; tasks that send meanwhile leave their frames to it. With many requests in progress
//! batching is cheaper: frames wait for the connection's task, which writes all of them with one system call. The
//! sender chooses with [`Urgency`].

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::{Buf, Bytes};
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use tokio::sync::Notify;

use super::frame::Frame;
use super::socket::WriteHalf;

/// When to write a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// Now, from this thread, unless another thread is writing.
    Now,
    /// In a batch.
    Together,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Too many bytes are waiting.
    Full,
    Closed,
}

pub(super) struct Writer {
    half: WriteHalf,
    queue: Mutex<Queue>,
    limit: usize,
    /// Wakes the connection's task: there is something to write.
    work: Notify,
    /// Wakes tasks that wait until the queue shrinks.
    room: Notify,
}

#[derive(Default)]
struct Queue {
    chunks: VecDeque<Bytes>,
    /// Bytes accepted and not yet written.
    bytes: usize,
    accepted: u64,
    /// A thread is writing, and will check the queue again when done.
    busy: bool,
    /// The socket is full: only the connection's task, which waits for it, continues.
    stalled: bool,
    closed: bool,
}

impl Queue {
    /// Stalled bytes have not left, though the socket may have accepted all of them.
    fn has_shrunk_to(&self, bytes: usize) -> bool {
        self.closed || (self.bytes <= bytes && !(bytes == 0 && self.stalled))
    }
}

enum Progress {
    /// Everything is written, or another thread is writing it.
    Done,
    /// The socket is full.
    Stalled,
}

/// Slices per system call.
const SLICES: usize = 64;

impl Writer {
    pub(super) fn new(half: WriteHalf, limit: usize) -> Self {
        Self { half, queue: Mutex::default(), limit, work: Notify::new(), room: Notify::new() }
    }

    /// Sends a frame unless too many bytes are waiting.
    pub(super) fn offer(&self, frame: Frame, urgency: Urgency) -> Result<(), Refused> {
        if self.queue.lock().bytes >= self.limit {
            return Err(Refused::Full);
        }
        self.send(frame, urgency)
    }

    /// Sends a frame whose number is limited elsewhere.
    pub(super) fn send(&self, frame: Frame, urgency: Urgency) -> Result<(), Refused> {
        let mut queue = self.queue.lock();
        if queue.closed {
            return Err(Refused::Closed);
        }
        queue.bytes += frame.len();
        queue.accepted += frame.len() as u64;
        queue.chunks.extend(frame.chunks);
        if queue.busy || queue.stalled {
            return Ok(());
        }
        match urgency {
            Urgency::Together => self.work.notify_one(),
            // The connection's task meets the error at its next write or read, and ends the connection.
            Urgency::Now => match self.drain(queue) {
                Ok(Progress::Done) => {}
                Ok(Progress::Stalled) | Err(_) => self.work.notify_one(),
            },
        }
        Ok(())
    }

    /// Writes queued frames; the connection's task runs this until the connection ends.
    pub(super) async fn run(&self) -> io::Result<()> {
        loop {
            self.work.notified().await;
            // Ready tasks run first: their frames leave with the same system call.
            tokio::task::yield_now().await;
            while let Progress::Stalled = self.drain(self.queue.lock())? {
                self.half.writable().await?;
            }
        }
    }

    /// Waits until at most half of the limit is queued.
    pub(super) async fn room(&self) {
        self.shrunk_to(self.limit / 2).await;
    }

    pub(super) async fn flushed(&self) {
        self.shrunk_to(0).await;
    }

    pub(super) fn accepted(&self) -> u64 {
        self.queue.lock().accepted
    }

    pub(super) fn written(&self) -> u64 {
        let queue = self.queue.lock();
        queue.accepted - queue.bytes as u64
    }

    /// Whether the server should stop reading requests.
    pub(super) fn is_over_limit(&self) -> bool {
        self.queue.lock().bytes >= self.limit
    }

    /// Accepts no more frames and drops those that wait.
    pub(super) fn close(&self) {
        let mut queue = self.queue.lock();
        queue.closed = true;
        queue.chunks.clear();
        queue.bytes = 0;
        drop(queue);
        self.half.shutdown();
        self.room.notify_waiters();
    }

    async fn shrunk_to(&self, bytes: usize) {
        loop {
            let shrunk = self.room.notified();
            if self.queue.lock().has_shrunk_to(bytes) {
                return;
            }
            shrunk.await;
        }
    }

    /// Takes the lock that its caller looked with: while the connection's task waits for a full socket, no other may write.
    fn drain<'a>(&'a self, mut queue: MutexGuard<'a, Queue>) -> io::Result<Progress> {
        if queue.busy {
            return Ok(Progress::Done);
        }
        queue.busy = true;
        let mut batch = VecDeque::new();
        loop {
            std::mem::swap(&mut batch, &mut queue.chunks);
            // After a stall the socket may hold accepted bytes that are not sent.
            if batch.is_empty() && !queue.stalled {
                queue.busy = false;
                drop(queue);
                self.room.notify_waiters();
                return Ok(Progress::Done);
            }
            drop(queue);

            let (written, result) = write_all(&self.half, &mut batch);
            queue = self.queue.lock();
            queue.bytes = queue.bytes.saturating_sub(written);
            if let Err(error) = result {
                queue.busy = false;
                queue.stalled = true;
                if !queue.closed {
                    batch.append(&mut queue.chunks);
                    queue.chunks = batch;
                }
                drop(queue);
                self.room.notify_waiters();
                let full = error.kind() == io::ErrorKind::WouldBlock;
                return if full { Ok(Progress::Stalled) } else { Err(error) };
            }
            queue.stalled = false;
        }
    }
}

/// Writes until nothing is left or the socket is full. Returns the bytes written, and why it stopped.
fn write_all(half: &WriteHalf, batch: &mut VecDeque<Bytes>) -> (usize, io::Result<()>) {
    let mut written = 0;
    while !batch.is_empty() {
        let result = {
            let slices: SmallVec<[IoSlice<'_>; SLICES]> =
                batch.iter().take(SLICES).map(|chunk| IoSlice::new(chunk)).collect();
            half.try_write(&slices)
        };
        match result {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(count) => {
                written += count;
                advance(batch, count);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, half.try_flush())
}

fn advance(batch: &mut VecDeque<Bytes>, mut count: usize) {
    while let Some(chunk) = batch.front_mut() {
        if count < chunk.len() {
            chunk.advance(count);
            return;
        }
        count -= chunk.len();
        batch.pop_front();
    }
}
