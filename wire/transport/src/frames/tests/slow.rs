//! Slow peers: a slow link is tolerated, a hung peer times out.

use super::*;

/// Reads a frame's kind and skips its body.
async fn next_kind(near: &mut UnixStream) -> header::Kind {
    next_frame(near).await.unwrap().0.kind
}

fn frame(id: u64, bytes: usize) -> Vec<u8> {
    let envelope = codec::Envelope::default();
    codec::encode_request(id, &request("", bytes), &envelope, 64 << 20).unwrap().chunks.concat()
}

#[tokio::test(start_paused = true)]
async fn slow_frame_is_received_on_both_sides() {
    let config = Config::default();
    let silence = config.ping_interval + config.ping_timeout;
    let (near, mut link_near) = UnixStream::pair().unwrap();
    let (mut link_far, far) = UnixStream::pair().unwrap();
    let connection = client(near, &config);
    let server = tokio::spawn(serve_end(far, echoing(), Config::default()));
    // 100 kB per second towards the server, unlimited on the way back.
    tokio::spawn(async move {
        let (mut from_client, mut to_client) = link_near.split();
        let (mut from_server, mut to_server) = link_far.split();
        let there = async {
            let mut piece = vec![0; 100_000];
            while let Ok(read @ 1..) = from_client.read(&mut piece).await {
                to_server.write_all(&piece[..read]).await.unwrap();
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        let back = tokio::io::copy(&mut from_server, &mut to_client);
        let _ = tokio::join!(there, back);
    });
    let began = Instant::now();
    let answer = connection.infer(&request("large", 2_000_000), ANY_TIME).await.unwrap();
    assert_eq!(answer.outputs[0].tensor.data().len(), 2_000_000);
    assert!(began.elapsed() > 2 * silence, "{:?} is too short for this test", began.elapsed());
    assert!(connection.is_open() && !server.is_finished());
}

#[tokio::test(start_paused = true)]
async fn server_that_hangs_after_a_frame_is_detected() {
    let (near, mut far) = UnixStream::pair().unwrap();
    let config = Config::default();
    let connection = client(near, &config);
    tokio::spawn(async move {
        let mut some = vec![0; 500_000];
        far.read_exact(&mut some).await.unwrap();
        std::future::pending::<()>().await;
    });
    let error = connection.infer(&request("", 2_000_000), ANY_TIME).await.unwrap_err();
    assert!(error.to_string().contains("no sign of life"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn dribbling_frame_times_out() {
    let (mut near, far) = UnixStream::pair().unwrap();
    let limits = Limits { budget: Budget::new(1 << 20), ..Config::default().into() };
    let budget = limits.budget.clone();
    let (service, ..) = endless();
    let server = tokio::spawn(serve_end(far, service, limits));
    let began = Instant::now();
    let frame = frame(1, 100_000);
    near.write_all(&frame[..header::LENGTH]).await.unwrap();
    for byte in frame.chunks(1).skip(header::LENGTH) {
        if server.is_finished() || near.write_all(byte).await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let error = server.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("did not arrive within 30s"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(33), "{:?}", began.elapsed());
    assert_eq!(budget.held(), 0);
}

/// A server with answers of a megabyte and a budget for two of them, and a client that reads nothing by itself.
fn unread() -> (UnixStream, Arc<Budget>, JoinHandle<std::io::Result<()>>) {
    let (near, far) = UnixStream::pair().unwrap();
    let limits = Limits { budget: Budget::new(5 << 19), ..Config::default().into() };
    let budget = limits.budget.clone();
    let service = Scripted(|mut ask: InferRequest, _| {
        ask.inputs = request("", 1 << 20).inputs;
        std::future::ready(Ok(echo(ask)))
    });
    let server = tokio::spawn(serve_end(far, service, limits));
    (near, budget, server)
}

#[tokio::test(start_paused = true)]
async fn unread_answers_count_against_the_budget() {
    let (mut near, budget, server) = unread();
    let ask = [frame(1, 8), frame(2, 8), frame(3, 8)].concat();
    near.write_all(&ask).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!((2 << 20..5 << 19).contains(&budget.held()), "{} bytes held", budget.held());
    let kinds = [next_kind(&mut near).await, next_kind(&mut near).await, next_kind(&mut near).await];
    assert_eq!(kinds, [header::Kind::Response, header::Kind::Response, header::Kind::Failure]);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(budget.held(), 0, "read answers are not held");
    assert!(!server.is_finished());
    server.abort();
}

#[tokio::test(start_paused = true)]
async fn client_that_reads_no_answers_is_cut_off() {
    let (mut near, budget, server) = unread();
    near.write_all(&frame(1, 8)).await.unwrap();
    let began = Instant::now();
    while !server.is_finished() {
        let _ = near.write_all(&Frame::bare(header::Kind::Pong, 0).chunks[0]).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let error = server.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("answer_timeout_ms"), "{error}");
    assert!((60..63).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    assert_eq!(budget.held(), 0);
}

/// Far more than the sockets and the TLS state hold, both ways at once, so that both sides stall repeatedly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_frames_over_tls_arrive_whole_under_backpressure() {
    let (near, far) = crate::tls::tests::pair().await;
    let (drain, config) = (CancellationToken::new(), Config::default());
    let connection = Connection::new("pair".into(), near, b"", Negotiated::of(&config), &config);
    let (limits, ended) = (config.into(), drain.clone());
    let service = Arc::new(Scripted(|request, _| async { Ok(echo(request)) }));
    let served = tokio::spawn(async move { serve(far, b"", service, &limits, ended).await });
    let asked = (0..24).map(|number| {
        let sent = request(number.to_string(), (number + 1) << 17);
        let connection = &connection;
        async move {
            let answer = connection.infer(&sent, ANY_TIME).await.unwrap();
            assert_eq!((answer.id, answer.outputs), (sent.id, sent.inputs));
        }
    });
    futures::future::join_all(asked).await;
    // Every answer was written when the server stops.
    let last = request("last", 4 << 20);
    let (answer, ()) = tokio::join!(connection.infer(&last, ANY_TIME), async {
        tokio::task::yield_now().await;
        drain.cancel();
    });
    assert_eq!(answer.unwrap().outputs, last.inputs);
    served.await.unwrap().unwrap();
}
