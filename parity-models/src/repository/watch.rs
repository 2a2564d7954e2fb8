//! Finds the changes of a repository between two polls.
//!
//! Polling, not notification: file systems on network mounts and in container layers often do not notify. Sizes, times
//! and inodes show which files to read, digests whether they changed: `touch` reloads nothing. A file that is being copied
//! changes from poll to poll, so a change is reported once two successive polls agree. A missing version is reported as
//! removed once two successive polls miss it, but never by a poll that finds no version at all: a volume that is
//! mounted again must not unload served models. Times are compared for equality, not for order, so a clock that was set
//! back hides no change.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use parm_protocol::Absence;

use super::{Repository, Scan, Version};
use crate::Error;

type Key = (String, u64);

/// The change of one version of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is new.
    Added(String, u64),
    /// Its content has changed.
    Changed(String, u64),
    /// It is missing, or has no model file.
    Removed(String, u64),
}

/// The result of a poll.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Poll {
    /// Changes since the last poll, removals first.
    pub changes: Vec<Change>,
    /// Current errors, by model.
    pub problems: Vec<(String, Error)>,
    /// The errors of versions and models that could be read, or were not there, at the last poll.
    pub unreadable: Vec<(String, Error)>,
}

/// A repository and its last reported state.
#[derive(Debug)]
pub struct Watch {
    repository: Repository,
    known: BTreeMap<Key, Known>,
    /// Versions that changed at the last poll and may still be changing.
    settling: BTreeMap<Key, Version>,
    absence: Absence<Key>,
    /// Models and versions that could not be read at the last poll.
    unreadable: BTreeSet<(String, Option<u64>)>,
}

#[derive(Debug)]
struct Known {
    version: Version,
    content: String,
}

impl Watch {
    /// Starts from the state in `scan`: only later changes are reported. A version that cannot be read counts as new once it
    /// can.
    pub fn new(repository: Repository, scan: &Scan) -> Self {
        let known = versions(scan).filter_map(|(key, version)| {
            let content = version.content().ok()?;
            Some((key, Known { version, content }))
        });
        let known = known.collect();
        Self {
            repository,
            known,
            settling: BTreeMap::new(),
            absence: Absence::default(),
            unreadable: scan.unreadable.keys().cloned().collect(),
        }
    }

    /// Polls the repository.
    pub fn poll(&mut self) -> Result<Poll, Error> {
        let scan = self.repository.scan()?;
        let found: BTreeMap<Key, Version> = versions(&scan).collect();
        let before = mem::replace(&mut self.unreadable, scan.unreadable.keys().cloned().collect());
        let changes = self.forget_missing(&found);
        let fresh = scan.unreadable.into_iter().filter(|(key, _)| !before.contains(key));
        let unreadable = fresh.map(|((name, _), error)| (name, error)).collect();
        let mut poll = Poll { changes, problems: scan.problems, unreadable };
        let mut settling = BTreeMap::new();
        for (key, version) in found {
            if self.known.get(&key).is_some_and(|known| known.version == version) {
                continue;
            }
            if self.settling.get(&key) != Some(&version) {
                settling.insert(key, version);
                continue;
            }
            match version.content() {
                Ok(content) => poll.changes.extend(self.learn(key, Known { version, content })),
                Err(error) => poll.problems.push((key.0, error)),
            }
        }
        self.settling = settling;
        Ok(poll)
    }

    /// A version that cannot be read is not missing.
    fn forget_missing(&mut self, found: &BTreeMap<Key, Version>) -> Vec<Change> {
        let is_hidden =
            |name: &str, version: Option<u64>| self.unreadable.contains(&(name.to_owned(), version));
        let present =
            |key: &Key| found.contains_key(key) || is_hidden(&key.0, Some(key.1)) || is_hidden(&key.0, None);
        // A link that is left where a volume was mounted is no sign of life.
        let is_known = |name: &String| self.known.keys().any(|(known, _)| known == name);
        let hidden = self.unreadable.iter().filter(|(name, version)| version.is_some() || is_known(name));
        let seen = found.len() + hidden.count();
        let gone = self.absence.look(self.known.keys(), seen, present);
        self.known.retain(|key, _| !gone.contains(key));
        gone.into_iter().map(|(name, version)| Change::Removed(name, version)).collect()
    }

