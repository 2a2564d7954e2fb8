//! Runs the real binary as a child process on free ports, and kills it when the test ends.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Timeout of all waits. No test measures a time with it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running `parm serve` or `parm worker`.
pub struct Parm {
    child: Child,
    folder: TempDir,
    /// HTTP address.
    pub http: SocketAddr,
    /// gRPC address.
    pub grpc: SocketAddr,
    /// Metrics address.
    pub metrics: SocketAddr,
    /// Admin address, if there is one.
    pub admin: Option<SocketAddr>,
}

impl Parm {
    /// Starts `parm ARGUMENTS...` on free ports and waits until it can predict.
    pub fn start(arguments: &[&str]) -> Parm {
        let parm = Self::listening(arguments);
        parm.until("it is ready", |parm| super::http::get(parm.http, "/v2/health/ready").status == 200);
        parm
    }

    /// The same, but waits only until it has written its readiness file.
    pub fn listening(arguments: &[&str]) -> Parm {
        Self::try_start(arguments).unwrap_or_else(|problem| panic!("parm {}: {problem}", arguments.join(" ")))
    }

    /// A frontend with embedded instances of the test models.
    pub fn serve(arguments: &[&str]) -> Parm {
        Self::start(&[&["serve", "--models", "tests/models"], arguments].concat())
    }

    /// A worker with the test models.
    pub fn worker(arguments: &[&str]) -> Parm {
        Self::start(&[&["worker", "--models", "tests/models", "--instances", "1"], arguments].concat())
    }

    /// A frontend over these workers, by HTTP upgrade.
    pub fn frontend(workers: &[&Parm], arguments: &[&str]) -> Parm {
        let urls: Vec<String> = workers.iter().map(|worker| format!("http://{}", worker.http)).collect();
        let mut command = vec!["serve"];
        for url in &urls {
            command.extend(["--worker", url]);
        }
        Self::start(&[&command, arguments].concat())
    }

    /// A frontend like [`Parm::serve`] that can write only some kilobytes to a file, as on a full disk.
    pub fn serve_on_full_disk(arguments: &[&str]) -> Parm {
        let mut limited = Command::new("sh");
        limited.args(["-c", "trap '' XFSZ; ulimit -f 16; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_parm")]);
        let parm =
            Self::try_launch(alone(limited), &[&["serve", "--models", "tests/models"], arguments].concat());
        parm.unwrap_or_else(|problem| panic!("parm {}: {problem}", arguments.join(" ")))
    }

    /// The same in another folder, which also is that of temporary files.
    pub fn start_in(folder: &Path, arguments: &[&str]) -> Parm {
        let mut command = command();
        command.current_dir(folder).env("TMPDIR", folder);
        Self::try_launch(command, arguments)
            .unwrap_or_else(|problem| panic!("parm {}: {problem}", arguments.join(" ")))
    }

    fn try_start(arguments: &[&str]) -> Result<Parm, String> {
        Self::try_launch(command(), arguments)
    }

    fn try_launch(mut command: Command, arguments: &[&str]) -> Result<Parm, String> {
        let folder = TempDir::new().map_err(|error| error.to_string())?;
        let ready = folder.path().join("ready.json");
        let log = fs::File::create(folder.path().join("log")).map_err(|error| error.to_string())?;
        let local = "127.0.0.1:0";
        // What follows `--` is the command of `parm run`.
        let own = arguments.iter().position(|word| *word == "--").unwrap_or(arguments.len());
        let mut child = command
            .args(&arguments[..own])
            .args(["--http", local, "--grpc", local, "--metrics", local, "--ready-file"])
            .arg(&ready)
            .args(&arguments[own..])
            .stderr(log)
            .spawn()
            .map_err(|error| error.to_string())?;
        match wait_for(&ready, &mut child) {
            Ok(text) => {
                let addresses: serde_json::Value =
                    serde_json::from_str(&text).map_err(|error| error.to_string())?;
                let address = |name: &str| addresses[name].as_str().unwrap_or_default().parse().unwrap();
                Ok(Parm {
                    http: address("http"),
                    grpc: address("grpc"),
                    metrics: address("metrics"),
                    admin: addresses["admin"].as_str().map(|address| address.parse().unwrap()),
                    child,
                    folder,
                })
            }
            Err(problem) => {
                let _ = child.kill();
                let _ = child.wait();
                let log = fs::read_to_string(folder.path().join("log")).unwrap_or_default();
                Err(format!("{problem}\n{log}"))
            }
        }
    }

    /// Sends a signal by its name: `KILL`, `TERM`, `STOP`, `CONT`.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success(), "kill -s {name}");
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A field of its memory in bytes: `VmRSS` now, `VmHWM` at its peak.
    pub fn memory(&self, field: &str) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
    }

    /// What its descriptors are.
    pub fn descriptors(&self) -> Vec<String> {
        let open = fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap();
        let targets = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        targets.map(|target| target.display().to_string()).collect()
    }

    /// Waits for the process to end by itself.
    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the process did not end; its log:\n{}", self.log());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Its metrics page.
    pub fn metrics(&self) -> String {
        super::http::get(self.metrics, "/metrics").body_text()
    }

    /// The sum of a metric's samples over all label sets that contain every one of `labels`.
    pub fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        self.metrics()
            .lines()
            .filter(|line| line.starts_with(name))
            .filter(|line| {
                line[name.len()..].starts_with(['{', ' ']) && labels.iter().all(|label| line.contains(label))
            })
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    /// Waits until a condition on the process holds.
    pub fn until(&self, what: &str, condition: impl Fn(&Parm) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !condition(self) {
            assert!(Instant::now() < deadline, "timed out waiting until {what}; the log:\n{}", self.log());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the affine test model is served.
    pub fn until_model_ready(&self) {
        self.until("the model is ready", |parm| {
            super::http::get(parm.http, "/v2/models/affine/ready").status == 200
        });
    }
}

impl Drop for Parm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("the log of process {}:\n{}", self.child.id(), self.log());
        }
    }
}

