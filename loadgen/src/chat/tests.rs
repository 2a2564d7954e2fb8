//! Runs against a scripted server in this process.

use parking_lot::Mutex;

use super::*;
use crate::report::{Report, Setting};
use crate::run::tests::{ms, plan};
use crate::run::{Plan, Run, Target, Work};

/// A part of a scripted answer.
#[derive(Clone, Copy)]
enum Step {
    Says(&'static str),
    Breaks,
    Stalls,
}

use Step::{Breaks, Says, Stalls};

/// The answer to request number n, in order of arrival: `None` refuses the connection.
type Script = fn(usize) -> Option<(u16, &'static [Step])>;

struct Scripted {
    script: Script,
    bodies: Mutex<Vec<Value>>,
}

struct Said {
    status: u16,
    steps: std::slice::Iter<'static, Step>,
}

impl Wire for Scripted {
    fn post(&self, body: Bytes) -> BoxFuture<'_, Result<Box<dyn Incoming>, String>> {
        let mut bodies = self.bodies.lock();
        let answer = (self.script)(bodies.len());
        bodies.push(serde_json::from_slice(&body).unwrap());
        Box::pin(async move {
            let (status, steps) = answer.ok_or("connection refused")?;
            Ok(Box::new(Said { status, steps: steps.iter() }) as Box<dyn Incoming>)
        })
    }

    fn repeated(&self) -> u64 {
        self.bodies.lock().len() as u64 / 33
    }
}

impl Incoming for Said {
    fn status(&self) -> u16 {
        self.status
    }

