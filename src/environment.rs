//! The environment is read here and nowhere below the binary.

/// Whether the user asked for no colours.
#[allow(clippy::disallowed_methods)] // this file is where the environment is read
pub fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// The usual variable for log filters.
#[allow(clippy::disallowed_methods)]
pub fn rust_log() -> Option<String> {
    std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty())
}
