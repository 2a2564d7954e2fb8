//! Runs against a scripted server in this process.

use parm_protocol::client::BoxFuture;
use parm_protocol::{
    Error as Refusal, InferRequest, ModelConfig, ModelIndex, ModelMetadata, ModelRef, NamedTensor,
    Parameters, ServerMetadata, Tensor, TensorMetadata,
};
use parm_workload::Pattern;
use tokio::runtime::Runtime;

use super::*;
use crate::inputs::{Column, Recorded};

/// Answers with its input and counts the concurrent requests.
struct Echo {
    /// What happens to request number n.
    script: fn(usize) -> Fate,
    seen: AtomicUsize,
    now: AtomicUsize,
    most: AtomicUsize,
    never: Semaphore,
}

#[derive(Clone, Copy)]
enum Fate {
    Answer(&'static str),
    Refuse,
    /// Until the deadline.
    Hang,
}

fn unused<T>() -> BoxFuture<'static, Result<T, Refusal>> {
    unreachable!("a run only infers")
}

impl Client for Echo {
    fn peer(&self) -> &str {
        "echo"
    }

    fn infer(
        &self,
        request: InferRequest,
        context: CallContext,
    ) -> BoxFuture<'_, Result<InferResponse, Refusal>> {
        Box::pin(async move {
            let fate = (self.script)(self.seen.fetch_add(1, Ordering::SeqCst));
            let now = 1 + self.now.fetch_add(1, Ordering::SeqCst);
            self.most.fetch_max(now, Ordering::SeqCst);
            tokio::task::yield_now().await;
            if let Fate::Hang = fate {
                let deadline = context.deadline.unwrap();
                let _ = tokio::time::timeout_at(deadline, self.never.acquire()).await;
            }
            self.now.fetch_sub(1, Ordering::SeqCst);
            match fate {
                Fate::Answer(outcome) => {
                    let mut parameters = Parameters::new();
                    parameters.insert("parm_outcome".into(), outcome.into());
                    Ok(InferResponse {
                        parameters,
                        outputs: vec![NamedTensor::new("y", request.inputs[0].tensor.clone())],
                        ..InferResponse::default()
                    })
                }
                Fate::Refuse => Err(Refusal::Malformed { message: "refused".into() }),
                Fate::Hang => Err(Refusal::DeadlineExceeded { waited: Duration::ZERO }),
            }
        })
    }

    fn is_ready(&self) -> BoxFuture<'_, Result<bool, Refusal>> {
        unused()
    }

    fn server_metadata(&self) -> BoxFuture<'_, Result<ServerMetadata, Refusal>> {
        unused()
    }

    fn model_metadata<'a>(&'a self, _: &'a ModelRef) -> BoxFuture<'a, Result<ModelMetadata, Refusal>> {
        unused()
    }

    fn model_config<'a>(&'a self, _: &'a ModelRef) -> BoxFuture<'a, Result<ModelConfig, Refusal>> {
        unused()
    }

    fn repository_index(&self) -> BoxFuture<'_, Result<Vec<ModelIndex>, Refusal>> {
        unused()
    }
}

fn model() -> ModelMetadata {
    let tensor =
        |name: &str| TensorMetadata { name: name.into(), datatype: "FP32".into(), shape: vec![-1, 3] };
    ModelMetadata {
        name: "m".into(),
        inputs: vec![tensor("x")],
        outputs: vec![tensor("y")],
        ..ModelMetadata::default()
    }
}

fn target(script: fn(usize) -> Fate) -> (Runtime, Arc<Echo>, Target) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let zero = AtomicUsize::default;
    let echo = Arc::new(Echo { script, seen: zero(), now: zero(), most: zero(), never: Semaphore::new(0) });
    let inputs = Inputs::generate(&model(), 1, 1).unwrap();
    let work = Work::Queries(Queries { client: echo.clone(), inputs, grader: None });
    let target = Target { work, runtime: runtime.handle().clone(), live: Arc::default() };
    (runtime, echo, target)
}

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Requests at 1, 2 .. 99 ms, of which those of the first 20 ms are not counted.
pub(crate) fn plan() -> Plan {
    Plan {
        arrivals: Pattern::Constant.at(1000.0),
        seed: 1,
        length: ms(100),
        warm_up: ms(20),
        deadline: ms(5000),
        in_flight: 1000,
    }
}

