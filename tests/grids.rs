//! Grids with the real binary: processes on one folder, killed ones, and the contract of the Kubernetes recipe.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::process::{PATIENCE, command, root};

const FILE: &str = r#"
queries = 6000
warm_up = 500
loads = [0.5, 0.7]
repeats = 2
policies = ["equal", "hedge", "stand-in"]
scenarios = ["A"]
"#;

struct Grid(TempDir);

impl Grid {
    fn new(text: &str) -> Self {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("grid.toml"), text).unwrap();
        Self(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// `parm experiment grid.toml --simulate --results NAME`.
    fn command(&self, results: &str, more: &[&str]) -> Command {
        let mut command = command();
        command.current_dir(self.path()).args([
            "experiment",
            "grid.toml",
            "--simulate",
            "--results",
            results,
        ]);
        command.args(more).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, results: &str, more: &[&str]) -> Output {
        self.command(results, more).output().unwrap()
    }

    fn json(&self, results: &str, more: &[&str]) -> Value {
        let output = self.run(results, &[more, &["--output", "json"]].concat());
        assert!(output.status.success(), "{}", text(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn results(&self, name: &str) -> usize {
        let Ok(entries) = fs::read_dir(self.path().join(name).join("cells")) else { return 0 };
        let is_result = |name: String| name.ends_with(".json");
        entries.filter(|entry| is_result(entry.as_ref().unwrap().file_name().into_string().unwrap())).count()
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The arguments of the container in the recipe, with the variable that Kubernetes sets and the paths of this test.
fn arguments(index: u32) -> Vec<String> {
    let yaml = fs::read_to_string(root().join("deploy/grids/kubernetes.yaml")).unwrap();
    let line = yaml.lines().find_map(|line| line.trim().strip_prefix("args: [")).unwrap();
    let words = line.trim_end_matches(']').split(',').map(|word| word.trim().to_owned());
    let here = |word: String| match word.as_str() {
        "/grid/experiment.toml" => "grid.toml".into(),
        "/results" => "job".into(),
        _ => word.replace("$(JOB_COMPLETION_INDEX)", &index.to_string()),
    };
    words.map(here).collect()
}

#[test]
fn pods_of_the_indexed_job_fill_one_folder() {
    let grid = Grid::new(FILE);
    for index in 0..4 {
        let mut pod = command();
        pod.current_dir(grid.path()).args(arguments(index)).env("JOB_COMPLETION_INDEX", index.to_string());
        let output = pod.output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        let listed = grid.json("job", &["--list"]);
        assert_eq!(listed["done"], grid.results("job"), "progress of a folder that is being filled");
    }
    let one = grid.json("one", &[]);
    assert_eq!(grid.json("joined", &["--join", "job"]), one);
    assert_eq!(grid.json("joined", &["--join", "job"]), one, "a join can be repeated");
}

#[test]
fn killed_process_loses_its_cell_after_the_lease() {
    let grid = Grid::new(&FILE.replace("6000", "40000000").replace("repeats = 2", "repeats = 1"));
    let cells = grid.json("all", &["--list"])["cells"].clone();
    let key = cells[0]["key"].as_str().unwrap();
    let mut killed = grid.command("all", &["--cell", key, "--lease", "2"]).spawn().unwrap();
    let lease = grid.path().join(format!("all/cells/{key}.lease.1"));
    let deadline = Instant::now() + PATIENCE;
    while !fs::read_to_string(&lease).is_ok_and(|text| text.starts_with("held by")) {
        assert!(Instant::now() < deadline, "it took no lease");
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(grid.json("all", &["--list"])["cells"][0]["state"], "held");
    kill_process(Pid::from_child(&killed), Signal::KILL).unwrap();
    killed.wait().unwrap();
    // Another process waits for the lease of two seconds, whatever its own limit, and then runs the cell.
    let mut other = grid.command("all", &["--cell", key, "--lease", "3600"]).spawn().unwrap();
    let next = grid.path().join(format!("all/cells/{key}.lease.2"));
    while !next.exists() {
        assert!(Instant::now() < deadline, "it did not take the cell");
        thread::sleep(Duration::from_millis(10));
    }
    // A signal gives the cell back at once.
    kill_process(Pid::from_child(&other), Signal::TERM).unwrap();
    assert_eq!(other.wait().unwrap().code(), Some(1));
    assert_eq!(grid.json("all", &["--list"])["cells"][0]["state"], "free");
}

#[test]
fn processes_killed_at_any_moment_leave_whole_files() {
    let grid = Grid::new(&FILE.replace("6000", "20000"));
    let states = || grid.json("all", &["--list"])["cells"].clone();
    for round in 0..12 {
        let mut killed = grid.command("all", &["--share", "0/1", "--lease", "2"]).spawn().unwrap();
        // Somewhere in the claims, runs, writes and renames of its cells.
        thread::sleep(Duration::from_millis(15 + 11 * round));
        kill_process(Pid::from_child(&killed), Signal::KILL).unwrap();
        killed.wait().unwrap();
        let states = states();
        let damaged = states.as_array().unwrap().iter().filter(|cell| cell["state"] == "damaged").count();
        assert_eq!(damaged, 0, "round {round}: {states}");
    }
    assert!(grid.run("all", &["--share", "0/1", "--lease", "2"]).status.success());
    assert_eq!(grid.json("joined", &["--join", "all"]), grid.json("one", &[]));
}

#[test]
fn paused_process_discards_its_result() {
    let grid = Grid::new(&FILE.replace("6000", "60000"));
    let key = grid.json("all", &["--list"])["cells"][0]["key"].as_str().unwrap().to_owned();
    let more = ["--cell", &key, "--lease", "2"];
    let mut paused = grid.command("all", &more).spawn().unwrap();
    let cells = grid.path().join("all/cells");
    let deadline = Instant::now() + PATIENCE;
    while !fs::read_to_string(cells.join(format!("{key}.lease.1")))
        .is_ok_and(|text| text.starts_with("held by"))
    {
        assert!(Instant::now() < deadline && paused.try_wait().unwrap().is_none(), "it took no lease");
        thread::sleep(Duration::from_millis(1));
    }
    kill_process(Pid::from_child(&paused), Signal::STOP).unwrap();
    let other = grid.command("all", &more).spawn().unwrap();
    let holder = format!("process {}\"", other.id());
    assert!(other.wait_with_output().unwrap().status.success());
    let result = fs::read_to_string(cells.join(format!("{key}.json"))).unwrap();
    kill_process(Pid::from_child(&paused), Signal::CONT).unwrap();
    assert!(paused.wait().unwrap().success(), "it finds the result of the other process");
    let after = fs::read_to_string(cells.join(format!("{key}.json"))).unwrap();
    assert!(result.contains(&holder) && after == result, "{holder}: {result:.300}");
}

#[test]
fn join_reports_torn_missing_and_foreign_files() {
    let grid = Grid::new(&FILE.replace("6000", "2000"));
    assert!(grid.run("half", &["--share", "0/2"]).status.success());
    let output = grid.run("joined", &["--join", "half"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output).contains("missing: ") && text(&output).contains("joined in part"),
        "{}",
        text(&output)
    );
    assert!(grid.run("half", &["--share", "1/2"]).status.success());
    let key = grid.json("half", &["--list"])["cells"][3]["key"].as_str().unwrap().to_owned();
    let path = grid.path().join(format!("half/cells/{key}.json"));
    let whole = fs::read_to_string(&path).unwrap();
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    fs::write(path.with_file_name("0123456789abcdef.json"), &whole).unwrap();
    let output = grid.run("joined", &["--join", "half"]);
    assert_eq!(output.status.code(), Some(1));
    for part in ["not joined: ", &key, "ignored 1 result files"] {
        assert!(text(&output).contains(part), "no '{part}' in {}", text(&output));
    }
}

#[test]
fn joins_at_one_time_write_whole_files() {
    let grid = Grid::new(&FILE.replace("6000", "1000"));
    assert!(grid.run("half", &["--share", "0/1"]).status.success());
    let one = grid.json("one", &["--join", "half"]);
    for _ in 0..3 {
        let joins: Vec<_> =
            (0..6).map(|_| grid.command("joined", &["--join", "half"]).spawn().unwrap()).collect();
        for join in joins {
            let output = join.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", text(&output));
        }
        let kept = fs::read_to_string(grid.path().join("joined/results.json")).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&kept).unwrap()["report"], one);
    }
    let names = fs::read_dir(grid.path().join("joined")).unwrap();
    let names: Vec<_> = names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.iter().all(|name| !name.contains("part")), "{names:?}");
}

#[test]
fn process_on_a_full_disk_fails_and_frees_its_cell() {
    let grid = Grid::new(&FILE.replace("6000", "1000"));
    let key = grid.json("all", &["--list"])["cells"][0]["key"].as_str().unwrap().to_owned();
    // Lease files fit, result files do not.
    let mut limited = Command::new("sh");
    let script = "trap '' XFSZ; ulimit -f 1; exec \"$@\"";
    limited.args(["-c", script, "sh", env!("CARGO_BIN_EXE_parm"), "experiment", "grid.toml", "--simulate"]);
    limited.current_dir(grid.path()).args(["--results", "all", "--cell", &key]);
    let output = limited.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("cannot write") && text(&output).contains(&key), "{}", text(&output));
    assert_eq!(grid.json("all", &["--list"])["cells"][0]["state"], "free");
    assert_eq!(grid.results("all"), 0);
    assert!(grid.run("all", &["--cell", &key]).status.success());
}

#[test]
fn grids_reject_flags_that_cannot_be_used() {
    let grid = Grid::new(FILE);
    let refused = |more: &[&str], code: i32, word: &str| {
        let output = grid.run("none", more);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output));
        assert!(text(&output).contains(word), "{}", text(&output));
    };
    refused(&["--share", "4/4"], 2, "0/4");
    refused(&["--cell", "none"], 64, "--list");
    refused(&["--share", "0/1", "--raw"], 64, "--raw");
    let mut processes = command();
    processes.current_dir(grid.path()).args(["experiment", "grid.toml", "--share", "0/2"]);
    let output = processes.output().unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert!(text(&output).contains("--simulate"), "{}", text(&output));
}
