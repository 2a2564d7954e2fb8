//! Bodies that requests leave unread: the rest is read and dropped before the answer ends the request.
//!
//! *Problem.* A client that is still sending when its request ends often loses the answer. Over HTTP/1.1 the connection
//! closes, and its end discards bytes that the client has not read. Over HTTP/2 the stream is reset, and several clients
//! report the reset in place of the answer.
//!
//! *Choice.* The answer waits for the rest of the body. The wait ends when the client pauses, because it may wait for the
//! answer, and at the limits of bodies. A client that expects `100 Continue` and did not receive it sends no body.
//!
//! *Rejected.* The head at once and the end later: curl stops sending at a head with an error, so it would wait for that
//! end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

/// Pause after which a client may be waiting for its answer. Packets that are lost once arrive sooner.
const PAUSE: Duration = Duration::from_secs(1);

/// The body of a request, whose rest returns to the listener when it is dropped.
#[derive(Debug)]
pub struct Lent<B> {
    body: Option<B>,
    /// Whether the client sends nothing before the first read.
    waits: bool,
    rest: Arc<Mutex<Option<B>>>,
}

pub(crate) struct Unfinished<B> {
    rest: Arc<Mutex<Option<B>>>,
    arrived: Instant,
}

impl<B: Body<Data = Bytes> + Unpin> Unfinished<B> {
    pub(crate) fn lend(request: Request<B>) -> (Request<Lent<B>>, Self) {
        let rest = Arc::new(Mutex::new(None));
        let waits = request.headers().contains_key(header::EXPECT);
        let lent = request.map(|body| Lent { body: Some(body), waits, rest: rest.clone() });
        (lent, Self { rest, arrived: Instant::now() })
    }

    /// Whether a rest can be read of at most so many bytes, as far as its length is known.
    pub(crate) fn is_left(&self, most: usize) -> bool {
        let left = |body: &B| !body.is_end_stream() && body.size_hint().lower() <= most as u64;
        self.rest.lock().as_ref().is_some_and(left)
    }

    /// Reads the rest and drops it: `most` bytes at most, until `within` after the request arrived.
    pub(crate) async fn pass_over(self, most: usize, within: Duration) {
        let Some(mut body) = self.rest.lock().take() else { return };
        let passing = async {
            let mut passed = 0;
            while passed <= most
                && let Ok(Some(Ok(frame))) = timeout(PAUSE, body.frame()).await
            {
                passed += frame.data_ref().map_or(0, Bytes::len);
            }
        };
        // A client that takes longer may lose the answer.
        let _ = timeout(within.saturating_sub(self.arrived.elapsed()), passing).await;
    }
}

impl<B> Drop for Lent<B> {
    fn drop(&mut self) {
        if !self.waits {
            *self.rest.lock() = self.body.take();
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Lent<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        self.waits = false;
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = Pin::new(body).poll_frame(cx);
        if matches!(frame, Poll::Ready(None | Some(Err(_)))) {
            self.body = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}
