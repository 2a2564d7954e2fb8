//! Runs models on the runtime's threads that read requests.
//!
//! *Problem.* Two wake-ups per request cost about 50 us each if processors sleep, as on virtual machines.
//!
//! *Choice.* A short run uses the thread that read its request, whose other work waits meanwhile. A longer run there is a
//! separate task, whose client can time out while it continues, and another sleeping thread is woken to poll the sockets.
//! Embedded instances need a seat for both, and at least one thread has none: requests are read and deadlines kept even
//! if all models hang. Workers run only what takes at most 100 us there, without a seat.
//!
//! *Rejected.* `block_in_place` also hands the other work over, but the thread may then not continue with the answer,
//! which costs a wake-up. Remembering that some thread polls is unsafe: a busy thread also polls now and then, and a
//! thread that goes to sleep at that moment does not wait for the sockets. Measured in docs/results/hop.md.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::Handle;

/// Runs on reading threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seats(Arc<AtomicUsize>);

/// One such run.
#[derive(Debug)]
pub(crate) struct Seat(Seats);

impl Seats {
    /// A seat, if this thread may compute: at least one other thread of the runtime does not.
    pub(crate) fn take(&self) -> Option<Seat> {
        let others = Handle::try_current().map_or(0, |runtime| runtime.metrics().num_workers() - 1);
        let next = |taken| (taken < others).then_some(taken + 1);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).ok()?;
        Some(Seat(self.clone()))
    }
}

impl Seat {
    /// Runs something in a separate task, next on this thread, while another thread polls the sockets.
    pub(crate) fn spawn(self, run: impl FnOnce() + Send + 'static) {
        // A thread runs the last task of its own queue itself, and offers earlier ones to sleeping threads.
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
    fn one_thread_of_a_runtime_never_computes() {
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

    /// A connection's task gives the first byte to a run that ends only when another connection is answered. That byte
    /// woke the thread that polled the sockets, and it runs the model.
    #[test]
    fn sockets_are_polled_while_models_run() {
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
                            // The previous thread may be about to wake up.
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
