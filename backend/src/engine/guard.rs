//! A panic inside an engine is an error of one request, not the end of an instance.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use crate::Error;

/// Runs `work`; a panic becomes [`Error::Panicked`].
///
/// What `work` was changing may be half changed afterwards. Engines keep no state between runs that a later run reads,
/// so going on is safe; asserting it here keeps the promise in one place.
pub fn guarded<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(panicked(&*panic)))
}

/// The same for what is awaited.
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
    async fn a_panic_while_it_is_awaited_becomes_an_error_too() {
        let work = async {
            tokio::task::yield_now().await;
            panic!("late")
        };
        let outcome: Result<(), Error> = guarded_future(work).await;
        assert_eq!(outcome, Err(Error::Panicked { message: "late".into() }));
    }

    #[test]
    fn a_panic_becomes_an_error_with_its_message() {
        let outcome: Result<(), Error> = guarded(|| panic!("index {} is out of range", 7));
        assert_eq!(outcome, Err(Error::Panicked { message: "index 7 is out of range".into() }));
    }
}
