//! The server's end of a connection.
//!
//! A request is polled once by the task that read it: a service that answers immediately, or only forwards the request,
//! costs no task switch. An unfinished request becomes its own task, so that requests do not block each other.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use parm_grants::Told;
use parm_protocol::fleet::{self, Frontend, Giver, Mailbox};
use parm_protocol::{Code, Context, Error, InferResponse, InferenceService, Transport, bounds};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::frame::{self, Frame, Kind};
use super::reader::{Heard, Incoming, Reader, keep_alive};
use super::writer::{Urgency, Writer};
use super::{Limits, Socket, codec};
use crate::budget::{Share, Unread};
use crate::keys::{Access, Caller};
use crate::listening::after;

/// With more requests in progress than this, answers are sent in batches instead of at once.
const DIRECT: usize = 2;

/// Serves one negotiated connection until the peer closes it, it fails, or `drain` is cancelled and every accepted
/// request is answered. Dropping the future drops every request in progress.
pub(crate) async fn serve<S: InferenceService>(
    socket: Socket,
    already_read: &[u8],
    service: Arc<S>,
    limits: &Limits,
    drain: CancellationToken,
) -> io::Result<()> {
    let Limits { config, budget, caller, age, grants } = limits;
    let (read, write) = socket.into_split();
    let heard = Arc::new(Heard::default());
    let mut reader = Reader::new(read, already_read, config, Arc::clone(&heard)).within(budget.clone());
    let serving = Arc::new(Serving {
        service,
        caller: caller.clone(),
        writer: Writer::new(write, config.max_queued_bytes.get()),
        limit: config.max_in_flight.get() as usize,
        max_body: config.max_body_bytes.get() as usize,
        calls: Mutex::default(),
        unread: Arc::default(),
        peer_is_done: Notify::new(),
        stale: Notify::new(),
        idle: Notify::new(),
        party: OnceLock::new(),
    });
    if let Some(giver) = serving.service.giver().filter(|_| *grants) {
        let frontend = giver.join(Box::new(Post(Arc::downgrade(&serving))));
        let _ = serving.party.set(Party { giver, frontend });
    }
    let end = Ending(Arc::clone(&serving));
    tokio::select! {
        biased;
        read = serving.read(&mut reader) => read?,
        written = end.0.writer.run() => written?,
        () = keep_alive(&heard, &end.0.writer, config) => {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the client gave no sign of life after a ping"));
        }
        () = end.0.unread.overdue(config.answer_timeout) => {
            let message = "the client did not take its answer within server.answer_timeout_ms";
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
        () = end.0.drained(drain, *age, config.ping_timeout) => {}
    }
    Ok(())
}

struct Serving<S> {
    service: Arc<S>,
    caller: Caller,
    writer: Writer,
    limit: usize,
    max_body: usize,
    calls: Mutex<Underway>,
    unread: Arc<Unread>,
    /// The client announced that it sends no more requests.
    peer_is_done: Notify,
    /// The connection must end, so that its client opens another.
    stale: Notify,
    /// The last request in progress was answered.
    idle: Notify,
    /// The client as a frontend that needs grants.
    party: OnceLock<Party>,
}

struct Party {
    giver: Arc<dyn Giver>,
    frontend: Frontend,
}

/// Delivers messages to such a frontend. The connection may be gone by now.
struct Post<S>(Weak<Serving<S>>);

impl<S: InferenceService> Mailbox for Post<S> {
    fn post(&self, told: Told, at_once: bool) {
        if let Some(serving) = self.0.upgrade() {
            let urgency = if at_once { Urgency::Now } else { Urgency::Together };
            // A client that does not read cannot use it: a grant is void then.
            let _ = serving.writer.offer(frame::told(told), urgency);
        }
    }
}

#[derive(Default)]
struct Underway {
    running: HashMap<u64, OneUnderway>,
    /// Requests that have begun since the connection was made.
    begun: u64,
    closed: bool,
}

struct OneUnderway {
    /// Tells the request from a cancelled one with the same id, whose task may not have ended yet.
    serial: u64,
    /// The task that polls it; the reading task does until there is one.
    task: Option<AbortHandle>,
}

/// Cleans up when the connection ends, for any reason.
struct Ending<S: InferenceService>(Arc<Serving<S>>);

impl<S: InferenceService> Drop for Ending<S> {
    fn drop(&mut self) {
        self.0.writer.close();
        if let Some(party) = self.0.party.get() {
            party.giver.leave(party.frontend);
        }
        let running = {
            let mut calls = self.0.calls.lock();
            calls.closed = true;
            std::mem::take(&mut calls.running)
        };
        for task in running.into_values().filter_map(|one| one.task) {
            task.abort();
        }
    }
}

impl<S: InferenceService> Serving<S> {
    async fn read(self: &Arc<Self>, reader: &mut Reader) -> io::Result<()> {
        let mut is_done = false;
        while let Some(incoming) = reader.next().await? {
            let id = incoming.header.id;
            match incoming.header.kind {
                // Otherwise a client that always has a request in progress would keep an old connection forever.
                Kind::Request if is_done => {
                    let message = "a client sent a request after its goodbye";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, message));
                }
                Kind::Request => self.start(incoming).await,
                Kind::Ask | Kind::Return => {
                    let order = self.party.get().zip(frame::read_order(&incoming.header));
                    order.into_iter().for_each(|(party, order)| party.giver.hears(party.frontend, order));
                }
                Kind::Cancel => {
                    let task = self.calls.lock().running.remove(&id).and_then(|one| one.task);
                    if let Some(task) = task {
                        task.abort();
                        self.note_idle();
                    }
                }
                Kind::Ping => {
                    let _ = self.writer.offer(Frame::bare(Kind::Pong, 0), Urgency::Now);
                }
                Kind::Pong => {}
                Kind::GoAway => {
                    is_done = true;
                    self.peer_is_done.notify_one();
                }
                Kind::Response | Kind::Failure | Kind::Granted | Kind::Recalled | Kind::Shared => {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "a client sent an answer"));
                }
            }
            // The server stops reading from a client that does not read its answers.
            if self.writer.is_over_limit() {
                self.writer.room().await;
            }
        }
        Ok(())
    }

    async fn start(self: &Arc<Self>, incoming: Incoming) {
        let id = incoming.header.id;
        let arrived = Instant::now();
        let caller = self.party.get();
        let caller = caller.map(|party| fleet::Caller::new(party.giver.clone(), party.frontend));
        let visit = match self.caller.visit(Access::Infer) {
            Ok(visit) => visit,
            Err(error) => {
                self.reject(id, &error);
                if error.code() != Code::TooManyRequests {
                    // The key changed since the connection was made: the client must reconnect.
                    self.stale.notify_one();
                }
                return;
            }
        };
        let share = match incoming.share {
            Ok(share) => share,
            Err(error) => return self.reject(id, &error),
        };
        let decoded = codec::decode_request(&incoming.body).and_then(|decoded| {
            // The charge never exceeds the largest frame: a request on its own must not be rejected.
            let weight = bounds::weight(&decoded.0).min(self.max_body);
            share.as_ref().map_or(Ok(()), |share| share.cover(weight)).map(|()| decoded)
        });
        let (request, remaining, traceparent) = match decoded {
            Ok(decoded) => decoded,
            Err(error) => return self.reject(id, &error),
        };
        drop(incoming.body);
        let context = Context {
            arrived,
            deadline: remaining.and_then(|remaining| arrived.checked_add(remaining)),
            transport: Transport::Frames,
            traceparent,
            caller,
            key: visit.caller().name(),
        };
        let reply = match self.admit(id) {
            Ok(reply) => reply,
            Err(error) => return self.reject(id, &error),
        };
        let service = Arc::clone(&self.service);
        let mut call = Box::pin(async move {
            let result = service.infer(request, context).await;
            // Before the answer is sent: its receiver may send the next request.
            drop(visit);
            reply.send(result, share);
        });
        let polled = std::future::poll_fn(|cx| Poll::Ready(Future::poll(Pin::as_mut(&mut call), cx))).await;
        if polled.is_pending() {
            let task = tokio::spawn(call).abort_handle();
            // Absent if it is answered already.
            if let Some(one) = self.calls.lock().running.get_mut(&id) {
                one.task = Some(task);
            }
        }
    }

    fn admit(self: &Arc<Self>, id: u64) -> Result<Reply<S>, Error> {
        let mut calls = self.calls.lock();
        let running = calls.running.len();
        if running >= self.limit {
            return Err(Error::overloaded(format!(
                "{running} requests are in progress on this connection, its limit: send fewer at a time"
            )));
        }
        if calls.running.contains_key(&id) {
            return Err(Error::malformed(format!("request {id} is in progress already: use a new id")));
        }
        calls.begun += 1;
        let serial = calls.begun;
        calls.running.insert(id, OneUnderway { serial, task: None });
        Ok(Reply { serving: Arc::clone(self), id, serial, sent: false })
    }

    fn reject(&self, id: u64, error: &Error) {
        self.service.rejected(error, Transport::Frames);
        self.answer(id, Err(error), None, Urgency::Together);
    }

    /// Sends an answer, which keeps its request's share of the budget until the client has read it.
    fn answer(
        &self,
        id: u64,
        result: Result<&InferResponse, &Error>,
        share: Option<Arc<Share>>,
        urgency: Urgency,
    ) {
        let frame = match result {
            Ok(response) => codec::encode_response(id, response, self.max_body).and_then(|frame| {
                share.as_ref().map_or(Ok(()), |share| share.turn_into(frame.len())).map(|()| frame)
            }),
            Err(error) => codec::encode_failure(id, error, self.max_body),
        };
        // An answer that is too large is replaced by an error. If even that does not fit, the limit is absurd, and the
        // client's deadline ends its wait.
        let frame = frame.or_else(|error| codec::encode_failure(id, &error, self.max_body));
        if let Ok(frame) = frame {
            let answer = self.unread.answer(share);
            let chunks = frame.chunks.into_iter().map(|chunk| answer.part(chunk)).collect();
            let _ = self.writer.send(Frame { chunks }, urgency);
        }
    }

    /// Whether a call is still wanted, and how many others are in progress.
    fn look_up(&self, id: u64, serial: u64) -> (bool, usize) {
        let calls = self.calls.lock();
        let wanted = calls.running.get(&id).is_some_and(|one| one.serial == serial);
        (wanted, calls.running.len() - usize::from(wanted))
    }

    fn note_idle(&self) {
        if self.calls.lock().running.is_empty() {
            self.idle.notify_waiters();
        }
    }

    /// Waits for `drain`, or until the connection is old or stale. Then sends a goodbye, and waits for the client's
    /// goodbye and for every answer to be written. A client sends no request after its goodbye, so none is lost; a
    /// request after it is a protocol error. A client that does not say goodbye within `patience`, which is longer than any
    /// pause of its process, is cut off.
    async fn drained(&self, drain: CancellationToken, age: Option<Duration>, patience: Duration) {
        tokio::select! {
            () = drain.cancelled() => {}
            () = self.stale.notified() => {}
            () = after(age) => {}
        }
        let _ = self.writer.send(Frame::bare(Kind::GoAway, 0), Urgency::Now);
        if tokio::time::timeout(patience, self.peer_is_done.notified()).await.is_err() {
            return;
        }
        loop {
            let idle = self.idle.notified();
            if self.calls.lock().running.is_empty() {
                break;
            }
            idle.await;
        }
        self.writer.flushed().await;
    }
}

