//! Leases in virtual time: holders that are paused or killed at any moment, and cells that run once.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use parm_grids::{Clock, Lease, Leases, Listing};
use proptest::prelude::*;
use tempfile::TempDir;

const LIMIT: u64 = 100;
/// The limit of the last process, shorter than a heartbeat of the others.
const SHORT: u64 = 20;
const LIMITS: [u64; 3] = [LIMIT, LIMIT, SHORT];
const BEAT: u64 = 25;

/// Milliseconds since a fixed moment.
#[derive(Default)]
struct Virtual(AtomicU64);

impl Virtual {
    fn at(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Clock for Virtual {
    fn stamp(&self, path: &Path, text: &str) -> io::Result<()> {
        let mut file = File::options().write(true).open(path)?;
        file.write_all(text.as_bytes())?;
        file.set_modified(self.now()?)
    }

    fn now(&self) -> io::Result<SystemTime> {
        Ok(SystemTime::UNIX_EPOCH + Duration::from_millis(1_000_000 + self.at()))
    }
}

/// One step of a schedule; the first number is a process.
#[derive(Clone, Debug)]
enum Step {
    /// Reads the folder, as the start of an attempt to take the cell.
    Read(usize),
    /// Takes the cell by its last reading.
    Claim(usize),
    Finish(usize),
    Free(usize),
    Pause(usize),
    Resume(usize),
    Kill(usize),
    Wait(u64),
    /// Empties the newest lease file, as a full or failing disk may.
    Truncate,
    /// Removes the result, so that numbers of leases repeat.
    Forget,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let process = || 0..3usize;
    let step = prop_oneof![
        4 => process().prop_map(Step::Read),
        6 => process().prop_map(Step::Claim),
        1 => process().prop_map(Step::Finish),
        1 => process().prop_map(Step::Free),
        3 => process().prop_map(Step::Pause),
        2 => process().prop_map(Step::Resume),
        2 => process().prop_map(Step::Kill),
        4 => (1..2 * LIMIT).prop_map(Step::Wait),
        1 => Just(Step::Truncate),
        1 => Just(Step::Forget),
    ];
    prop::collection::vec(step, 1..60)
}

/// A process as the schedule knows it.
#[derive(Default)]
struct Process {
    seen: Listing,
    lease: Option<Lease>,
    /// When it last renewed its lease.
    renewed: u64,
    /// Whether its lease file lost its text, and with it the limit, after that.
    damaged: bool,
    paused: bool,
}

/// The folder, its processes, and whether the cell has its result.
struct World {
    folder: TempDir,
    clock: Arc<Virtual>,
    /// The leases of each process.
    leases: Vec<Leases>,
    processes: Vec<Process>,
    has_result: bool,
}

impl World {
    fn new() -> Self {
        let (folder, clock) = (TempDir::new().unwrap(), Arc::new(Virtual::default()));
        let leases = |limit| {
            let leases = Leases::new(folder.path(), Duration::from_millis(limit)).unwrap();
            // Pods of one index have the same name.
            leases.with_clock(clock.clone(), "test")
        };
        let leases = LIMITS.map(leases).into();
        let processes = (0..3).map(|_| Process::default()).collect();
        Self { folder, clock, leases, processes, has_result: false }
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Read(of) if !self.processes[of].paused => {
                self.processes[of].seen = Listing::read(self.folder.path()).unwrap();
            }
            Step::Claim(of) if !self.processes[of].paused && self.processes[of].lease.is_none() => {
                self.claim(of)?
            }
            Step::Finish(of) if !self.processes[of].paused => {
                if let Some(lease) = self.processes[of].lease.take()
                    && lease.renew().unwrap()
                {
                    self.has_result = true;
                    lease.finish().unwrap();
                }
            }
            Step::Free(of) if !self.processes[of].paused => {
                if let Some(lease) = self.processes[of].lease.take() {
                    lease.free().unwrap();
                }
            }
            Step::Pause(of) => self.processes[of].paused = true,
            Step::Resume(of) => self.processes[of].paused = false,
            Step::Kill(of) => self.processes[of] = Process::default(),
            Step::Wait(time) => {
                for _ in 0..time.div_ceil(BEAT) {
                    self.clock.0.fetch_add(BEAT, Ordering::Relaxed);
                    self.beat()?;
                }
            }
            Step::Truncate => {
                let newest = Listing::read(self.folder.path()).unwrap().generation("cell");
                let path = self.folder.path().join(format!("cell.lease.{newest}"));
                if path.exists() {
                    // Its time is that of the machine: far in the virtual future.
                    File::create(path).unwrap();
                    self.processes.iter_mut().for_each(|process| process.damaged = process.lease.is_some());
                }
            }
            Step::Forget => self.has_result = false,
            _ => {}
        }
        Ok(())
    }

    /// Renews the leases of all processes that are not paused.
    fn beat(&mut self) -> Result<(), TestCaseError> {
        let now = self.clock.at();
        for process in self.processes.iter_mut().filter(|process| !process.paused) {
            match &process.lease {
                Some(lease) if lease.renew().unwrap() => (process.renewed, process.damaged) = (now, false),
                _ => process.lease = None,
            }
        }
        let renewed = self.processes.iter().filter(|one| one.lease.is_some() && one.renewed == now).count();
        prop_assert!(renewed <= 1, "{renewed} processes renewed the lease of the cell");
        Ok(())
    }

    /// Whether a process can still take the cell when all others are killed.
    fn is_free_in_the_end(&mut self) -> Result<(), TestCaseError> {
        self.has_result = false;
        (0..3).for_each(|of| self.processes[of] = Process::default());
        for _ in 0..4 {
            self.clock.0.fetch_add(LIMIT, Ordering::Relaxed);
            self.step(Step::Read(0))?;
            self.step(Step::Claim(0))?;
        }
        prop_assert!(self.processes[0].lease.is_some(), "a killed process holds the cell for ever");
        Ok(())
    }

    fn claim(&mut self, of: usize) -> Result<(), TestCaseError> {
        let now = self.clock.at();
        let Some(lease) = self.leases[of].claim("cell", &self.processes[of].seen).unwrap() else {
            return Ok(());
        };
        if self.has_result {
            lease.finish().unwrap();
            return Ok(());
        }
        for (process, limit) in self.processes.iter().zip(LIMITS) {
            let runs = process.lease.is_some();
            // Of a damaged lease a process knows no limit but its own.
            let limit = if process.damaged { LIMITS[of] } else { limit };
            let expired = now - process.renewed > limit;
            prop_assert!(
                !runs || expired,
                "two processes run the cell: the other renewed at {}",
                process.renewed
            );
        }
        let process = &mut self.processes[of];
        (process.lease, process.renewed, process.damaged) = (Some(lease), now, false);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cell_runs_twice_only_after_an_expired_lease(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.step(step)?;
        }
        world.is_free_in_the_end()?;
    }
}

#[test]
fn lease_of_a_killed_holder_expires_and_one_process_takes_it() {
    let mut world = World::new();
    for step in [Step::Claim(0), Step::Kill(0), Step::Read(1), Step::Read(2), Step::Claim(1)] {
        world.step(step).unwrap();
    }
    assert!(world.processes[1].lease.is_none(), "the lease has not expired");
    for step in [Step::Wait(LIMIT + BEAT), Step::Claim(1), Step::Claim(2)] {
        world.step(step).unwrap();
    }
    assert!(world.processes[1].lease.is_some() && world.processes[2].lease.is_none());
}

#[test]
fn old_reading_takes_no_cell_whose_numbers_began_anew() {
    let mut world = World::new();
    let before = [Step::Claim(0), Step::Free(0), Step::Read(1), Step::Claim(1), Step::Read(1)];
    let anew = [Step::Finish(1), Step::Forget, Step::Claim(1), Step::Claim(0)];
    before.into_iter().chain(anew).for_each(|step| world.step(step).unwrap());
    assert!(world.processes[1].lease.is_none() && world.processes[0].lease.is_some());
}

#[test]
fn damaged_lease_expires_after_the_limit_of_its_reader() {
    let mut world = World::new();
    let damage = [Step::Claim(0), Step::Read(1), Step::Read(2), Step::Truncate, Step::Pause(0)];
    let before = [Step::Claim(1), Step::Claim(2), Step::Wait(SHORT + 1), Step::Claim(1)];
    damage.into_iter().chain(before).for_each(|step| world.step(step).unwrap());
    assert!(world.processes[1].lease.is_none() && world.processes[2].lease.is_none());
    world.step(Step::Claim(2)).unwrap();
    assert!(world.processes[2].lease.is_some(), "its own limit is over");
    assert!(!world.processes[0].lease.as_ref().unwrap().renew().unwrap(), "the holder lost it");
}

#[test]
fn paused_holder_loses_the_cell_when_it_continues() {
    let mut world = World::new();
    let steps = [Step::Claim(0), Step::Pause(0), Step::Wait(2 * LIMIT), Step::Read(1), Step::Claim(1)];
    steps.into_iter().for_each(|step| world.step(step).unwrap());
    assert!(world.processes[1].lease.is_some());
    assert!(!world.processes[0].lease.as_ref().unwrap().renew().unwrap());
    world.step(Step::Finish(1)).unwrap();
    assert!(!world.processes[0].lease.as_ref().unwrap().renew().unwrap(), "the files are gone");
}
