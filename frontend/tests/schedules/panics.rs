//! Records panics of this thread, because a task that panics ends silently.

use std::cell::RefCell;
use std::panic;
use std::sync::Once;

thread_local! {
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Starts to record panics; those of runs are not printed.
pub(crate) fn note() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let printed = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            let told = LAST.with_borrow_mut(|last| match last {
                Some(told) if told.is_empty() => {
                    *told = panic.to_string();
                    true
                }
                Some(_) => true,
                None => false,
            });
            if !told {
                printed(panic);
            }
        }));
    });
}

/// Takes the first panic of a run, and starts the next run.
pub(crate) fn forget() -> Option<String> {
    LAST.replace(Some(String::new())).filter(|told| !told.is_empty())
}

/// Prints panics again, as no run is in progress.
pub(crate) fn print() {
    LAST.set(None);
}