/// The duty to answer one request. If it is dropped without an answer, the service panicked or the request was
/// cancelled.
struct Reply<S: InferenceService> {
    serving: Arc<Serving<S>>,
    id: u64,
    serial: u64,
    sent: bool,
}

impl<S: InferenceService> Reply<S> {
    fn send(mut self, result: Result<InferResponse, Error>, share: Option<Arc<Share>>) {
        self.sent = true;
        self.conclude(result, share);
    }

    fn conclude(&self, result: Result<InferResponse, Error>, share: Option<Arc<Share>>) {
        let (wanted, others) = self.serving.look_up(self.id, self.serial);
        if !wanted {
            return;
        }
        let urgency = if others < DIRECT { Urgency::Now } else { Urgency::Together };
        self.serving.answer(self.id, result.as_ref(), share, urgency);
        // Not before the answer is on its way: a drain takes a connection without calls for finished. The client may have cancelled
        // the request meanwhile and begun another with its id.
        let mut calls = self.serving.calls.lock();
        if calls.running.get(&self.id).is_some_and(|one| one.serial == self.serial) {
            calls.running.remove(&self.id);
        }
        drop(calls);
        self.serving.note_idle();
    }
}

impl<S: InferenceService> Drop for Reply<S> {
    fn drop(&mut self) {
        if !self.sent {
            let message = "the request was dropped before it was answered: see the server's log".to_owned();
            self.conclude(Err(Error::Internal { message }), None);
        }
    }
}