#[test]
fn open_run_sends_its_schedule_and_counts_after_the_warm_up() {
    let (_runtime, echo, target) =
        target(|n| if n % 2 == 0 { Fate::Answer("exact") } else { Fate::Answer("hedged") });
    let run = target.open(&plan()).unwrap();
    assert_eq!(echo.seen.load(Ordering::SeqCst), 99, "at 1, 2 .. 99 ms");
    assert_eq!((run.offered, run.samples.len(), run.dropped), (80, 80, 0));
    assert!(run.samples.iter().all(|sample| sample.intended >= ms(20)));
    assert!(run.samples.windows(2).all(|pair| pair[0].intended < pair[1].intended));
    let requests = |outcome| run.tally.of(outcome).requests;
    assert_eq!((requests(Outcome::Exact), requests(Outcome::Hedged)), (40, 40));
    assert_eq!(run.length, ms(80));
}

#[test]
fn unanswered_requests_count_as_late_as_the_deadline() {
    let hangs = |n| if n < 3 { Fate::Hang } else { Fate::Refuse };
    let (_runtime, echo, target) = target(hangs);
    let deadline = ms(60);
    let plan = Plan { warm_up: ms(0), deadline, in_flight: 3, ..plan() };
    let run = target.open(&plan).unwrap();
    assert!(echo.most.load(Ordering::SeqCst) <= 3);
    assert!(run.dropped > 0 && run.tally.of(Outcome::Dropped).requests == run.dropped as u64);
    assert_eq!(run.samples.len(), run.offered, "none is forgotten");
    assert!(run.samples.iter().all(|sample| sample.latency >= deadline));
    let failed = run.failures.by_frequency();
    assert!(failed.iter().any(|one| (one.reason.as_str(), one.requests) == ("deadline", 3)), "{failed:?}");
    let all = failed.iter().map(|one| one.requests).sum::<u64>();
    assert_eq!(all, run.tally.of(Outcome::Failed).requests);
}

#[test]
fn closed_run_limits_requests_in_flight() {
    for streams in [1, 4] {
        let (_runtime, echo, target) = target(|_| Fate::Answer("exact"));
        let run = target.closed(&Closed { streams, length: ms(50), warm_up: ms(0), deadline: ms(5000) });
        assert_eq!(echo.most.load(Ordering::SeqCst), streams);
        assert_eq!(run.samples.len(), echo.seen.load(Ordering::SeqCst));
        assert_eq!(run.tally.of(Outcome::Exact).requests, run.samples.len() as u64);
    }
}

#[test]
fn stopped_run_keeps_its_samples() {
    let (_runtime, echo, target) = target(|_| Fate::Answer("exact"));
    target.live.stop();
    let run = target.open(&Plan { length: Duration::from_secs(3600), ..plan() }).unwrap();
    assert_eq!((run.offered, echo.seen.load(Ordering::SeqCst)), (0, 0));
    let closed = target.closed(&Closed {
        streams: 2,
        length: Duration::from_secs(3600),
        warm_up: ms(0),
        deadline: ms(1),
    });
    assert!(closed.samples.is_empty());
}

#[test]
fn run_with_too_many_samples_is_rejected_before_it_starts() {
    let (_runtime, _, target) = target(|_| Fate::Answer("exact"));
    let error = target.open(&Plan { length: Duration::from_secs(86_400), ..plan() }).unwrap_err();
    assert!(matches!(error, Error::TooManySamples { most: MOST_SAMPLES, .. }), "{error}");
}

