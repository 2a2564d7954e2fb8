//! Cells of a grid on the command line: lists, shares and joins of experiments and matrices.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parm_grids::{Cell, Folder, Joined, Queue, Selection, Share, Summary};

use crate::Failure;
use crate::cli::Output;
use crate::cli::grid::Grid;

/// Problems of a join that are printed.
const PRINTED: usize = 20;

/// The task of a command with these flags.
pub enum Task {
    /// Run everything as one process.
    Whole,
    /// Print the cells.
    List,
    /// Run cells of a folder that other processes share.
    Run(Selection),
    /// Join folders.
    Join(Vec<PathBuf>),
}

impl Task {
    /// Reads the flags.
    pub fn of(flags: &Grid) -> Self {
        let keys = || Selection::Keys(flags.cell.clone());
        match flags.share {
            _ if flags.list => Self::List,
            _ if !flags.join.is_empty() => Self::Join(flags.join.clone()),
            _ if !flags.cell.is_empty() => Self::Run(keys()),
            Some(share) => Self::Run(Selection::Share(share)),
            None => Self::Whole,
        }
    }
}

/// Opens the cells in a folder of results.
pub fn folder(results: &Path, kind: &'static str, flags: &Grid) -> anyhow::Result<Folder> {
    Ok(Folder::open(results, kind, Duration::from_secs(flags.lease.into()))?)
}

/// Returns the selected cells. An unknown key ends with status 64.
pub fn selected(selection: &Selection, cells: &[Cell]) -> Result<Vec<Cell>, Failure> {
    let found = selection.of(cells).map_err(|error| Failure::Configuration(error.into()))?;
    if let Selection::Share(share) = selection
        && *share != Share::ALL
    {
        eprintln!("share {share}: {} of {} cells", found.len(), cells.len());
    }
    Ok(found)
}

/// Prints the cells with their states.
pub fn list(folder: &Folder, cells: &[Cell], output: Output) -> anyhow::Result<()> {
    let summary = Summary::read(folder, cells)?;
    let mut out = crate::printer::stdout();
    match output {
        Output::Json => writeln!(out, "{}", serde_json::to_string_pretty(&summary)?)?,
        Output::Text => writeln!(out, "{summary}")?,
    }
    Ok(())
}

/// Reports what a join left out. Returns whether all cells have results.
pub fn reported(joined: &Joined) -> bool {
    joined.problems.iter().take(PRINTED).for_each(|problem| eprintln!("{problem}"));
    if joined.problems.len() > PRINTED {
        eprintln!("and {} more; --list names all cells", joined.problems.len() - PRINTED);
    }
    match joined.foreign.as_slice() {
        [] => {}
        [first, rest @ ..] => eprintln!(
            "ignored {} result files of other settings, such as {}",
            rest.len() + 1,
            first.display()
        ),
    }
    joined.problems.is_empty()
}

/// Runs `work`. If a signal comes first, gives the cells of the queue back and ends with status 1.
pub fn until_signal<T>(queue: &Queue<'_>, work: impl FnOnce() -> T) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let signal = {
        let _inside = runtime.enter();
        crate::shutdown::token()?
    };
    let ended = AtomicBool::new(false);
    let result = thread::scope(|scope| {
        let _set_also_after_a_panic = SetAtEnd(&ended);
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                if signal.is_cancelled() {
                    queue.abandon();
                    eprintln!("stopped: run the command again to continue");
                    #[allow(clippy::disallowed_methods)] // runs cannot be interrupted
                    std::process::exit(1);
                }
                thread::sleep(Duration::from_millis(20));
            }
        });
        work()
    });
    runtime.shutdown_background();
    Ok(result)
}

/// Sets a flag when it is dropped: a scope waits for its threads before it passes a panic on.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn panic_of_a_run_ends_the_wait_for_signals() {
        let (tell, told) = mpsc::sync_channel(1);
        // Threads of tests have a name with colons: their panics are no defects of other tests' servers.
        let run = thread::Builder::new().name("grid::tests".to_owned());
        let run = run.spawn(move || {
            let results = tempfile::tempdir().unwrap();
            let folder = Folder::open(results.path(), "test", Duration::from_secs(60)).unwrap();
            let queue = Queue::new(&folder, Vec::new());
            let run = || until_signal(&queue, || panic!("a defect of a run"));
            let ended: Result<anyhow::Result<()>, _> = catch_unwind(AssertUnwindSafe(run));
            tell.send(ended.is_err()).unwrap();
        });
        assert!(run.is_ok());
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(true), "it waits for ever");
    }
}
