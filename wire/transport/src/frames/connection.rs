//! The client's end of a connection: many concurrent requests, answered in any order.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use parm_grants::Order;
use parm_protocol::client::CallContext;
use parm_protocol::fleet::{News, Watcher};
use parm_protocol::{Error, InferRequest, InferResponse};
use slab::Slab;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::codec::{self, Envelope};
use super::frame::{self, Frame, Kind};
use super::reader::{Heard, Incoming, Reader, keep_alive};
use super::writer::{Refused, Urgency, Writer};
use super::{Config, Negotiated, Socket};
use crate::client::by_deadline;

/// With more requests in progress than this, frames are sent in batches instead of at once.
const DIRECT: usize = 2;

/// A negotiated connection. Dropping the last handle closes it.
pub(crate) struct Connection {
    link: Arc<Link>,
    task: tokio::task::AbortHandle,
}

/// State shared by the connection's task and the callers.
struct Link {
    peer: String,
    writer: Writer,
    calls: Mutex<Calls>,
    limits: Negotiated,
    /// The receiver of news until the connection has ended, and the connection's number there.
    watcher: Mutex<Option<Watch>>,
}

/// A receiver of news, and the number of the connection that reports them.
pub(crate) type Watch = (u64, Arc<dyn Watcher>);

#[derive(Default)]
struct Calls {
    waiting: Slab<Waiting>,
    /// Distinguishes a late answer from the answer to the call that now has its slot.
    sequence: u32,
    /// Calls that have begun and are not sent yet.
    unsent: usize,
    /// The server accepts no more requests here.
    draining: bool,
    ended: Option<Error>,
}

struct Waiting {
    sequence: u32,
    answer: oneshot::Sender<Result<Incoming, Error>>,
}

impl Connection {
    /// Takes over a stream after the negotiation of frames. `already_read` arrived with the negotiation, which also
    /// announced the server's `limits`. The watcher receives what the server says about grants, in the connection's task: it may say
    /// something at once. Must be called within a tokio runtime.
    pub(crate) fn new(
        peer: String,
        socket: Socket,
        already_read: &[u8],
        limits: Negotiated,
        config: &Config,
        watcher: Option<Watch>,
    ) -> Self {
        let (read, write) = socket.into_split();
        let limits = Negotiated {
            max_body_bytes: limits.max_body_bytes.min(config.max_body_bytes.get()),
            max_in_flight: limits.max_in_flight.min(config.max_in_flight),
            ..limits
        };
        let writer = Writer::new(write, config.max_queued_bytes.get());
        let watcher = Mutex::new(watcher.filter(|_| limits.grants));
        let link = Arc::new(Link { peer, writer, calls: Mutex::default(), limits, watcher });
        let heard = Arc::new(Heard::default());
        let reader = Reader::new(read, already_read, config, Arc::clone(&heard));
        let task = tokio::spawn(run(Arc::clone(&link), reader, heard, config.clone())).abort_handle();
        Self { link, task }
    }

    /// Tells the server what this client would start there.
    pub(crate) fn tell(&self, order: Order) {
        if self.link.limits.grants {
            // A server that reads so little that this is refused gets no requests either.
            let _ = self.link.writer.offer(frame::order(order), Urgency::Now);
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        let calls = self.link.calls.lock();
        calls.ended.is_none() && !calls.draining
    }

    /// Takes a slot for a request. Fails if the connection ended or the server drains: nothing was sent then, so
    /// another connection may be tried.
    pub(crate) fn begin(&self) -> Result<Call<'_>, Error> {
        self.link.begin()
    }

    /// Sends a request and waits for its answer. Dropping the future cancels the request at the server.
    pub(crate) async fn infer(
        &self,
        request: &InferRequest,
        context: &CallContext,
    ) -> Result<InferResponse, Error> {
        self.begin()?.infer(request, context).await
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
        self.link.writer.close();
    }
}

/// A slot for one request. Dropping it forgets the request, and cancels it at the server if it is still running.
pub(crate) struct Call<'a> {
    link: &'a Link,
    id: u64,
    urgency: Urgency,
    stage: Stage,
    answer: oneshot::Receiver<Result<Incoming, Error>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Unsent,
    Sent,
    Answered,
}

impl Call<'_> {
    /// Sends the request and waits for its answer. Dropping the future cancels the request at the server.
    pub(crate) async fn infer(
        self,
        request: &InferRequest,
        context: &CallContext,
    ) -> Result<InferResponse, Error> {
        by_deadline(context.deadline, self.exchange(request, context)).await
    }

    async fn exchange(
        mut self,
        request: &InferRequest,
        context: &CallContext,
    ) -> Result<InferResponse, Error> {
        let link = self.link;
        let remaining = context.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let (traceparent, share) = (context.traceparent.as_deref(), context.share.as_deref());
        let envelope = Envelope { remaining, traceparent, share };
        let frame = codec::encode_request(self.id, request, envelope, link.limits.max_body_bytes as usize)?;
        link.writer.offer(frame, self.urgency).map_err(|refused| link.refusal(refused))?;
        self.stage = Stage::Sent;
        link.count_sent();
        let incoming = (&mut self.answer).await.unwrap_or_else(|_| Err(link.gone()));
        self.stage = Stage::Answered;
        let incoming = incoming?;
        let decoded = match incoming.header.kind {
            Kind::Response => codec::decode_response(&incoming.body).map(Ok),
            _ => codec::decode_failure(&incoming.body).map(Err),
        };
        decoded.unwrap_or_else(|unreadable| Err(link.transport(format!("unreadable answer: {unreadable}"))))
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        match self.stage {
            Stage::Answered => {}
            Stage::Unsent => {
                self.link.take(self.id);
                self.link.count_sent();
            }
            Stage::Sent => {
                if self.link.take(self.id).is_none() {
                    return;
                }
                // Rejected only if the connection ended, and every request with it.
                let _ = self.link.writer.send(Frame::bare(Kind::Cancel, self.id), Urgency::Together);
            }
        }
    }
}