#[test]
fn answers_are_graded_by_outcome_against_their_rows_labels() {
    let folder = tempfile::tempdir().unwrap();
    let (rows, labels) = (folder.path().join("x"), folder.path().join("y"));
    // Four rows of three bytes. The server echoes them, so the class is the index of the largest byte: 0, 1, 2, 1.
    std::fs::write(
        &rows,
        [&[0, 0, 8, 2, 0, 0, 0, 4, 0, 0, 0, 3][..], &[9, 1, 1, 0, 5, 2, 0, 0, 7, 1, 3, 2]].concat(),
    )
    .unwrap();
    std::fs::write(&labels, [0, 0, 8, 1, 0, 0, 0, 4, 0, 1, 2, 2]).unwrap();
    let (_runtime, client, target) =
        target(|n| if n % 2 == 0 { Fate::Answer("exact") } else { Fate::Answer("reconstructed") });
    let column = Column { input: Some("x".into()), path: rows };
    let recorded = Recorded::read(&model(), &[column], 2).unwrap().with_labels(&labels).unwrap();
    let inputs = Inputs::Recorded(recorded);
    let grader = Some(Grader::new(&model(), None).unwrap());
    // Requests of two rows: rows 0 and 1 are right, and one of rows 2 and 3 is.
    let one_by_one = Closed { streams: 1, length: ms(30), warm_up: ms(0), deadline: ms(5000) };
    let run =
        Target { work: Work::Queries(Queries { client, inputs, grader }), ..target }.closed(&one_by_one);
    assert_eq!(run.tally.of(Outcome::Exact).accuracy(), Some(1.0));
    assert_eq!(run.tally.of(Outcome::Reconstructed).accuracy(), Some(0.5));
    assert_eq!(run.tally.total().graded, 2 * run.samples.len() as u64);
}

#[test]
fn rows_of_files_are_rejected_if_they_do_not_fit_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let good = file("good", &[0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 3, 1, 2, 3]);
    let wide = file("wide", &[0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 4, 1, 2, 3, 4]);
    let check = |columns: &[Column], rows, reason: &str| {
        let error = Recorded::read(&model(), columns, rows).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    };
    let column = |input: Option<&str>, path: &std::path::Path| Column {
        input: input.map(Into::into),
        path: path.into(),
    };
    check(&[column(None, &wide)], 1, "[1, 4], but input 'x' takes rows of shape [3]");
    check(&[column(Some("z"), &good)], 1, "x=FILE");
    check(&[column(Some("x"), &good), column(Some("z"), &good)], 1, "'z': name one of x");
    check(&[column(None, &good)], 2, "1 rows are not enough for a request of 2");
    let mut texts = model();
    texts.inputs[0].datatype = "BYTES".into();
    let refused = Recorded::read(&texts, &[column(None, &good)], 1).unwrap_err().to_string();
    assert!(refused.contains("omit --input to send generated texts"), "{refused}");
    let recorded = Recorded::read(&model(), &[column(None, &good)], 1).unwrap();
    let labels = recorded.with_labels(&wide).unwrap_err().to_string();
    assert!(labels.contains("4 labels for 1 rows"), "{labels}");
    let whole = Inputs::Recorded(Recorded::read(&model(), &[column(None, &good)], 1).unwrap());
    let sent = whole.request(5).inputs[0].tensor.clone();
    assert_eq!(
        sent,
        Tensor::from_f32(vec![1, 3], &[1.0, 2.0, 3.0].map(|pixel| (pixel / 255.0f64) as f32)).unwrap()
    );
}

#[test]
fn permits_are_withheld_while_too_many_are_unanswered() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let driver = Driver::new(2, runtime.handle().clone());
    let never = Arc::new(Semaphore::new(0));
    let mut given = Vec::new();
    driver.run(Instant::now(), [Duration::ZERO; 4], |due, permit| {
        given.push((due.index, permit.is_some()));
        let never = never.clone();
        if let Some(permit) = permit {
            permit.spawn(async move { drop(never.acquire().await) });
        }
        ControlFlow::Continue(())
    });
    assert_eq!(given, [(0, true), (1, true), (2, false), (3, false)]);
    driver.wait(Duration::from_secs(3600), || true);
    never.close();
    driver.wait(Duration::from_secs(3600), || false);
    assert_eq!(driver.room.available_permits(), 2, "an exchange that ended still counts");
}
