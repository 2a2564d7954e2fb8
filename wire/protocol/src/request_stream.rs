//! The request of a call whose client sends messages over time.
//!
//! Problem: a copy of a call at another server needs everything that the client has sent, and a client may send without
//! end.
//!
//! Choice: everything is held from the first message on, and each server reads it from its beginning. Copies end at a bound,
//! or once the answer of one server has begun; pieces that were sent are then dropped. The client is read no faster than the
//! fastest server reads. A server that is further behind than the bound loses the call.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tokio::time::Instant;

/// Bytes after the first message up to which a call may have copies.
pub const LARGEST_COPIED: usize = 1 << 20;

/// Bytes that the client may send before the fastest server has read them.
const AHEAD: usize = 256 << 10;

/// An unfinished request: all pieces that the client has sent, shared by the servers that get it.
pub struct RequestStream(Mutex<StreamState>);

struct StreamState {
    pieces: VecDeque<Bytes>,
    /// Pieces before these, which all readers have.
    dropped: usize,
    bytes: usize,
    /// Bytes of the first piece, and those that may be held.
    first: usize,
    most: usize,
    /// Whether nothing was dropped, and a further reader may come.
    copied: bool,
    ended: Option<Instant>,
    readers: Vec<ReaderPlace>,
    /// Readers that were too far behind.
    lost: Vec<usize>,
    next: usize,
    /// The task that reads the client.
    filler: Option<Waker>,
}

struct ReaderPlace {
    id: usize,
    /// Its next piece, and the bytes from there on.
    piece: usize,
    unread: usize,
    /// Whether it gets nothing more, because another server has answered.
    parked: bool,
    waker: Option<Waker>,
    /// The task that waits for its answer.
    watcher: Option<Waker>,
}

/// The rest of a request that its reader does not get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Withdrawn;

/// Reads a request from its beginning, for one server.
pub struct StreamReader(Arc<RequestStream>, usize);

/// Ends its reader when it is dropped.
pub struct ReaderHandle(Arc<RequestStream>, usize);

impl RequestStream {
    /// A request that began with this message.
    pub fn new(first: Bytes) -> Arc<Self> {
        let most = first.len() + LARGEST_COPIED;
        Arc::new(Self(Mutex::new(StreamState {
            bytes: first.len(),
            first: first.len(),
            pieces: VecDeque::from([first]),
            dropped: 0,
            most,
            copied: true,
            ended: None,
            readers: Vec::new(),
            lost: Vec::new(),
            next: 0,
            filler: None,
        })))
    }

    fn state(&self) -> MutexGuard<'_, StreamState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A reader of everything from the beginning; `None` if copies have ended.
    pub fn reader(self: &Arc<Self>) -> Option<(StreamReader, ReaderHandle)> {
        let mut state = self.state();
        if !state.copied {
            return None;
        }
        let id = state.next;
        state.next += 1;
        let unread = state.bytes;
        let place = ReaderPlace { id, piece: 0, unread, parked: false, waker: None, watcher: None };
        state.readers.push(place);
        Some((StreamReader(self.clone(), id), ReaderHandle(self.clone(), id)))
    }

    /// Whether another server can still get all of it.
    pub fn is_copied(&self) -> bool {
        self.state().copied
    }

    /// Bytes that are held.
    pub fn held(&self) -> usize {
        self.state().bytes
    }

    /// When the client ended it, if it has.
    pub fn ended(&self) -> Option<Instant> {
        self.state().ended
    }

