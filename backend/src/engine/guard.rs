//! A panic inside an engine is an error of one request, not the end of an instance.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::Error;

/// Runs `work`; a panic becomes [`Error::Panicked`].
///
/// What `work` was changing may be half changed afterwards. Engines keep no state between runs that a later run reads,
/// so going on is safe; asserting it here keeps the promise in one place.
pub fn guarded<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let message = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_string())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no message".into());
        Err(Error::Panicked { message })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_with_its_message() {
        let outcome: Result<(), Error> = guarded(|| panic!("index {} is out of range", 7));
        assert_eq!(outcome, Err(Error::Panicked { message: "index 7 is out of range".into() }));
    }
}
