//! What panicked in this thread, whoever caught it: a task that panics ends quietly.

use std::cell::RefCell;
use std::panic;
use std::sync::Once;

thread_local! {
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Panics are noted from now on, and those of runs are not printed.
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

/// The first panic of a run, if there was one; a new run begins.
pub(crate) fn forget() -> Option<String> {
    LAST.replace(Some(String::new())).filter(|told| !told.is_empty())
}

/// No run is under way: panics are printed again.
pub(crate) fn print() {
    LAST.set(None);
}