impl Link {
    fn begin(&self) -> Result<Call<'_>, Error> {
        let mut calls = self.calls.lock();
        if let Some(error) = &calls.ended {
            return Err(error.clone());
        }
        if calls.draining {
            return Err(self.transport("the server is draining"));
        }
        let in_flight = calls.waiting.len();
        if in_flight >= self.limits.max_in_flight.get() as usize {
            return Err(Error::overloaded(format!(
                "{in_flight} requests are in progress at {}, its limit",
                self.peer
            )));
        }
        calls.unsent += 1;
        calls.sequence = calls.sequence.wrapping_add(1);
        let sequence = calls.sequence;
        let (sender, receiver) = oneshot::channel();
        let place = calls.waiting.insert(Waiting { sequence, answer: sender });
        let id = u64::from(sequence) << 32 | place as u64;
        let urgency = if in_flight < DIRECT { Urgency::Now } else { Urgency::Together };
        Ok(Call { link: self, id, urgency, stage: Stage::Unsent, answer: receiver })
    }

    /// Counts down the calls that have begun and are not sent. The last one answers a draining server's goodbye.
    fn count_sent(&self) {
        let mut calls = self.calls.lock();
        calls.unsent -= 1;
        let last = calls.draining && calls.unsent == 0;
        drop(calls);
        if last {
            self.say_goodbye();
        }
    }

    /// The server accepts no more requests: no call begins from here on. When all calls that have begun are sent, the
    /// client says goodbye.
    fn drain(&self) {
        let mut calls = self.calls.lock();
        let first = !std::mem::replace(&mut calls.draining, true);
        let all_sent = calls.unsent == 0;
        drop(calls);
        self.news(News::Ended);
        if first && all_sent {
            self.say_goodbye();
        }
    }

    fn news(&self, news: News) {
        let mut watch = self.watcher.lock();
        let receiver = if news == News::Ended { watch.take() } else { watch.clone() };
        drop(watch);
        if let Some((number, watcher)) = receiver {
            watcher.heard(number, news);
        }
    }

    fn say_goodbye(&self) {
        let _ = self.writer.send(Frame::bare(Kind::GoAway, 0), Urgency::Now);
    }

    fn take(&self, id: u64) -> Option<Waiting> {
        let place = (id & u64::from(u32::MAX)) as usize;
        let mut calls = self.calls.lock();
        let found = calls.waiting.get(place).is_some_and(|waiting| u64::from(waiting.sequence) == id >> 32);
        found.then(|| calls.waiting.remove(place))
    }

    /// Passes frames to their calls until the stream ends.
    async fn read(&self, reader: &mut Reader) -> io::Result<()> {
        self.limits.slots.into_iter().for_each(|slots| self.news(News::Slots(slots)));
        while let Some(incoming) = reader.next().await? {
            match incoming.header.kind {
                Kind::Response | Kind::Failure => {
                    // The call may have been cancelled meanwhile.
                    if let Some(waiting) = self.take(incoming.header.id) {
                        let _ = waiting.answer.send(Ok(incoming));
                    }
                }
                Kind::Ping => {
                    let _ = self.writer.offer(Frame::bare(Kind::Pong, 0), Urgency::Now);
                }
                Kind::Pong => {}
                Kind::GoAway => self.drain(),
                Kind::Granted | Kind::Recalled | Kind::Shared => {
                    let told = frame::read_told(&incoming.header);
                    told.into_iter().for_each(|told| self.news(News::Told(told)));
                }
                Kind::Request | Kind::Cancel | Kind::Ask | Kind::Return => {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "a server sent a request"));
                }
            }
        }
        Ok(())
    }

    fn refusal(&self, refused: Refused) -> Error {
        match refused {
            Refused::Full => {
                Error::overloaded(format!("too many bytes are waiting to be sent to {}", self.peer))
            }
            Refused::Closed => self.gone(),
        }
    }

    fn gone(&self) -> Error {
        let ended = self.calls.lock().ended.clone();
        ended.unwrap_or_else(|| self.transport("it was closed"))
    }

    fn transport(&self, message: impl Into<String>) -> Error {
        Error::Transport { peer: self.peer.clone(), message: message.into() }
    }
}

async fn run(link: Arc<Link>, mut reader: Reader, heard: Arc<Heard>, config: Config) {
    let why = tokio::select! {
        biased;
        read = link.read(&mut reader) => match read {
            Ok(()) => "closed by the server".to_owned(),
            Err(error) => error.to_string(),
        },
        written = link.writer.run() => match written {
            Ok(()) => "closed".to_owned(),
            Err(error) => error.to_string(),
        },
        () = keep_alive(&heard, &link.writer, &config) => {
            format!("no sign of life in {:?} after a ping", config.ping_timeout)
        }
    };
    link.writer.close();
    let error = link.transport(why);
    let orphans = {
        let mut calls = link.calls.lock();
        calls.ended = Some(error.clone());
        std::mem::take(&mut calls.waiting)
    };
    // Before the calls fail: the callers must not retry on this connection.
    link.news(News::Ended);
    for (_, waiting) in orphans {
        let _ = waiting.answer.send(Err(error.clone()));
    }
}
