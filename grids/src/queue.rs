//! The loop of a process: takes cells without a result until every one of them has one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Cell, Error, Folder, Found, Kept, Lease, Product};

/// The cells of a process. Threads take them one by one.
pub struct Queue<'a> {
    folder: &'a Folder,
    cells: Vec<Cell>,
    done: Mutex<BTreeSet<usize>>,
    held: Mutex<BTreeMap<usize, Arc<Kept>>>,
}

impl<'a> Queue<'a> {
    /// Creates the queue of these cells.
    pub fn new(folder: &'a Folder, cells: Vec<Cell>) -> Self {
        Self { folder, cells, done: Mutex::default(), held: Mutex::default() }
    }

    /// Takes the next cell. Waits while other processes hold all that have no result: their leases may expire. Returns
    /// `None` when every cell has a result or runs in this process, or when `stop` says so.
    pub fn next(&self, stop: &dyn Fn() -> bool) -> Result<Option<Held<'_>>, Error> {
        loop {
            let mut waits = false;
            let listing = self.folder.listing()?;
            for (index, cell) in self.cells.iter().enumerate() {
                if stop() {
                    return Ok(None);
                }
                if lock(&self.done).contains(&index) || lock(&self.held).contains_key(&index) {
                    continue;
                }
                if listing.has_result(&cell.key) && self.has_result(index)? {
                    continue;
                }
                let lease = self.folder.leases().claim(&cell.key, &listing);
                let Some(lease) = lease.map_err(Error::file("lease", &self.folder.result_path(&cell.key)))?
                else {
                    waits = true;
                    continue;
                };
                // The result may be newer than the listing.
                if self.has_result(index)? {
                    lease.finish().map_err(Error::file("release", &self.folder.result_path(&cell.key)))?;
                    continue;
                }
                return Ok(Some(Held::new(self, index, lease)));
            }
            if !waits {
                return Ok(None);
            }
            self.folder.leases().pause(stop);
        }
    }

    /// Returns the number of cells without a result that this process has not begun.
    pub fn left(&self) -> usize {
        // In the order of `next`.
        let (done, held) = (lock(&self.done), lock(&self.held));
        // A cell that gets its result in this moment is in both.
        (0..self.cells.len()).filter(|index| !held.contains_key(index) && !done.contains(index)).count()
    }

    /// Gives all cells of this process back before it ends in the middle of them.
    pub fn abandon(&self) {
        lock(&self.held).values().for_each(|kept| kept.abandon());
    }

    /// A damaged result counts as none: the new one replaces it.
    fn has_result(&self, index: usize) -> Result<bool, Error> {
        let cell = &self.cells[index];
        let Found::Whole(record) = self.folder.found(cell) else { return Ok(false) };
        let path = self.folder.result_path(&cell.key);
        if !record.is_of_this_version() {
            let (name, version) = (cell.name.clone(), record.version.clone());
            return Err(Error::OtherVersion { name, version, path });
        }
        if let Some(input) = record.other_input(cell) {
            return Err(Error::OtherInputs { name: cell.name.clone(), input, path });
        }
        lock(&self.done).insert(index);
        Ok(true)
    }
}

/// A cell that this process runs. Dropped without a result, it is free for other processes.
pub struct Held<'a> {
    queue: &'a Queue<'a>,
    index: usize,
    kept: Arc<Kept>,
}

impl<'a> Held<'a> {
    fn new(queue: &'a Queue<'a>, index: usize, lease: Lease) -> Self {
        let kept = Arc::new(Kept::new(lease, queue.folder.leases().limit()));
        lock(&queue.held).insert(index, kept.clone());
        Self { queue, index, kept }
    }

    /// Returns the cell.
    pub fn cell(&self) -> &Cell {
        &self.queue.cells[self.index]
    }

    /// Whether the lease was lost, so that another process may run the cell.
    pub fn is_lost(&self) -> bool {
        self.kept.is_lost()
    }

    /// Writes the result, unless the lease was lost.
    pub fn finish(self, product: Product) -> Result<(), Error> {
        if !self.kept.is_held()? {
            return Err(Error::Lost { name: self.cell().name.clone() });
        }
        self.queue.folder.keep(self.cell(), product)?;
        lock(&self.queue.done).insert(self.index);
        self.kept.finish()
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        lock(&self.queue.held).remove(&self.index);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
