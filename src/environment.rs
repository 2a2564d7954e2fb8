//! Reads environment variables; no crate below the binary does so.

/// Whether the user disabled colours.
#[allow(clippy::disallowed_methods)] // this file is where the environment is read
pub fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// The variables whose names begin with a prefix, without it, in order of their names.
#[allow(clippy::disallowed_methods)]
pub fn with_prefix(prefix: &str) -> Vec<(String, String)> {
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        Some((name.to_str()?.strip_prefix(prefix)?.to_owned(), value.into_string().ok()?))
    });
    let mut variables: Vec<_> = variables.collect();
    variables.sort();
    variables
}

/// Address of the API server, from the variables that Kubernetes sets in its pods.
#[allow(clippy::disallowed_methods)]
pub fn kubernetes() -> Option<String> {
    let host = std::env::var("KUBERNETES_SERVICE_HOST").ok().filter(|host| !host.is_empty())?;
    let port = std::env::var("KUBERNETES_SERVICE_PORT").unwrap_or_else(|_| "443".to_owned());
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    Some(format!("https://{host}:{port}"))
}

/// Whether the runtime's own variable sets its number of threads.
#[allow(clippy::disallowed_methods)]
pub fn sets_threads() -> bool {
    std::env::var_os("TOKIO_WORKER_THREADS").is_some()
}

/// The command line of this process, for results that it can make again.
pub fn command_line() -> String {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    format!("parm {}", arguments.join(" "))
}

/// The system's folder for temporary files.
pub fn temporary() -> std::path::PathBuf {
    std::env::temp_dir()
}

/// The usual variable for log filters.
#[allow(clippy::disallowed_methods)]
pub fn rust_log() -> Option<String> {
    std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty())
}
