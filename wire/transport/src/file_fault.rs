//! A fault of a file that a running process follows, for people.

use parm_protocol::StableCode;

/// A fault of the key file or of the TLS files. The process keeps the content that it read before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFault {
    /// The code, which the log line has too.
    pub code: StableCode,
    /// One phrase.
    pub text: String,
    /// Whether it fails now, and not only soon.
    pub fails: bool,
}