    /// Ready once a server has read most pieces of the client.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        let ahead = match state.active().map(|place| place.unread).min() {
            Some(unread) => unread,
            None if state.copied => state.bytes - state.first,
            None => usize::MAX,
        };
        if ahead < AHEAD {
            return Poll::Ready(());
        }
        state.filler = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Adds what the client sent.
    pub fn push(&self, piece: Bytes) {
        let mut state = self.state();
        state.bytes += piece.len();
        for place in &mut state.readers {
            place.unread += piece.len();
            place.wake();
        }
        state.pieces.push_back(piece);
        state.copied &= state.bytes <= state.most;
        state.trim();
    }

    /// Ends it, as the client did.
    pub fn end(&self) {
        let mut state = self.state();
        state.ended = Some(Instant::now());
        state.readers.iter_mut().for_each(ReaderPlace::wake);
    }

    fn leave(&self, id: usize) {
        let mut state = self.state();
        let Some(place) = state.readers.iter().position(|place| place.id == id) else { return };
        state.readers.swap_remove(place).wake();
        state.trim();
    }
}

impl StreamState {
    fn active(&self) -> impl Iterator<Item = &ReaderPlace> {
        self.readers.iter().filter(|place| !place.parked)
    }

    /// Drops what all readers have, and readers for which too much would be held.
    fn trim(&mut self) {
        if !self.copied {
            loop {
                let end = self.dropped + self.pieces.len();
                let needed = self.active().map(|place| place.piece).min().unwrap_or(end);
                while self.dropped < needed {
                    let Some(piece) = self.pieces.pop_front() else { break };
                    (self.bytes, self.dropped) = (self.bytes - piece.len(), self.dropped + 1);
                }
                if self.bytes <= self.most || self.active().count() < 2 {
                    break;
                }
                let slowest = self.readers.iter().position(|place| !place.parked && place.piece == needed);
                if let Some(slowest) = slowest {
                    let mut place = self.readers.swap_remove(slowest);
                    self.lost.push(place.id);
                    place.wake();
                }
            }
        }
        if let Some(filler) = self.filler.take() {
            filler.wake();
        }
    }
}

impl ReaderPlace {
    fn wake(&mut self) {
        self.waker.take().into_iter().chain(self.watcher.take()).for_each(Waker::wake);
    }
}

impl StreamReader {
    /// The next piece; `None` at the end.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Withdrawn>>> {
        let mut state = self.0.state();
        let Some(at) = state.readers.iter().position(|place| place.id == self.1) else {
            return Poll::Ready(Some(Err(Withdrawn)));
        };
        let (piece, parked) = (state.readers[at].piece, state.readers[at].parked);
        let found = state.pieces.get(piece - state.dropped.min(piece)).filter(|_| !parked).cloned();
        let ended = state.ended.is_some() && !parked;
        let place = &mut state.readers[at];
        match found {
            Some(bytes) => {
                place.piece += 1;
                place.unread -= bytes.len();
                state.trim();
                Poll::Ready(Some(Ok(bytes)))
            }
            None if ended => Poll::Ready(None),
            None => {
                place.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        self.0.leave(self.1);
    }
}

impl ReaderHandle {
    /// Makes its reader the only one: its server's answer is the client's.
    pub fn choose(&self) {
        let mut state = self.0.state();
        state.copied = false;
        for place in state.readers.iter_mut().filter(|place| place.id != self.1) {
            place.parked = true;
        }
        state.trim();
    }

    /// When the client ended its request, if it has.
    pub fn ended(&self) -> Option<Instant> {
        self.0.ended()
    }

