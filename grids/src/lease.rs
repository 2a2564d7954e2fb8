//! Leases: one process at a time runs a cell of a shared folder.
//!
//! Problem: processes of several machines choose cells from one folder, and any of them may be paused or killed.
//!
//! Choice: lease number n of a cell is the file `KEY.lease.n`, and the newest one counts. A process takes a cell by
//! creating the next number, which a file system allows only once, so two processes that find the same expired lease
//! cannot both take it. The lease before it must exist, because numbers begin anew after a result. A heartbeat stamps the
//! file. A holder that finds a newer number, or whose file is gone or has the mark of another lease, has lost the cell.
//! Files are removed only when the result exists. A lease expires after the limit in its file, because the limit of
//! another process may be shorter than a heartbeat. A damaged file has lost that limit: the limit of its reader counts, so
//! processes of one folder should have equal limits. A time in the future, from a clock that was set back, is replaced by
//! the time at which it was first seen, so that such a lease expires as well.
//!
//! Rejected: renaming or removing an expired lease, because the file may be a new lease by then. Locks of the operating
//! system, because several network file systems do not carry them.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::clock::AT_ONCE;
use crate::draft::mark;
use crate::stamp::{LONGEST, Stamp, Text};
use crate::{Clock, Listing, ServerClock};

/// The leases of a folder.
#[derive(Clone)]
pub struct Leases {
    folder: PathBuf,
    limit: Duration,
    holder: String,
    clock: Arc<dyn Clock>,
    /// Leases of cells from the future: their time, and the time at which it was first seen.
    future: Arc<Mutex<BTreeMap<String, (SystemTime, SystemTime)>>>,
}

/// Renewals within a lease's limit.
pub(crate) const BEATS: u32 = 4;
/// Longest and shortest wait before the folder is read again.
const SLOWEST: Duration = Duration::from_secs(5);
const FASTEST: Duration = Duration::from_millis(20);

impl Leases {
    /// Creates the leases of a folder. A lease expires when its holder was silent for `limit`.
    pub fn new(folder: &Path, limit: Duration) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let clock = Arc::new(ServerClock::new(folder));
        Ok(Self { folder: folder.into(), limit, holder: holder(), clock, future: Arc::default() })
    }

    /// The same, with another clock and name of the holder.
    pub fn with_clock(self, clock: Arc<dyn Clock>, holder: &str) -> Self {
        Self { clock, holder: holder.into(), future: Arc::default(), ..self }
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
        // The listing may be old: if the cell got a result since, and lost it again, numbers began anew.
        if !self.stands(key, newest)? || self.live(key, newest, || self.clock.now())?.is_some() {
            return Ok(None);
        }
        // No process takes so many leases: the name is of another program.
        let generation = newest.checked_add(1).filter(|&next| next < u32::MAX);
        let generation = generation.ok_or(ErrorKind::InvalidFilename)?;
        let path = self.path(key, generation);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(error),
            // The same, if this process paused here.
            Ok(_) if !self.stands(key, newest)? => fs::remove_file(&path).map(|()| None),
            Ok(_) => {
                let stamp = Stamp { holder: self.holder.clone(), mark: mark(), limit: self.limit };
                let lease = Lease { leases: self.clone(), key: key.into(), generation, stamp };
                // It expired already if this process paused here.
                Ok(lease.renew()?.then_some(lease))
            }
        }
    }

    /// Returns the holder of a lease that has not expired, also in a folder that this process cannot write.
    pub(crate) fn holder_of(&self, key: &str, generation: u32) -> io::Result<Option<String>> {
        self.live(key, generation, || Ok(self.clock.now().unwrap_or_else(|_| SystemTime::now())))
    }

    /// Whether the file of a lease exists. Every cell has a lease 0.
    fn stands(&self, key: &str, generation: u32) -> io::Result<bool> {
        Ok(generation == 0 || self.path(key, generation).try_exists()?)
    }

    fn live(
        &self,
        key: &str,
        generation: u32,
        now: impl Fn() -> io::Result<SystemTime>,
    ) -> io::Result<Option<String>> {
        if generation == 0 {
            return Ok(None);
        }
        let (stamped, text) = match read(&self.path(key, generation)) {
            // Its cell got a result in this moment.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => read?,
        };
        let (holder, limit) = match text {
            Text::Free => return Ok(None),
            Text::Held(stamp) => (stamp.holder, stamp.limit),
            Text::Unknown => ("a process that starts".to_owned(), self.limit),
        };
        Ok((self.age(key, stamped, now()?) <= limit).then_some(holder))
    }

    /// Returns the age of a stamp.
    fn age(&self, key: &str, stamped: SystemTime, now: SystemTime) -> Duration {
        let mut future = self.future.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(age) = now.duration_since(stamped) {
            future.remove(key);
            return age;
        }
        let (known, since) = future.entry(key.to_owned()).or_insert((stamped, now));
        if *known != stamped {
            (*known, *since) = (stamped, now);
        }
        now.duration_since(*since).unwrap_or_default()
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

/// Reads the time and the text of a lease file. The text of a pipe or a device is damaged: to read one may never end.
fn read(path: &Path) -> io::Result<(SystemTime, Text)> {
    let file = OpenOptions::new().read(true).custom_flags(AT_ONCE).open(path)?;
    let found = file.metadata()?;
    let stamped = found.modified()?;
    let mut text = String::new();
    if found.is_file() {
        let _ = file.take(LONGEST).read_to_string(&mut text);
    }
    Ok((stamped, Text::read(&text)))
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
    stamp: Stamp,
}

impl Lease {
    /// Renews it. Returns `false` if it was lost.
    pub fn renew(&self) -> io::Result<bool> {
        Ok(self.write(&self.stamp.held())? && self.is_newest()?)
    }

    /// Ends it after the result was written: removes all leases of the cell.
    pub fn finish(&self) -> io::Result<()> {
        // The newest goes last: until then no other process can take the next number of a cell that seems free. A number may be
        // billions if the file of another program has such a name.
        let listing = Listing::read(&self.leases.folder)?;
        let known = listing.generations(&self.key).take_while(|number| *number <= self.generation);
        known.map(|number| self.leases.path(&self.key, number)).try_for_each(|path| {
            match fs::remove_file(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        })
    }

    /// Gives the cell back without a result.
    pub fn free(&self) -> io::Result<()> {
        self.write(&self.stamp.free()).map(|_| ())
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.leases.path(&self.key, self.generation)
    }

    /// Writes its text into its file. Returns `false` if the file is gone, of another lease, or given back.
    fn write(&self, text: &str) -> io::Result<bool> {
        let path = self.path();
        let written = read(&path).and_then(|(_, found)| match found {
            Text::Held(stamp) if stamp.mark != self.stamp.mark => Ok(false),
            Text::Free => Ok(false),
            // A damaged text is mended.
            Text::Held(_) | Text::Unknown => self.leases.clock.stamp(&path, text).map(|()| true),
        });
        match written {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            written => written,
        }
    }

    fn is_newest(&self) -> io::Result<bool> {
        Ok(!self.leases.path(&self.key, self.generation + 1).try_exists()?)
    }
}
