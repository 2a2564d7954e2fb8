//! Runs on the threads of the runtime that reads requests.
//!
//! A run where its request was read saves two wake-ups, of some fifty microseconds each where processors that sleep are slow to
//! wake, as on virtual machines. What else that thread would have done waits meanwhile, and it may be the thread that waits for
//! sockets on behalf of all. So another one, if it sleeps, is woken to look after them; and one thread at least has no seat, so that
//! requests are read and deadlines kept even if all models hang. A run that is not over in no time is a task of its own: whoever waits
//! for it is told of a deadline, and may give up, while it goes on.
//!
//! Rejected: `block_in_place`, which hands the other work over in the same way, but leaves a thread that may not go on with the answer:
//! that takes a wake-up again. And to remember that somebody looks out already: a thread that does not sleep looks at the sockets
//! now and then, and whoever goes to sleep just then does not wait for them. Measured in docs/results/hop.md.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::Handle;

/// Runs that go on where requests are read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seats(Arc<AtomicUsize>);

/// One of them.
#[derive(Debug)]
pub(crate) struct Seat(Seats);

impl Seats {
    /// A seat, if this thread may compute: it is one of several of a runtime, of which another one does not.
    pub(crate) fn take(&self) -> Option<Seat> {
        let others = Handle::try_current().map_or(0, |runtime| runtime.metrics().num_workers() - 1);
        let next = |taken| (taken < others).then_some(taken + 1);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).ok()?;
        Some(Seat(self.clone()))
    }
}

impl Seat {
    /// Does something in a task of its own, next on this thread, while another looks after sockets.
    pub(crate) fn spawn(self, run: impl FnOnce() + Send + 'static) {
        // Of tasks that a thread puts in its own line the last is for itself, and what is before that one is shown to who sleeps.
        tokio::spawn(std::future::ready(()));
        tokio::spawn(async move {
            let _seat = self;
            run();
        });
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::sync::mpsc::sync_channel;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    fn runtime(threads: usize) -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap()
    }

    #[test]
    fn one_thread_never_computes() {
        let seats = Seats::default();
        assert!(seats.take().is_none(), "no runtime");
        runtime(1).block_on(async { assert!(seats.take().is_none()) });
        runtime(3).block_on(async {
            let (first, second) = (seats.take().unwrap(), seats.take().unwrap());
            assert!(seats.take().is_none());
            drop(second);
            let third = seats.take();
            assert!(third.is_some());
            drop((first, third));
        });
        assert_eq!(seats.0.load(Ordering::Acquire), 0);
    }

    /// A connection's task gives the first byte to a run that ends only when another connection has been answered. The thread
    /// that runs it is the one that waited for sockets: it was woken by that byte.
    #[test]
    fn sockets_are_looked_after_while_models_run() {
        let runtime = runtime(2);
        let (told, ended) = sync_channel::<()>(1);
        let ended = Arc::new(parking_lot::Mutex::new(ended));
        let seats = Seats::default();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (seats, ended) = (seats.clone(), ended.clone());
                tokio::spawn(async move {
                    while let Ok(byte) = TcpStream::read_u8(&mut stream).await {
                        if byte == b'r' {
                            let (done, is_done) = tokio::sync::oneshot::channel();
                            let ended = ended.clone();
                            // The one before may be about to get up.
                            let seat = loop {
                                match seats.take() {
                                    Some(seat) => break seat,
                                    None => tokio::task::yield_now().await,
                                }
                            };
                            seat.spawn(move || {
                                let told = ended.lock().recv_timeout(Duration::from_secs(60));
                                done.send(told.is_ok()).unwrap();
                            });
                            assert!(is_done.await.unwrap(), "sockets were dead");
                        }
                        stream.write_u8(byte).await.unwrap();
                    }
                });
            }
        });
        let connect = || std::net::TcpStream::connect(address).unwrap();
        let (mut runner, mut other) = (connect(), connect());
        let ask = |stream: &mut std::net::TcpStream, byte: u8| {
            stream.write_all(&[byte]).unwrap();
            let mut answer = [0];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(answer, [byte]);
        };
        for _ in 0..50 {
            runner.write_all(b"r").unwrap();
            ask(&mut other, b'o');
            told.send(()).unwrap();
            runner.read_exact(&mut [0]).unwrap();
        }
    }
}
