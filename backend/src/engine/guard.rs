//! Turns a panic inside an engine into an error of one request, so that the instance continues.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use crate::Error;

/// Runs `work`; a panic becomes [`Error::Panicked`].
///
/// Engines keep no state that a later run reads, so continuing after a panic is safe even if `work` left its data half
/// changed. This function is the only place that asserts it.
pub fn guarded<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(panicked(&*panic)))
}

/// As [`guarded`], for a future.
pub(crate) async fn guarded_future<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let mut work = pin!(work);
    poll_fn(|context| {
        catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)))
            .unwrap_or_else(|panic| Poll::Ready(Err(panicked(&*panic))))
    })
    .await
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_string());
    let message = text.or_else(|| panic.downcast_ref::<String>().cloned());
    Error::Panicked { message: message.unwrap_or_else(|| "no message".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panic_of_a_future_becomes_an_error() {
        let work = async {
            tokio::task::yield_now().await;
            panic!("late")
        };
        let outcome: Result<(), Error> = guarded_future(work).await;
        assert_eq!(outcome, Err(Error::Panicked { message: "late".into() }));
    }

    #[test]
    fn panic_becomes_an_error_with_its_message() {
        let outcome: Result<(), Error> = guarded(|| panic!("index {} is out of range", 7));
        assert_eq!(outcome, Err(Error::Panicked { message: "index 7 is out of range".into() }));
    }
}