    fn chunk(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, String>> {
        Box::pin(async {
            match self.steps.next() {
                None => Ok(None),
                Some(Says(text)) => Ok(Some(Bytes::from_static(text.as_bytes()))),
                Some(Breaks) => Err("reset by peer".into()),
                Some(Stalls) => std::future::pending().await,
            }
        })
    }
}

const ROLE: Step = Says(
    ": ping\n\ndata:\n\ndata: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
);
const TOKEN: Step = Says("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n");
const END: Step =
    Says("data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n");
const USAGE: Step =
    Says("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":90,\"completion_tokens\":7}}\n\n");
const WHOLE: &[Step] = &[ROLE, TOKEN, TOKEN, TOKEN, END];

fn run(script: Script, plan: &Plan) -> (Vec<Value>, Run) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let server = Arc::new(Scripted { script, bodies: Mutex::default() });
    let sizes = [Tokens { prompt: 40, output: 3 }].into();
    let maker = Maker { model: "m".into(), sizes, seed: 1, extra: Map::default() };
    let work = Work::Chats(Chats { wire: server.clone(), maker });
    let run = Target { work, runtime: runtime.handle().clone(), live: Arc::default() }.open(plan).unwrap();
    (server.bodies.lock().clone(), run)
}

fn report(run: &Run) -> (Report, ChatReport) {
    let report =
        Report::of(run, Setting { warm_up_seconds: 0.02, allow_failed: 0.01, ..Setting::default() }, &[]);
    let chats = report.chats.clone().unwrap();
    (report, chats)
}

/// The samples as CSV without the head, each split at its commas.
fn rows(run: &Run) -> Vec<Vec<String>> {
    let mut csv = Vec::new();
    write(run, &mut csv).unwrap();
    let csv = String::from_utf8(csv).unwrap();
    csv.lines().skip(1).map(|row| row.split(',').map(str::to_owned).collect()).collect()
}

#[test]
fn run_counts_tokens_and_requests_after_the_warm_up() {
    let (bodies, run) = run(|_| Some((200, WHOLE)), &plan());
    assert_eq!((bodies.len(), run.offered, run.samples.len(), run.length), (99, 80, 80, ms(80)));
    let (report, chats) = report(&run);
    assert_eq!((chats.answered, chats.output_tokens, chats.prompt_tokens), (80, 240, 3200));
    assert_eq!((chats.latency.count, chats.tpot.count, chats.itl.count), (80, 80, 160));
    assert!(report.mean_ms <= chats.latency.mean_ms.unwrap(), "{report}");
    assert!(report.to_string().contains("240 of answers"), "{report}");
    assert!(chats.repeated == 3 && report.to_string().contains("3 sent twice"), "{report}");
    let rows = rows(&run);
    assert_eq!((rows.len(), &rows[79][4..]), (80, &["40", "3", "exact"].map(str::to_owned)[..]));
}

#[test]
fn failures_are_counted_by_reason_and_are_never_quick() {
    const SCRIPTS: [Option<(u16, &[Step])>; 10] = [
        None,
        Some((503, &[Says("{\"error\":{\"message\":\"busy\"}}")])),
        Some((404, &[])),
        Some((200, &[ROLE, TOKEN, Says("data: {\"error\":{\"message\":\"out of memory\"}}\n\n"), END])),
        Some((200, &[ROLE, TOKEN, Breaks])),
        Some((200, &[ROLE, TOKEN])),
        Some((200, &[Says("<html>\n\ndata: <html>\n\n")])),
        Some((200, &[ROLE, END])),
        Some((200, WHOLE)),
        // What the server reports replaces what was counted.
        Some((200, &[ROLE, TOKEN, TOKEN, END, USAGE])),
    ];
    let plan = Plan { warm_up: ms(0), length: Duration::from_micros(100_500), ..plan() };
    let (_, run) = run(|number| SCRIPTS[number % 10], &plan);
    let (report, chats) = report(&run);
    let mut reasons: Vec<(&str, u64)> =
        report.failures.iter().map(|it| (it.reason.as_str(), it.requests)).collect();
    reasons.sort_unstable();
    let wanted = [
        ("connection", 10),
        ("cut off", 20),
        ("error in the stream", 10),
        ("no content", 10),
        ("status 404", 10),
        ("status 503", 10),
        ("unreadable", 10),
    ];
    assert_eq!(reasons, wanted);
    assert_eq!((chats.answered, chats.latency.count, chats.itl.count), (20, 100, 30));
    assert_eq!((chats.prompt_tokens, chats.output_tokens), (10 * 40 + 10 * 90, 10 * 3 + 10 * 7));
    assert!(run.samples.iter().all(|it| it.outcome == Outcome::Exact || it.latency >= plan.deadline));
    assert_eq!(report.first_failure.as_deref(), Some("connection refused"));
    assert!(!report.is_valid(), "{report}");
    // Each answer is next to its own sample.
    let answered = |row: &[String]| row[6] == "exact";
    for row in rows(&run) {
        let [first, latency] = [&row[1], &row[2]].map(|time| time.parse::<f64>().unwrap());
        assert!(
            if answered(&row) {
                ["3", "7"].contains(&row[5].as_str()) && latency < 6e7
            } else {
                row[5].is_empty()
            },
            "{row:?}"
        );
        assert!(first <= latency, "{row:?}");
    }
}

#[test]
fn first_token_without_an_end_before_the_deadline_is_no_answer() {
    const STANDS: &[Step] = &[ROLE, TOKEN, Stalls];
    let plan = Plan { warm_up: ms(0), deadline: ms(30), ..plan() };
    let (bodies, run) = run(|_| Some((200, STANDS)), &plan);
    let failures = run.failures.by_frequency();
    assert_eq!((failures[0].reason.as_str(), failures[0].requests), ("timeout", bodies.len() as u64));
    assert!(run.samples.iter().all(|sample| sample.latency >= ms(30)));
    assert_eq!(report(&run).1.answered, 0);
}

#[test]
fn texts_differ_from_the_first_word_on_and_fields_are_replaced() {
    let extra = json!({ "ignore_eos": true, "stream_options": null });
    let sizes = [Tokens { prompt: 1, output: 6 }, Tokens { prompt: 5, output: 0 }].into();
    let maker = Maker { model: "m".into(), sizes, seed: 1, extra: extra.as_object().cloned().unwrap() };
    let body = |index| -> Value { serde_json::from_slice(&maker.body(index)).unwrap() };
    let text = |index| body(index)["messages"][0]["content"].as_str().unwrap().to_owned();
    assert_eq!((body(3), text(3).len()), (body(3), 20));
    assert_eq!((&body(3)["max_tokens"], &body(3)["ignore_eos"]), (&json!(1), &json!(true)));
    assert_eq!((&body(3)["stream_options"], &body(3)["model"]), (&Value::Null, &json!("m")));
    assert_eq!((text(0).len(), &body(0)["max_tokens"]), (4, &json!(6)), "the last size repeats");
    let firsts: std::collections::BTreeSet<String> = (1..101).map(|index| text(index)[..8].into()).collect();
    assert!(firsts.len() > 80, "{} of 100", firsts.len());
}
