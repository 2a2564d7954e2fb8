//! Runs against a scripted server in this process.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use parm_protocol::client::BoxFuture;
use parm_workload::arrivals::Arrivals;
use parm_workload::chat::{Requests, Tokens};
use serde_json::Value;
use tokio::runtime::Runtime;

use super::api::{Api, Maker};
use super::exchange::Seen;
use super::report::{ChatReport, ChatSetting};
use super::run::{ChatPlan, ChatRun, ChatTarget, Traffic};
use super::*;
use crate::outcome::Outcome;

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
    fn post(&self, path: &'static str, body: Bytes) -> BoxFuture<'_, Result<Box<dyn Incoming>, String>> {
        assert!(path.starts_with("/v1/"));
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

fn maker(api: Api) -> Maker {
    Maker { api, model: "m".into(), seed: 1, extra: serde_json::Map::new() }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Requests at 1, 2 .. 99 ms.
fn plan() -> ChatPlan {
    ChatPlan {
        traffic: Traffic::Steady(Arrivals::Constant { rate: 1000.0 }, Tokens { prompt: 40, output: 3 }),
        seed: 1,
        length: Some(ms(100)),
        warm_up: ms(20),
        requests: 1_000_000,
        deadline: ms(60_000),
        in_flight: 1000,
    }
}

fn target(script: Script) -> (Runtime, Arc<Scripted>, ChatTarget) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let server = Arc::new(Scripted { script, bodies: Mutex::default() });
    let target = ChatTarget {
        wire: server.clone(),
        maker: maker(Api::Chat),
        runtime: runtime.handle().clone(),
        live: Arc::default(),
    };
    (runtime, server, target)
}

fn run(script: Script, plan: &ChatPlan) -> (Vec<Value>, ChatRun) {
    let (_runtime, server, target) = target(script);
    let run = target.open(plan).unwrap();
    (server.bodies.lock().clone(), run)
}

fn setting() -> ChatSetting {
    ChatSetting { api: "chat".into(), model: "m".into(), allow_failed: 0.01, ..ChatSetting::default() }
}

/// The record of a request once its answer stalls.
fn seen(steps: &'static [Step]) -> Seen {
    struct Once(&'static [Step]);
    impl Wire for Once {
        fn post(&self, _: &'static str, _: Bytes) -> BoxFuture<'_, Result<Box<dyn Incoming>, String>> {
            let said = Said { status: 200, steps: self.0.iter() };
            Box::pin(async move { Ok(Box::new(said) as Box<dyn Incoming>) })
        }

        fn repeated(&self) -> u64 {
            0
        }
    }
    let (wire, mut seen) = (Once(steps), Seen::default());
    let mut following = Box::pin(seen.follow(&wire, Api::Chat, Bytes::new()));
    assert!(matches!(following.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
    drop(following);
    seen
}

#[test]
fn first_token_is_the_first_chunk_with_content() {
    assert_eq!(seen(&[Stalls]).first, None);
    assert_eq!(seen(&[ROLE, ROLE, Stalls]).first, None, "neither comments nor roles are content");
    let one = seen(&[ROLE, TOKEN, Stalls]);
    assert!(one.first.is_some() && one.first == one.latest && one.gaps.is_empty());
    let two = seen(&[ROLE, TOKEN, TOKEN, USAGE, Stalls]);
    assert_eq!((two.contents, two.gaps.len(), two.usage), (2, 1, Some((90, 7))));
}

#[test]
fn run_counts_tokens_and_requests_after_the_warm_up() {
    let (bodies, run) = run(|_| Some((200, WHOLE)), &plan());
    assert_eq!((bodies.len(), run.firsts.offered, run.samples.len()), (99, 80, 80));
    assert!(run.samples.iter().all(|sample| sample.first <= sample.latency && sample.is_answered()));
    assert!(run.samples.windows(2).all(|pair| pair[0].intended < pair[1].intended));
    assert_eq!((run.gaps.len(), run.firsts.length), (160, ms(80)));
    let report = ChatReport::of(&run, setting(), &[]);
    assert_eq!((report.answered, report.output_tokens, report.prompt_tokens), (80, 240, 3200));
    assert_eq!((report.ttft.count, report.tpot.count, report.itl.count), (80, 80, 160));
    assert!(report.to_string().contains("240 of answers"), "{report}");
    assert!(report.repeated == 3 && report.to_string().contains("3 sent twice"), "{report}");
}

#[test]
fn usage_of_the_server_replaces_counted_chunks() {
    const ANSWER: &[Step] = &[ROLE, TOKEN, TOKEN, END, USAGE];
    let (_, run) = run(|_| Some((200, ANSWER)), &plan());
    assert!(run.samples.iter().all(|sample| (sample.prompt_tokens, sample.output_tokens) == (90, 7)));
}

#[test]
fn failures_are_counted_by_kind_and_are_never_quick() {
    const SCRIPTS: [Option<(u16, &[Step])>; 9] = [
        None,
        Some((503, &[Says("{\"error\":{\"message\":\"busy\"}}")])),
        Some((404, &[])),
        Some((200, &[ROLE, TOKEN, Says("data: {\"error\":{\"message\":\"out of memory\"}}\n\n"), END])),
        Some((200, &[ROLE, TOKEN, Breaks])),
        Some((200, &[ROLE, TOKEN])),
        Some((200, &[Says("<html>\n\ndata: <html>\n\n")])),
        Some((200, &[ROLE, END])),
        Some((200, WHOLE)),
    ];
    let plan = ChatPlan { warm_up: ms(0), length: Some(Duration::from_micros(90_500)), ..plan() };
    let (_, run) = run(|number| SCRIPTS[number % 9], &plan);
    let report = ChatReport::of(&run, setting(), &["failed<=50%".parse().unwrap()]);
    let kinds: Vec<(&str, u64)> = report.failures.iter().map(|it| (it.kind.as_str(), it.requests)).collect();
    let wanted = [
        ("connection", 10),
        ("status 404", 10),
        ("status 503", 10),
        ("error in the stream", 10),
        ("cut off", 20),
        ("unreadable", 10),
        ("no content", 10),
    ];
    assert_eq!(kinds, wanted);
    assert_eq!((report.answered, report.output_tokens, report.tpot.count), (10, 30, 10));
    assert!(run.samples.iter().all(|sample| sample.is_answered() || sample.first >= plan.deadline));
    assert_eq!(report.first_failure.as_deref(), Some("connection: connection refused"));
    assert!(!report.is_valid() && report.missed().count() == 1, "{report}");
    let mut csv = Vec::new();
    write(&run.samples, &mut csv).unwrap();
    let csv = String::from_utf8(csv).unwrap();
    assert!(
        csv.lines().count() == 91 && csv.contains(",status 503\n") && csv.contains(",answered\n"),
        "{csv}"
    );
}

#[test]
fn answers_beyond_the_deadline_and_dropped_requests_fail() {
    const STANDS: &[Step] = &[ROLE, TOKEN, Stalls];
    let plan = ChatPlan { warm_up: ms(0), deadline: ms(30), in_flight: 3, ..plan() };
    let (bodies, run) = run(|_| Some((200, STANDS)), &plan);
    let timeouts = run.samples.iter().filter(|sample| sample.failure == Some(FailureKind::Timeout)).count();
    assert_eq!((timeouts, run.samples.len()), (bodies.len(), run.firsts.offered));
    assert!(run.firsts.dropped > 0 && run.firsts.tally.of(Outcome::Dropped).requests > 0);
    assert!(
        run.samples.iter().all(|sample| sample.first >= ms(30)),
        "a first token without an end is no answer"
    );
}

#[test]
fn trace_is_replayed_in_order_with_its_sizes() {
    let text = "timestamp_ms,input_tokens,output_tokens\n100,3,5\n110,1,6\n110,2,7\n128,9,8\n140,4,9\n";
    let requests = Requests::parse(text, 4).unwrap().faster(2.0).unwrap();
    let plan = ChatPlan { traffic: Traffic::Recorded(requests), length: None, warm_up: ms(1), ..plan() };
    let (bodies, run) = run(|_| Some((200, WHOLE)), &plan);
    let mut sizes: Vec<(usize, u64)> = bodies
        .iter()
        .map(|body| {
            (body["messages"][0]["content"].as_str().unwrap().len(), body["max_tokens"].as_u64().unwrap())
        })
        .collect();
    // Two requests of the same moment may reach the server in either order.
    sizes.sort_by_key(|(_, output)| *output);
    assert_eq!(sizes, [(12, 5), (4, 6), (8, 7), (36, 8)]);
    let times: Vec<Duration> = run.samples.iter().map(|sample| sample.intended).collect();
    assert_eq!(times, [ms(5), ms(5), ms(14)], "the first is part of the warm-up");
    assert_eq!(run.firsts.length, ms(13));
}

#[test]
fn requests_are_bounded() {
    let plan = ChatPlan { requests: 7, warm_up: ms(0), ..plan() };
    let (bodies, run) = run(|_| Some((200, WHOLE)), &plan);
    assert_eq!((bodies.len(), run.samples.len(), run.firsts.length), (7, 7, ms(7)));
}

#[test]
fn embedding_is_one_piece() {
    const ANSWER: &[Step] =
        &[Says("{\"data\":[],\"us"), Says("age\":{\"prompt_tokens\":41,\"total_tokens\":41}}")];
    let (_runtime, server, target) = target(|_| Some((200, ANSWER)));
    let target = ChatTarget { maker: maker(Api::Embeddings), ..target };
    let run = target.open(&ChatPlan { requests: 3, warm_up: ms(0), ..plan() }).unwrap();
    assert!(run.samples.iter().all(|sample| sample.is_answered() && sample.prompt_tokens == 41));
    assert!(server.bodies.lock().iter().all(|body| body.get("stream").is_none()));
    let report = ChatReport::of(&run, setting(), &[]);
    assert_eq!((report.ttft.count, report.tpot.count, report.output_tokens), (3, 0, 0));
}

#[test]
fn documented_schema_matches_the_report() {
    let schema = serde_json::to_string_pretty(&schemars::schema_for!(ChatReport)).unwrap() + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/load-openai.schema.json");
    #[allow(clippy::disallowed_methods)] // a switch for the people who run the tests, not configuration
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &schema).unwrap();
    }
    assert!(fs::read_to_string(&path).unwrap_or_default() == schema, "run this test with UPDATE_DOCS=1");
}
