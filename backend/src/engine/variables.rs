//! Environment variables that other programs set, and that users expect to work here too.

use std::ffi::OsString;

/// The value of a variable; `None` if it is unset or empty.
pub(super) fn variable(name: &str) -> Option<OsString> {
    given(name).filter(|value| !value.is_empty())
}

/// The value of a variable that has a meaning when it is empty.
pub(super) fn given(name: &str) -> Option<OsString> {
    #[allow(clippy::disallowed_methods)]
    std::env::var_os(name)
}
