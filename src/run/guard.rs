//! Ends the copies if parm itself ends without doing so: killed, out of memory, or by a second Ctrl-C.
//!
//! Problem: a copy that outlives parm holds its memory, often a graphics card's, and nobody knows of it. The kernel's signal at
//! the death of a parent reaches only the child itself, not the processes that it has started. Choice: a shell reads the
//! process groups of the copies from a pipe whose other end only parm has. When parm ends, for whatever reason, the kernel
//! closes the pipe, and the shell ends the groups of the last line.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

const SCRIPT: &str = r#"
while read -r line; do groups=$line; done
[ -n "$groups" ] || exit 0
for group in $groups; do kill -s TERM -- "-$group"; done
sleep 2
for group in $groups; do kill -s KILL -- "-$group"; done
"#;

/// The running copies, by their numbers.
#[derive(Debug)]
pub struct Guard(Mutex<State>);

#[derive(Debug)]
struct State {
    groups: BTreeMap<usize, Pid>,
    shell: Option<Child>,
}

impl Guard {
    pub fn start() -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // In a group of its own, so that Ctrl-C does not end it before it is needed.
        let shell = shell.process_group(0).spawn();
        if let Err(error) = &shell {
            tracing::warn!(%error, "no shell watches over the copies: they will outlive parm if it is killed");
        }
        Self(Mutex::new(State { groups: BTreeMap::new(), shell: shell.ok() }))
    }

    /// Notes the process group of a copy, or that it has none any more.
    pub fn note(&self, number: usize, group: Option<Pid>) {
        let State { groups, shell } = &mut *self.0.lock();
        match group {
            Some(group) => groups.insert(number, group),
            None => groups.remove(&number),
        };
        let listed: Vec<String> = groups.values().map(|group| group.as_raw_nonzero().to_string()).collect();
        if let Some(pipe) = shell.as_mut().and_then(|shell| shell.stdin.as_mut()) {
            // Without the shell the copies are only less guarded.
            let _ = writeln!(pipe, "{}", listed.join(" "));
        }
    }

    /// Sends a signal to each copy.
    pub fn pass(&self, signal: Signal) {
        for group in self.0.lock().groups.values() {
            // It may have ended just now.
            let _ = kill_process(*group, signal);
        }
    }
}
