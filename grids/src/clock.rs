//! The clock of leases: that of the file server, so that the clocks of machines need not agree.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::OFlags;

use crate::draft::mark;

/// The flag that opens a pipe without waiting for its other end. Regular files ignore it.
pub(crate) const AT_ONCE: i32 = OFlags::NONBLOCK.bits() as i32;

/// Stamps lease files and reads the time.
pub trait Clock: Send + Sync {
    /// Writes `text` to the start of an existing file and sets its modification time to now.
    fn stamp(&self, path: &Path, text: &str) -> io::Result<()>;

    /// Returns the time that a file stamped now would have.
    fn now(&self) -> io::Result<SystemTime>;
}

/// The clock of the file system of a folder, read by writing a file there.
#[derive(Debug)]
pub struct ServerClock {
    probe: PathBuf,
}

impl ServerClock {
    /// Creates the clock of a folder.
    pub fn new(folder: &Path) -> Self {
        Self { probe: folder.join(format!(".clock-{}", mark())) }
    }
}

impl Clock for ServerClock {
    fn stamp(&self, path: &Path, text: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).custom_flags(AT_ONCE).open(path)?;
        file.write_all(text.as_bytes())
    }

    fn now(&self) -> io::Result<SystemTime> {
        fs::write(&self.probe, "now")?;
        // Opening the file makes a network file system fetch its attributes again.
        File::open(&self.probe)?.metadata()?.modified()
    }
}

impl Drop for ServerClock {
    fn drop(&mut self) {
        // A file that remains does no harm.
        let _ = fs::remove_file(&self.probe);
    }
}
