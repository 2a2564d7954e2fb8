//! Follows files: accepts what was read from them only after two identical reads.
//!
//! A writer may truncate a file first, or write several files one after another. A read in between sees a state that
//! the writer never intended.

use std::fs;
use std::path::Path;
use std::time::Duration;

use parm_protocol::StableCode;
use tokio_util::sync::CancellationToken;

/// Interval between two reads of files that are followed.
const EVERY: Duration = Duration::from_secs(1);

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

/// The accepted value, and the value of the last read.
#[derive(Debug)]
pub struct Settling<T> {
    believed: Option<T>,
    last: Option<T>,
}

impl<T> Default for Settling<T> {
    fn default() -> Self {
        Self { believed: None, last: None }
    }
}

impl<T: Clone + PartialEq> Settling<T> {
    /// Processes a read. Returns whether its value is accepted now and was not before. The first read is accepted at
    /// once, as it replaces nothing.
    pub fn look(&mut self, seen: T) -> bool {
        let holds = self.believed.is_none() || self.last.as_ref() == Some(&seen);
        let changed = holds && self.believed.as_ref() != Some(&seen);
        if changed {
            self.believed = Some(seen.clone());
        }
        self.last = Some(seen);
        changed
    }

    /// Whether nothing was read so far.
    pub fn is_new(&self) -> bool {
        self.last.is_none()
    }

    /// Accepts a value without a read.
    pub fn believe(&mut self, known: T) {
        self.believed = Some(known);
    }
}

/// The content of a file of at most so many bytes.
pub(crate) fn read_regular(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    let found = fs::metadata(path).map_err(|error| error.to_string())?;
    // A pipe would block, and a device may be endless.
    if !found.is_file() {
        return Err("it is not a regular file".into());
    }
    let size = found.len();
    if size > most {
        return Err(format!("it has {size} bytes, more than {most}"));
    }
    fs::read(path).map_err(|error| error.to_string())
}

/// Reads files every second until `ended`, and shows each accepted content with whether it was accepted now and not before. `print`
/// is the part that is compared, and `known` that of the files as the process began with them.
pub(crate) async fn follow<T, P>(
    known: Option<P>,
    read: impl Fn() -> T + Clone + Send + 'static,
    print: impl Fn(&T) -> P,
    mut look: impl FnMut(T, bool),
    ended: CancellationToken,
) where
    T: Send + 'static,
    P: Clone + PartialEq,
{
    let mut settling = Settling { believed: known, last: None };
    loop {
        if let Ok(read) = tokio::task::spawn_blocking(read.clone()).await {
            let changed = settling.look(print(&read));
            if settling.last == settling.believed {
                look(read, changed);
            }
        }
        if ended.run_until_cancelled(tokio::time::sleep(EVERY)).await.is_none() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_is_accepted_once_at_its_second_read() {
        let mut settling = Settling::default();
        let looks =
            [('a', true), ('a', false), ('b', false), ('c', false), ('c', true), ('c', false), ('a', false)];
        for (seen, expected) in looks {
            assert_eq!(settling.look(seen), expected, "{seen}, {settling:?}");
        }
    }
}