    /// Ready once its reader was too far behind and gets nothing more.
    pub fn poll_lost(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.state();
        if state.lost.contains(&self.1) {
            return Poll::Ready(());
        }
        if let Some(place) = state.readers.iter_mut().find(|place| place.id == self.1) {
            place.watcher = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for ReaderHandle {
    fn drop(&mut self) {
        self.0.leave(self.1);
    }
}

impl PartialEq for RequestStream {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl fmt::Debug for RequestStream {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} bytes and more", self.held())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn polled(reader: &mut StreamReader) -> Poll<Option<Result<Bytes, Withdrawn>>> {
        reader.poll_next(&mut Context::from_waker(Waker::noop()))
    }

    fn piece(bytes: impl Into<Bytes>) -> Poll<Option<Result<Bytes, Withdrawn>>> {
        Poll::Ready(Some(Ok(bytes.into())))
    }

    fn has_room(stream: &RequestStream) -> bool {
        stream.poll_room(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    fn large() -> Bytes {
        vec![7; AHEAD].into()
    }

    #[test]
    fn each_reader_gets_everything() {
        let stream = RequestStream::new("a".into());
        let (mut first, _first) = stream.reader().unwrap();
        assert_eq!((polled(&mut first), polled(&mut first)), (piece("a"), Poll::Pending));
        stream.push("b".into());
        let (mut second, _second) = stream.reader().unwrap();
        stream.end();
        for reader in [&mut first, &mut second] {
            assert_eq!(polled(reader), if reader.1 == 0 { piece("b") } else { piece("a") });
        }
        assert_eq!((polled(&mut second), polled(&mut second)), (piece("b"), Poll::Ready(None)));
        assert_eq!(polled(&mut first), Poll::Ready(None));
        assert!(stream.is_copied() && stream.held() == 2);
    }

    #[test]
    fn chosen_reader_goes_on_alone() {
        let stream = RequestStream::new("a".into());
        let ((mut first, _first), (mut second, chosen)) =
            (stream.reader().unwrap(), stream.reader().unwrap());
        assert_eq!(polled(&mut second), piece("a"));
        chosen.choose();
        assert_eq!(stream.held(), 0, "it was sent");
        stream.push("b".into());
        stream.end();
        assert_eq!((polled(&mut first), polled(&mut second)), (Poll::Pending, piece("b")));
        assert_eq!((polled(&mut first), polled(&mut second)), (Poll::Pending, Poll::Ready(None)));
        assert!(stream.reader().is_none());
    }

    #[test]
    fn client_is_read_as_fast_as_the_fastest_server() {
        let stream = RequestStream::new(large());
        assert!(has_room(&stream), "the first message was read anyway");
        stream.push(large());
        assert!(!has_room(&stream), "no server has anything");
        let (mut fast, _fast) = stream.reader().unwrap();
        let (_slow, _handle) = stream.reader().unwrap();
        assert!(!has_room(&stream));
        assert_eq!((polled(&mut fast), has_room(&stream)), (piece(large()), false));
        assert_eq!((polled(&mut fast), has_room(&stream)), (piece(large()), true));
    }

    #[test]
    fn slow_reader_loses_a_long_request_that_another_has_read() {
        let stream = RequestStream::new("a".into());
        let ((mut fast, ahead), (mut slow, behind)) = (stream.reader().unwrap(), stream.reader().unwrap());
        let is_lost = |of: &ReaderHandle| of.poll_lost(&mut Context::from_waker(Waker::noop())).is_ready();
        assert_eq!((polled(&mut fast), polled(&mut slow)), (piece("a"), piece("a")));
        assert!(!is_lost(&behind));
        for count in 0..100 {
            stream.push(large());
            assert_eq!(polled(&mut fast), piece(large()));
            assert!(stream.held() <= LARGEST_COPIED + 1 + AHEAD, "{count}: {}", stream.held());
        }
        assert!(stream.reader().is_none() && !stream.is_copied());
        assert_eq!(polled(&mut slow), Poll::Ready(Some(Err(Withdrawn))));
        assert_eq!((is_lost(&behind), is_lost(&ahead)), (true, false));
        drop(fast);
        assert!(!is_lost(&ahead), "it had everything");
    }

    #[test]
    fn last_reader_keeps_a_long_request() {
        let stream = RequestStream::new("a".into());
        let (mut reader, handle) = stream.reader().unwrap();
        (0..8).for_each(|_| stream.push(large()));
        assert_eq!(polled(&mut reader), piece("a"));
        (0..8).for_each(|_| assert_eq!(polled(&mut reader), piece(large())));
        assert_eq!(stream.held(), 0);
        drop(handle);
        assert_eq!(polled(&mut reader), Poll::Ready(Some(Err(Withdrawn))), "it ends with its handle");
        assert!(!has_room(&stream), "no server is left");
    }
}
