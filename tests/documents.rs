//! Compares pages with running servers and with the sources. `UPDATE_DOCS=1` rewrites the generated ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;

use tempfile::TempDir;

use crate::support::authority::Authority;
use crate::support::process::root;
use crate::support::workspace::{files, members, without_comments};
use crate::support::{Parm, http};

const TITLE: &str = "# Metrics

Generated from running servers by `just docs-refresh`.

`parm serve` and `parm worker` serve their metrics in Prometheus' text format under `GET /metrics` at a separate address
(`server.metrics`, default 127.0.0.1:8002). Names that begin with `nv_inference` have the same meaning as in Triton.

Requests that fail before their model is found have the labels `model` and `version` empty. The series of a version end
when no instance can bring it back.
";

/// A metric as the page of a server shows it.
struct Metric {
    kind: String,
    help: String,
    /// Labels with the values that were seen.
    labels: BTreeMap<String, BTreeSet<String>>,
}

/// Labels whose values are a fixed set, all of them shown from the start.
const FIXED: &[&str] = &["event", "kind", "stage", "state"];

#[test]
fn metrics_page_matches_running_servers() {
    let (frontend, worker) = (shown(&Parm::serve(&[])), shown(&Parm::worker(&[])));
    let embedded = |name: &str| !name.starts_with("nv_") && worker.contains_key(name);
    let (inside, own): (Vec<_>, Vec<_>) = frontend.iter().partition(|(name, _)| embedded(name));
    let mut page = TITLE.to_owned();
    table(&mut page, "`parm serve`", "Metrics of client requests and of the dispatcher.", &own);
    let about = "Without `--worker`, `parm serve` also shows these metrics of its embedded instances.";
    table(&mut page, "Instances inside `parm serve`", about, &inside);
    let about = "A worker shows the metrics above, and Triton's for its own requests:";
    let others = worker.iter().filter(|(name, _)| !inside.iter().any(|(listed, _)| listed == name));
    table(&mut page, "`parm worker`", about, &others.collect::<Vec<_>>());
    let certificate = secured();
    let others = certificate.iter().filter(|(name, _)| name.starts_with("parm_tls_")).collect::<Vec<_>>();
    table(&mut page, "With TLS", "Both have these with `[tls]`.", &others);
    // Series of rare events are not on the servers' pages yet, so the sources supply their names.
    let mut rare = BTreeMap::new();
    for krate in members() {
        for path in files(&root().join(krate).join("src"), "rs") {
            let code = without_comments(&fs::read_to_string(&path).unwrap());
            let place = path.strip_prefix(root()).unwrap().display().to_string();
            if !place.contains("/metrics") {
                assert!(
                    !code.contains("Opts::new("),
                    "{place} defines a metric: move it to a file named metrics"
                );
                continue;
            }
            let code = code.split("mod tests").next().unwrap_or_default().to_owned();
            let texts: Vec<&str> = code.split('"').skip(1).step_by(2).collect();
            for pair in texts.windows(2).filter(|pair| is_name(pair[0])) {
                if !page.contains(&format!("`{}`", pair[0])) {
                    rare.insert(pair[0].to_owned(), pair[1].split_whitespace().collect::<Vec<_>>().join(" "));
                }
            }
        }
    }
    page += "\n## Shown after the first event\n\n| name | meaning |\n|---|---|\n";
    for (name, help) in &rare {
        writeln!(page, "| `{name}` | {help} |").unwrap();
    }
    check("docs/metrics.md", &page);
}

fn is_name(text: &str) -> bool {
    let ours = text.starts_with("parm_") || text.starts_with("nv_");
    ours && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// The metrics of a worker that takes TLS.
fn secured() -> BTreeMap<String, Metric> {
    let folder = TempDir::new().unwrap();
    let issued = Authority::new().issue_until(&["127.0.0.1"], 4020);
    let [certificate, key] = issued.write(folder.path(), "own").map(|path| path.display().to_string());
    let (certificate, key) = (format!("tls.certificate={certificate}"), format!("tls.key={key}"));
    shown(&Parm::worker(&["--set", "tls.mode=allow", "--set", &certificate, "--set", &key]))
}

/// The metrics of a server that has answered and refused requests.
fn shown(parm: &Parm) -> BTreeMap<String, Metric> {
    let refused = http::post(parm.http, "/v2/models/nothing/infer", b"{\"inputs\": []}");
    assert_eq!(refused.status, 404, "{}", refused.body_text());
    let refused = http::post(parm.http, "/v2/models/affine/infer", b"{\"inputs\": []}");
    assert_eq!(refused.status, 400, "{}", refused.body_text());
    // Series of a model appear when it is first used.
    let row = br#"{"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}"#;
    let answered = http::post(parm.http, "/v2/models/affine/infer", row);
    assert_eq!(answered.status, 200, "{}", answered.body_text());
    let text = parm.metrics();
    let mut metrics = BTreeMap::new();
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|line| line.split_once(' ')) {
            let metric = Metric { kind: String::new(), help: help.to_owned(), labels: BTreeMap::new() };
            metrics.insert(name.to_owned(), metric);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' '))
        {
            metrics.get_mut(name).unwrap().kind = kind.to_owned();
        } else if let Some((sample, labels)) = line.split_once('{') {
            let ends = ["_bucket", "_sum", "_count"];
            let family =
                ends.iter().find_map(|end| sample.strip_suffix(end).filter(|f| metrics.contains_key(*f)));
            let metric = metrics.get_mut(family.unwrap_or(sample)).unwrap();
            for label in labels.rsplit_once('}').unwrap().0.split("\",") {
                let (name, value) = label.split_once("=\"").unwrap();
                let values = metric.labels.entry(name.to_owned()).or_default();
                values.insert(value.trim_end_matches('"').to_owned());
            }
        }
    }
    metrics
}

fn table(page: &mut String, title: &str, about: &str, metrics: &[(&String, &Metric)]) {
    write!(page, "\n## {title}\n\n{about}\n\n| name | kind | labels | meaning |\n|---|---|---|---|\n")
        .unwrap();
    for (name, Metric { kind, help, labels }) in metrics {
        let labels = labels.iter().filter(|(label, _)| *label != "le").map(|(label, values)| {
            let values: Vec<_> = values.iter().map(String::as_str).collect();
            let values = FIXED.contains(&label.as_str()).then(|| format!(" ({})", values.join(", ")));
            format!("`{label}`{}", values.unwrap_or_default())
        });
        let labels = labels.collect::<Vec<_>>().join(", ");
        writeln!(page, "| `{name}` | {kind} | {labels} | {help} |").unwrap();
    }
}

#[test]
fn admin_page_has_every_route() {
    let page = fs::read_to_string(root().join("docs/admin.md")).unwrap();
    for route in parm_frontend::admin::ROUTES.iter().filter(|route| route.path.starts_with("/admin/")) {
        let shown = format!("`{} {}", route.method, route.path);
        assert!(page.contains(&shown), "docs/admin.md does not have {shown}");
    }
}

fn check(file: &str, want: &str) {
    let path = root().join(file);
    #[allow(clippy::disallowed_methods)] // a switch for the people who run the tests, not configuration
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, want).unwrap();
    }
    let have = fs::read_to_string(&path).unwrap_or_default();
    assert!(have == want, "{file} is stale: run `just docs-refresh`");
}