    fn learn(&mut self, key: Key, new: Known) -> Option<Change> {
        let (name, number) = key.clone();
        let content = new.content.clone();
        match self.known.insert(key, new) {
            None => Some(Change::Added(name, number)),
            Some(old) if old.content != content => Some(Change::Changed(name, number)),
            Some(_) => None,
        }
    }
}

fn versions(scan: &Scan) -> impl Iterator<Item = (Key, Version)> + '_ {
    scan.models.values().flat_map(|model| {
        model.versions.iter().map(|(&number, version)| ((model.name.clone(), number), version.clone()))
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, FileTimes};
    use std::path::PathBuf;
    use std::time::{Duration, SystemTime};

    use super::*;

    /// A repository in a temporary folder.
    struct Disk(tempfile::TempDir);

    impl Disk {
        /// With one version of these models.
        fn with(models: &[&str]) -> Self {
            let disk = Self(tempfile::tempdir().unwrap());
            models.iter().for_each(|name| disk.write(&format!("{name}/1/model.onnx"), name, 1));
            disk
        }

        fn at(&self, file: &str) -> PathBuf {
            self.0.path().join(file)
        }

        /// Writes with a distinct modification time, as two writes may share one tick of the file system's clock.
        fn write(&self, file: &str, content: &str, seconds: u64) {
            let path = self.at(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, content).unwrap();
            let times = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
            File::options().write(true).open(path).unwrap().set_times(times).unwrap();
        }

        fn remove(&self, folder: &str) {
            fs::remove_dir_all(self.at(folder)).unwrap();
        }

        fn watch(&self) -> Watch {
            let repository = Repository::open(self.0.path()).unwrap();
            let scan = repository.scan().unwrap();
            Watch::new(repository, &scan)
        }
    }

    fn changes(watch: &mut Watch) -> Vec<Change> {
        watch.poll().unwrap().changes
    }

    #[test]
    fn version_that_vanished_at_the_start_is_found_later() {
        let disk = Disk::with(&["a", "b"]);
        let repository = Repository::open(disk.0.path()).unwrap();
        let scan = repository.scan().unwrap();
        disk.remove("b");
        let mut watch = Watch::new(repository, &scan);
        assert_eq!((changes(&mut watch), changes(&mut watch)), (vec![], vec![]));
        disk.write("b/1/model.onnx", "b", 1);
        assert_eq!(changes(&mut watch), []);
        assert_eq!(changes(&mut watch), [Change::Added("b".into(), 1)]);
    }

    #[test]
    fn changes_are_reported_once_they_have_settled() {
        let disk = Disk::with(&["a", "b"]);
        let mut watch = disk.watch();
        assert_eq!(changes(&mut watch), []);
        disk.write("a/1/model.onnx", "A", 2);
        disk.write("a/2/model.onnx", "half", 2);
        disk.remove("b");
        assert_eq!(changes(&mut watch), []);
        disk.write("a/2/model.onnx", "half and half", 3);
        assert_eq!(changes(&mut watch), [Change::Removed("b".into(), 1), Change::Changed("a".into(), 1)]);
        assert_eq!(changes(&mut watch), [Change::Added("a".into(), 2)]);
        assert_eq!(changes(&mut watch), []);
    }

    #[test]
    fn folder_missing_from_one_poll_is_not_removed() {
        let disk = Disk::with(&["a", "b"]);
        let mut watch = disk.watch();
        let (folder, aside) = (disk.at("b"), tempfile::tempdir().unwrap());
        for _ in 0..3 {
            fs::rename(&folder, aside.path().join("b")).unwrap();
            assert_eq!(changes(&mut watch), []);
            fs::rename(aside.path().join("b"), &folder).unwrap();
            assert_eq!(changes(&mut watch), []);
        }
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(changes(&mut watch), []);
        assert_eq!(changes(&mut watch), [Change::Removed("b".into(), 1)]);
        assert_eq!(changes(&mut watch), []);
    }

    #[test]
    fn unreadable_version_is_not_removed_and_told_once() {
        let disk = Disk::with(&["a"]);
        disk.write("a/2/model.onnx", "b", 1);
        let mut watch = disk.watch();
        let link = disk.at("a/2/labels.txt");
        std::os::unix::fs::symlink("/nowhere/labels.txt", &link).unwrap();
        for told in [1, 0, 0] {
            let poll = watch.poll().unwrap();
            assert_eq!((poll.changes, poll.unreadable.len(), poll.problems.len()), (vec![], told, 1));
        }
        fs::remove_file(&link).unwrap();
        assert_eq!((changes(&mut watch), changes(&mut watch)), (vec![], vec![]));
        disk.remove("a/2");
        std::os::unix::fs::symlink("/nowhere/2", disk.at("a/2")).unwrap();
        assert_eq!((changes(&mut watch), changes(&mut watch)), (vec![], vec![]));
        fs::remove_file(disk.at("a/2")).unwrap();
        assert_eq!(changes(&mut watch), []);
        assert_eq!(changes(&mut watch), [Change::Removed("a".into(), 2)]);
    }

    #[test]
    fn unreadable_model_folder_is_not_removed_and_told_once() {
        let disk = Disk::with(&["a", "b"]);
        let mut watch = disk.watch();
        let folder = disk.at("b");
        fs::remove_dir_all(&folder).unwrap();
        std::os::unix::fs::symlink("/nowhere/b", &folder).unwrap();
        for told in [1, 0, 0] {
            let poll = watch.poll().unwrap();
            assert_eq!((poll.changes, poll.unreadable.len(), poll.problems.len()), (vec![], told, 1));
        }
        fs::remove_file(&folder).unwrap();
        disk.write("b/1/model.onnx", "b", 1);
        assert_eq!((changes(&mut watch), changes(&mut watch)), (vec![], vec![]));
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(changes(&mut watch), []);
        assert_eq!(changes(&mut watch), [Change::Removed("b".into(), 1)]);
    }

    #[test]
    fn empty_repository_removes_nothing() {
        let disk = Disk::with(&["a"]);
        let mut watch = disk.watch();
        disk.remove("a");
        (0..4).for_each(|_| assert_eq!(changes(&mut watch), []));
        disk.write("a/1/model.onnx", "A", 2);
        assert_eq!(changes(&mut watch), []);
        assert_eq!(changes(&mut watch), [Change::Changed("a".into(), 1)]);
    }

    #[test]
    fn link_moved_to_an_equal_size_and_time_is_a_change() {
        let (disk, builds) = (Disk::with(&[]), Disk::with(&["x", "y"]));
        let version = disk.at("a/1");
        fs::create_dir_all(disk.at("a")).unwrap();
        std::os::unix::fs::symlink(builds.at("x/1"), &version).unwrap();
        let mut watch = disk.watch();
        fs::remove_file(&version).unwrap();
        std::os::unix::fs::symlink(builds.at("y/1"), &version).unwrap();
        assert_eq!(changes(&mut watch), []);
        assert_eq!(changes(&mut watch), [Change::Changed("a".into(), 1)]);
    }

    #[test]
    fn changed_pooling_and_external_data_are_changes_and_other_files_are_not() {
        let disk = Disk::with(&["a"]);
        disk.write("a/1/model.onnx.data", "1", 1);
        let mut watch = disk.watch();
        let changed = [Change::Changed("a".into(), 1)];
        let (pooling, data) = ("a/1/1_Pooling/config.json", "a/1/model.onnx.data");
        for (file, content, seconds) in [(pooling, "new", 2), (pooling, "other", 3), (data, "2", 4)] {
            disk.write(file, content, seconds);
            assert_eq!((changes(&mut watch), &changes(&mut watch)[..]), (vec![], &changed[..]), "{content}");
        }
        disk.remove("a/1/1_Pooling");
        assert_eq!((changes(&mut watch), &changes(&mut watch)[..]), (vec![], &changed[..]), "removed");
        // Another file, and one that was only touched.
        for (file, content) in [("a/1/1_Pooling/notes.txt", "another file"), ("a/1/model.onnx", "a")] {
            disk.write(file, content, 5);
            assert_eq!((changes(&mut watch), changes(&mut watch)), (vec![], vec![]), "{file}");
        }
    }
}
