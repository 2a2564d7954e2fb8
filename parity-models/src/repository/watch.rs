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
    /// Versions that could not be read at the last poll.
    unreadable: BTreeSet<Key>,
    /// Models whose folders could not be read at the last poll.
    unreadable_models: BTreeSet<String>,
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
            unreadable_models: scan.unreadable_models.keys().cloned().collect(),
        }
    }

    /// Polls the repository.
    pub fn poll(&mut self) -> Result<Poll, Error> {
        let scan = self.repository.scan()?;
        let found: BTreeMap<Key, Version> = versions(&scan).collect();
        let before = self.note_unreadable(&scan);
        let changes = self.forget_missing(&found);
        let mut poll = Poll { changes, problems: scan.problems, unreadable: Vec::new() };
        let versions = scan.unreadable.into_iter().filter(|(key, _)| !before.0.contains(key));
        poll.unreadable.extend(versions.map(|((name, _), error)| (name, error)));
        let models = scan.unreadable_models.into_iter().filter(|(name, _)| !before.1.contains(name));
        poll.unreadable.extend(models);
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

    /// Notes the versions and models that cannot be read now. Returns those of the last poll.
    fn note_unreadable(&mut self, scan: &Scan) -> (BTreeSet<Key>, BTreeSet<String>) {
        let (versions, models) = (scan.unreadable.keys().cloned(), scan.unreadable_models.keys().cloned());
        (
            mem::replace(&mut self.unreadable, versions.collect()),
            mem::replace(&mut self.unreadable_models, models.collect()),
        )
    }

    /// A version that cannot be read is not missing.
    fn forget_missing(&mut self, found: &BTreeMap<Key, Version>) -> Vec<Change> {
        let (unreadable, models) = (&self.unreadable, &self.unreadable_models);
        let present =
            |key: &Key| found.contains_key(key) || unreadable.contains(key) || models.contains(&key.0);
        // A link that is left where a volume was mounted is no sign of life.
        let hidden = models.iter().filter(|name| self.known.keys().any(|(known, _)| known == *name)).count();
        let seen = found.len() + unreadable.len() + hidden;
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
    use std::path::Path;
    use std::time::{Duration, SystemTime};

    use super::*;

    /// Writes with a distinct modification time, as two writes may share one tick of the file system's clock.
    fn write(root: &Path, file: &str, content: &str, seconds: u64) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_times(FileTimes::new().set_modified(time))
            .unwrap();
    }

    fn watch(root: &Path) -> Watch {
        let repository = Repository::open(root).unwrap();
        let scan = repository.scan().unwrap();
        Watch::new(repository, &scan)
    }

    #[test]
    fn version_that_vanished_at_the_start_is_found_later() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "a/1/model.onnx", "a", 1);
        write(root.path(), "b/1/model.onnx", "b", 1);
        let repository = Repository::open(root.path()).unwrap();
        let scan = repository.scan().unwrap();
        fs::remove_dir_all(root.path().join("b")).unwrap();
        let mut watch = Watch::new(repository, &scan);
        assert_eq!((changes(&mut watch), changes(&mut watch)), (vec![], vec![]));
        write(root.path(), "b/1/model.onnx", "b", 1);
        assert_eq!(changes(&mut watch), []);
        assert_eq!(changes(&mut watch), [Change::Added("b".into(), 1)]);
    }

    fn changes(watch: &mut Watch) -> Vec<Change> {
        watch.poll().unwrap().changes
    }

    #[test]
    fn changes_are_reported_once_they_have_settled() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "a/1/model.onnx", "a", 1);
        write(root.path(), "b/1/model.onnx", "b", 1);
        let mut watch = watch(root.path());
        assert_eq!(changes(&mut watch), []);
        write(root.path(), "a/1/model.onnx", "A", 2);
        write(root.path(), "a/2/model.onnx", "half", 2);
        fs::remove_dir_all(root.path().join("b")).unwrap();
        assert_eq!(changes(&mut watch), []);
        write(root.path(), "a/2/model.onnx", "half and half", 3);
        assert_eq!(changes(&mut watch), [Change::Removed("b".into(), 1), Change::Changed("a".into(), 1)]);
        assert_eq!(changes(&mut watch), [Change::Added("a".into(), 2)]);
        assert_eq!(changes(&mut watch), []);
    }

    #[test]
    fn folder_missing_from_one_poll_is_not_removed() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "a/1/model.onnx", "a", 1);
        write(root.path(), "b/1/model.onnx", "b", 1);
        let mut watch = watch(root.path());
        let (folder, aside) = (root.path().join("b"), tempfile::tempdir().unwrap());
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
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "a/1/model.onnx", "a", 1);
        write(root.path(), "a/2/model.onnx", "b", 1);
        let mut watch = watch(root.path());
        let link = root.path().join("a/2/labels.txt");
        std::os::unix::fs::symlink("/nowhere/labels.txt", &link).unwrap();
        for told in [1, 0, 0] {
            let poll = watch.poll().unwrap();
            assert_eq!((poll.changes, poll.unreadable.len(), poll.problems.len()), (vec![], told, 1));
        }
        fs::remove_file(&link).unwrap();
        assert_eq!((changes(&mut watch), changes(&mut watch)), (vec![], vec![]));
        fs::remove_dir_all(root.path().join("a/2")).unwrap();
        std::os::unix::fs::symlink("/nowhere/2", root.path().join("a/2")).unwrap();
        assert_eq!((changes(&mut watch), changes(&mut watch)), (vec![], vec![]));
        fs::remove_file(root.path().join("a/2")).unwrap();
        assert_eq!(changes(&mut watch), []);
        assert_eq!(changes(&mut watch), [Change::Removed("a".into(), 2)]);
    }

    #[test]
    fn unreadable_model_folder_is_not_removed_and_told_once() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "a/1/model.onnx", "a", 1);
        write(root.path(), "b/1/model.onnx", "b", 1);
        let mut watch = watch(root.path());
        let folder = root.path().join("b");
        fs::remove_dir_all(&folder).unwrap();
        std::os::unix::fs::symlink("/nowhere/b", &folder).unwrap();
        for told in [1, 0, 0] {
            let poll = watch.poll().unwrap();
            assert_eq!((poll.changes, poll.unreadable.len(), poll.problems.len()), (vec![], told, 1));
        }
        fs::remove_file(&folder).unwrap();
        write(root.path(), "b/1/model.onnx", "b", 1);
        assert_eq!((changes(&mut watch), changes(&mut watch)), (vec![], vec![]));
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(changes(&mut watch), []);
        assert_eq!(changes(&mut watch), [Change::Removed("b".into(), 1)]);
    }

    #[test]
    fn empty_repository_removes_nothing() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "a/1/model.onnx", "a", 1);
        let mut watch = watch(root.path());
        fs::remove_dir_all(root.path().join("a")).unwrap();
        (0..4).for_each(|_| assert_eq!(changes(&mut watch), []));
        write(root.path(), "a/1/model.onnx", "A", 2);
        assert_eq!(changes(&mut watch), []);
        assert_eq!(changes(&mut watch), [Change::Changed("a".into(), 1)]);
    }

    #[test]
    fn link_moved_to_an_equal_size_and_time_is_a_change() {
        let (root, builds) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (build, content) in [("x", "1"), ("y", "2")] {
            write(builds.path(), &format!("{build}/model.onnx"), content, 1);
        }
        let version = root.path().join("a/1");
        fs::create_dir_all(root.path().join("a")).unwrap();
        std::os::unix::fs::symlink(builds.path().join("x"), &version).unwrap();
        let mut watch = watch(root.path());
        fs::remove_file(&version).unwrap();
        std::os::unix::fs::symlink(builds.path().join("y"), &version).unwrap();
        assert_eq!(changes(&mut watch), []);
        assert_eq!(changes(&mut watch), [Change::Changed("a".into(), 1)]);
    }

    #[test]
    fn touched_file_is_not_a_change() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "a/1/model.onnx", "a", 1);
        let mut watch = watch(root.path());
        write(root.path(), "a/1/model.onnx", "a", 2);
        assert_eq!((changes(&mut watch), changes(&mut watch)), (vec![], vec![]));
    }

    #[test]
    fn changed_pooling_is_a_change() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "a/1/model.onnx", "a", 1);
        let mut watch = watch(root.path());
        let changed = [Change::Changed("a".into(), 1)];
        for (content, seconds) in [("new", 2), ("other", 3)] {
            write(root.path(), "a/1/1_Pooling/config.json", content, seconds);
            assert_eq!((changes(&mut watch), &changes(&mut watch)[..]), (vec![], &changed[..]), "{content}");
        }
        fs::remove_dir_all(root.path().join("a/1/1_Pooling")).unwrap();
        assert_eq!((changes(&mut watch), &changes(&mut watch)[..]), (vec![], &changed[..]), "removed");
        write(root.path(), "a/1/1_Pooling/notes.txt", "another file", 4);
        assert_eq!((changes(&mut watch), changes(&mut watch)), (vec![], vec![]));
    }

    #[test]
    fn changed_external_data_is_a_change() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "a/1/model.onnx", "a", 1);
        write(root.path(), "a/1/model.onnx.data", "1", 1);
        let mut watch = watch(root.path());
        write(root.path(), "a/1/model.onnx.data", "2", 2);
        assert_eq!(changes(&mut watch), []);
        assert_eq!(changes(&mut watch), [Change::Changed("a".into(), 1)]);
    }
}
