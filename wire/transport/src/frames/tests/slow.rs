//! Peers that take their time: with a slow link they are waited for, without a reason they are not.

use super::*;

/// Reads a frame's kind and passes over its body.
async fn next_kind(near: &mut UnixStream) -> header::Kind {
    next_frame(near).await.unwrap().0.kind
}

fn frame(id: u64, bytes: usize) -> Vec<u8> {
    let envelope = codec::Envelope::default();
    codec::encode_request(id, &request("", bytes), &envelope, 64 << 20).unwrap().chunks.concat()
}

#[tokio::test(start_paused = true)]
async fn a_frame_over_a_slow_link_is_waited_for_on_both_sides() {
    let config = Config::default();
    let silence = config.ping_interval + config.ping_timeout;
    let (near, mut link_near) = UnixStream::pair().unwrap();
    let (mut link_far, far) = UnixStream::pair().unwrap();
    let connection = Connection::new("slow".into(), near.into(), b"", Negotiated::of(&config), &config);
    let service = Arc::new(Scripted(|request, _| std::future::ready(Ok(echo(request)))));
    let server = tokio::spawn(async move {
        serve(far.into(), b"", service, &Config::default().into(), CancellationToken::new()).await
    });
    // The way there takes 100 kB a second, the way back whatever comes.
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
    assert!(began.elapsed() > 2 * silence, "{:?} would be no test", began.elapsed());
    assert!(connection.is_open() && !server.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_takes_a_frame_and_then_hangs_is_still_noticed() {
    let (near, mut far) = UnixStream::pair().unwrap();
    let config = Config::default();
    let connection = Connection::new("hung".into(), near.into(), b"", Negotiated::of(&config), &config);
    tokio::spawn(async move {
        let mut some = vec![0; 500_000];
        far.read_exact(&mut some).await.unwrap();
        std::future::pending::<()>().await;
    });
    let error = connection.infer(&request("", 2_000_000), ANY_TIME).await.unwrap_err();
    assert!(error.to_string().contains("no sign of life"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_frame_that_dribbles_is_not_waited_for_for_ever() {
    let (mut near, far) = UnixStream::pair().unwrap();
    let limits = Limits { budget: Budget::new(1 << 20), ..Config::default().into() };
    let budget = limits.budget.clone();
    let (service, ..) = endless();
    let server = tokio::spawn(async move {
        serve(far.into(), b"", Arc::new(service), &limits, CancellationToken::new()).await
    });
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

/// A server of answers of a megabyte that may hold two of them, and a client that reads nothing by itself.
fn unread() -> (UnixStream, Arc<Budget>, JoinHandle<std::io::Result<()>>) {
    let (near, far) = UnixStream::pair().unwrap();
    let limits = Limits { budget: Budget::new(5 << 19), ..Config::default().into() };
    let budget = limits.budget.clone();
    let service = Arc::new(Scripted(|mut ask: InferRequest, _| {
        ask.inputs = request("", 1 << 20).inputs;
        std::future::ready(Ok(echo(ask)))
    }));
    let server =
        tokio::spawn(async move { serve(far.into(), b"", service, &limits, CancellationToken::new()).await });
    (near, budget, server)
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_not_taken_count_and_those_beyond_the_budget_are_refused() {
    let (mut near, budget, server) = unread();
    let ask = [frame(1, 8), frame(2, 8), frame(3, 8)].concat();
    near.write_all(&ask).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!((2 << 20..5 << 19).contains(&budget.held()), "{} bytes held", budget.held());
    let kinds = [next_kind(&mut near).await, next_kind(&mut near).await, next_kind(&mut near).await];
    assert_eq!(kinds, [header::Kind::Response, header::Kind::Response, header::Kind::Failure]);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(budget.held(), 0, "what is taken is not held");
    assert!(!server.is_finished());
    server.abort();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_lives_and_takes_no_answers_is_cut_off() {
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

/// Far more than the sockets and the state of TLS hold, both ways at once, so that both sides stall again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_requests_and_answers_over_tls_arrive_whole_while_both_sides_stall() {
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
    // All that was answered is out when the server goes.
    let last = request("last", 4 << 20);
    let (answer, ()) = tokio::join!(connection.infer(&last, ANY_TIME), async {
        tokio::task::yield_now().await;
        drain.cancel();
    });
    assert_eq!(answer.unwrap().outputs, last.inputs);
    served.await.unwrap().unwrap();
}
