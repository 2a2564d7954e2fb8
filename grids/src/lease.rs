//! Leases: one process at a time runs a cell of a shared folder.
//!
//! Problem: processes of several machines choose cells from one folder, and any of them may be paused or killed.
//!
//! Choice: lease number n of a cell is the file `KEY.lease.n`, and the newest one counts. A process takes a cell by
//! creating the next number, which a file system allows only once, so two processes that find the same expired lease
//! cannot both take it. A heartbeat stamps the file. A holder that finds a newer number, or whose file is gone, has lost
//! the cell. Files are removed only when the result exists, so numbers never repeat while they matter.
//!
//! Rejected: renaming or removing an expired lease, because the file may be a new lease by then. Locks of the operating
//! system, because several network file systems do not carry them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::{Clock, Listing, ServerClock};

/// The leases of a folder.
#[derive(Clone)]
pub struct Leases {
    folder: PathBuf,
    limit: Duration,
    holder: String,
    clock: Arc<dyn Clock>,
}

/// Renewals within a lease's limit.
pub(crate) const BEATS: u32 = 4;
/// Longest and shortest wait before the folder is read again.
const SLOWEST: Duration = Duration::from_secs(5);
const FASTEST: Duration = Duration::from_millis(20);
/// Longest text of a lease file that is read.
const LONGEST: u64 = 256;
const HELD: &str = "held by ";
/// As long as [`HELD`], which it replaces.
const FREE: &str = "left by ";

impl Leases {
    /// Creates the leases of a folder. A lease expires when its holder was silent for `limit`.
    pub fn new(folder: &Path, limit: Duration) -> io::Result<Self> {
        let holder = holder();
        fs::create_dir_all(folder)?;
        let clock = Arc::new(ServerClock::new(folder, &holder));
        Ok(Self { folder: folder.into(), limit, holder, clock })
    }

    /// The same, with another clock and name of the holder.
    pub fn with_clock(self, clock: Arc<dyn Clock>, holder: &str) -> Self {
        Self { clock, holder: holder.into(), ..self }
    }

    /// Returns the time after which a silent holder loses its lease.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Returns the name of this process in lease files.
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// Takes the lease of a cell. Returns `None` if another process holds it or has just taken it.
    pub fn claim(&self, key: &str, listing: &Listing) -> io::Result<Option<Lease>> {
        let newest = listing.generation(key);
        if self.live(key, newest)?.is_some() {
            return Ok(None);
        }
        let generation = newest + 1;
        let path = self.path(key, generation);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(error),
            Ok(_) => {
                let lease = Lease { leases: self.clone(), key: key.into(), generation };
                self.clock.stamp(&path, &format!("{HELD}{}", self.holder))?;
                Ok(Some(lease))
            }
        }
    }

    /// Returns the holder of a lease that has not expired.
    pub(crate) fn live(&self, key: &str, generation: u32) -> io::Result<Option<String>> {
        if generation == 0 {
            return Ok(None);
        }
        let file = match File::open(self.path(key, generation)) {
            // Its cell got a result in this moment.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let stamped = file.metadata()?.modified()?;
        let mut text = String::new();
        let _ = file.take(LONGEST).read_to_string(&mut text);
        if text.starts_with(FREE) {
            return Ok(None);
        }
        let age = self.clock.now()?.duration_since(stamped).unwrap_or_default();
        let holder = text.strip_prefix(HELD).unwrap_or("a process that starts").to_owned();
        Ok((age <= self.limit).then_some(holder))
    }

    /// Waits before the folder is read again.
    pub(crate) fn pause(&self, stop: &dyn Fn() -> bool) {
        let until = Instant::now() + (self.limit / BEATS).clamp(FASTEST, SLOWEST);
        while Instant::now() < until && !stop() {
            thread::sleep(FASTEST);
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn path(&self, key: &str, generation: u32) -> PathBuf {
        self.folder.join(format!("{key}.lease.{generation}"))
    }
}

/// Describes this process: machine and process number.
fn holder() -> String {
    let name = rustix::system::uname();
    format!("{} process {}", name.nodename().to_string_lossy(), std::process::id())
}

/// The right to run a cell.
pub struct Lease {
    leases: Leases,
    key: String,
    generation: u32,
}

impl Lease {
    /// Renews it. Returns `false` if it was lost.
    pub fn renew(&self) -> io::Result<bool> {
        match self.leases.clock.stamp(&self.path(), HELD) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            stamped => stamped?,
        }
        self.is_newest()
    }

    /// Ends it after the result was written: removes all leases of the cell.
    pub fn finish(&self) -> io::Result<()> {
        // The newest goes last: until then no other process can take the next number of a cell that seems free.
        (1..=self.generation).map(|number| self.leases.path(&self.key, number)).try_for_each(|path| {
            match fs::remove_file(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        })
    }

    /// Gives the cell back without a result.
    pub fn free(&self) -> io::Result<()> {
        match self.leases.clock.stamp(&self.path(), FREE) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.leases.path(&self.key, self.generation)
    }

    fn is_newest(&self) -> io::Result<bool> {
        Ok(!self.leases.path(&self.key, self.generation + 1).try_exists()?)
    }
}