/// The binary, run from the project's root, with nothing of the caller's environment that could configure it.
pub fn command() -> Command {
    alone(Command::new(env!("CARGO_BIN_EXE_parm")))
}

fn alone(mut command: Command) -> Command {
    command.current_dir(root()).stdin(Stdio::null());
    // Variables of the caller must not affect the tests. The last three are places where ONNX Runtime is searched for.
    for name in ["RUST_LOG", "RUST_BACKTRACE", "ORT_DYLIB_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"] {
        command.env_remove(name);
    }
    command
}

/// Runs a command. A command that does not end in time is killed, and its status shows this.
pub fn run(arguments: &[&str]) -> Output {
    let mut child = command().args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    child.wait_with_output().unwrap()
}

/// The status of a command, and all that it prints.
pub fn told(arguments: &[&str]) -> (Option<i32>, String) {
    let output = run(arguments);
    (output.status.code(), text(&[output.stdout, output.stderr].concat()))
}

/// The output of a command that must succeed.
pub fn succeeds(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// The errors of a command that must fail, with this status if one is given, and say this.
pub fn refused(arguments: &[&str], status: Option<i32>, words: &str) -> String {
    let output = run(arguments);
    let said = text(&output.stderr);
    let code = output.status.code();
    assert!(
        code != Some(0) && (status.is_none() || code == status),
        "{arguments:?} ends with {code:?}: {said}"
    );
    assert!(said.contains(words), "{arguments:?} must say '{words}': {said}");
    said
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A folder with a configuration file, and the file's path.
pub fn configuration(text: &str) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("worker.toml");
    fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

/// The project's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

fn wait_for(ready: &Path, child: &mut Child) -> Result<String, String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Ok(text) = fs::read_to_string(ready) {
            return Ok(text);
        }
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return Err(format!("ended with {status} before it was ready"));
        }
        if Instant::now() > deadline {
            return Err(format!("was not ready after {PATIENCE:?}"));
        }
        thread::sleep(Duration::from_millis(5));
    }
}
