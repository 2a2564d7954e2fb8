//! A connection, HTTP/1.1 or HTTP/2, until it ends, is idle for too long, or its listener drains.
//!
//! One coarse clock watches a connection, instead of a timer per request. It ticks as often as the shortest timeout
//! requires. It closes a connection that never sent a request in time, has been idle for too long, or does not read its
//! responses. Other requests of the connection may finish first if they do so soon: a proxy may multiplex many clients
//! over one connection, and only one of them may be slow.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;

use super::activity::{Activity, ClientEnd};
use super::protocols;
use super::room::Place;
use super::station::{Handler, Setup};
use crate::frames::Socket;

/// Serves one connection, which holds its place until it ends.
pub(super) async fn serve<H: Handler>(
    socket: Socket,
    setup: Setup,
    handler: H,
    activity: Arc<Activity>,
    place: Place,
) {
    let welcomed = tokio::select! {
        biased;
        welcomed = welcome(socket, &setup, &activity) => welcomed,
        // No request has arrived: the client can connect to another server.
        () = setup.drain.begun.cancelled() => return,
        () = activity.evicted() => return,
    };
    let Ok(socket) = welcomed else { return };
    activity.welcomed(ClientEnd { address: socket.peer(), secured: socket.is_secured() });
    let limits = &setup.limits;
    let builder = protocols::builder(limits, setup.spoken);
    let requests = handler.connection(&activity, place);
    let mut connection = pin!(builder.serve_connection_with_upgrades(TokioIo::new(socket), requests));
    let unread = activity.unread.clone();
    let mut taking = limits.answer;
    let mut draining = false;
    let mut old = pin!(after(setup.ages.next()));
    loop {
        // A request may arrive before the timeout for its head, and the idle timeout may be shorter.
        let patience =
            activity.patience(limits.head, limits.idle).min(limits.idle).min(unread.patience(taking));
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection broke");
                }
                return;
            }
            () = setup.drain.begun.cancelled(), if !draining => {
                draining = true;
                connection.as_mut().graceful_shutdown();
            }
            () = setup.drain.cut.cancelled(), if draining => return,
            () = activity.evicted() => {
                tracing::debug!("a connection without a request was closed for another");
                return;
            }
            () = old.as_mut(), if !draining && !activity.is_old() => {
                if activity.grow_old() {
                    connection.as_mut().graceful_shutdown();
                }
            }
            () = tokio::time::sleep(patience) => {
                if activity.patience(limits.head, limits.idle).is_zero() {
                    // Nothing is in progress on it: no response is lost.
                    return;
                }
                if unread.patience(taking).is_zero() {
                    let last = taking > limits.answer;
                    if last || activity.only_answers() {
                        tracing::debug!("a connection was closed: its client did not take an answer in time");
                        return;
                    }
                    taking *= 2;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// Waits for the first byte, and performs the TLS handshake.
async fn welcome(socket: Socket, setup: &Setup, activity: &Activity) -> io::Result<Socket> {
    match tokio::time::timeout(setup.limits.first_byte, socket.first_byte()).await {
        Ok(first) => first?,
        Err(_) => return Err(io::ErrorKind::TimedOut.into()),
    }
    activity.begins();
    setup.welcome.greet(socket).await
}

async fn after(age: Option<Duration>) {
    match age {
        Some(age) => tokio::time::sleep(age).await,
        None => std::future::pending().await,
    }
}
