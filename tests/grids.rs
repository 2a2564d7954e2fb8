//! Grids with the real binary: shares in one folder, killed processes, and the contract of the Kubernetes recipe.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::process::{command, root, text};

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
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The names of the result files, in order.
    fn results(&self, name: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path().join(name).join("cells")) else { return Vec::new() };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name.ends_with(".json")).collect();
        names.sort_unstable();
        names
    }
}

/// The arguments of the container in the recipe, with the variable that Kubernetes sets and the paths of this test.
fn arguments(index: u32) -> Vec<String> {
    let yaml = fs::read_to_string(root().join("deploy/grids/kubernetes.yaml")).unwrap();
    assert!(yaml.contains("completions: 4\n"), "every cell is in a share");
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
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(
            grid.results("job").len(),
            3 * (index as usize + 1),
            "each share has three of twelve cells"
        );
    }
    let one = grid.json("one", &[]);
    assert_eq!(grid.json("joined", &["--join", "job"]), one);
    assert_eq!(grid.json("joined", &["--join", "job"]), one, "a join can be repeated");
}

#[test]
fn share_on_a_full_disk_fails_and_can_run_again() {
    let grid = Grid::new(&FILE.replace("6000", "1000"));
    let mut limited = Command::new("sh");
    let script = "trap '' XFSZ; ulimit -f 1; exec \"$@\"";
    limited.args(["-c", script, "sh", env!("CARGO_BIN_EXE_parm"), "experiment", "grid.toml", "--simulate"]);
    limited.current_dir(grid.path()).args(["--results", "all", "--share", "0/12"]);
    let output = limited.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot write"), "{}", text(&output.stderr));
    assert_eq!(grid.results("all"), Vec::<String>::new());
    assert!(grid.run("all", &["--share", "0/12"]).status.success());
}

#[test]
fn grids_reject_flags_that_cannot_be_used() {
    let grid = Grid::new(FILE);
    let refused = |more: &[&str], code: i32, word: &str| {
        let output = grid.run("none", more);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains(word), "{}", text(&output.stderr));
    };
    refused(&["--share", "4/4"], 2, "0/4");
    refused(&["--share", "0/1", "--raw"], 64, "--raw");
    fs::create_dir(grid.path().join("none")).unwrap();
    fs::write(grid.path().join("none/report.txt"), "of a whole run").unwrap();
    refused(&["--share", "0/2"], 64, "another folder");
    let mut processes = command();
    processes.current_dir(grid.path()).args(["experiment", "grid.toml", "--share", "0/2"]);
    let output = processes.output().unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert!(text(&output.stderr).contains("--simulate"), "{}", text(&output.stderr));
}
