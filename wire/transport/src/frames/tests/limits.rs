//! Limits of a connection and of all connections together, invalid frames, and slow peers: a slow link is tolerated, a
//! hung peer times out.

use super::*;

#[tokio::test]
async fn client_and_server_reject_requests_over_their_limits() {
    let two = Config { max_in_flight: NonZeroU32::new(2).unwrap(), ..Config::default() };
    for (of_server, of_client) in [(two.clone(), Config::default()), (Config::default(), two)] {
        let (near, _server) = served(endless().0, of_server);
        let connection = client(near, &of_client);
        let ask = request("", 8);
        let calls = (0..3).map(|_| Box::pin(connection.infer(&ask, ANY_TIME)));
        let (first, ..) = futures::future::select_all(calls).await;
        assert_eq!(first.unwrap_err().code(), Code::Overloaded);
    }
}

#[tokio::test]
async fn requests_of_all_connections_share_one_budget() {
    const BODY: usize = 300_000;
    let limits = Limits { budget: Budget::new(BODY * 3 / 2), ..Config::default().into() };
    let gate = Arc::new(Notify::new());
    let entered = Arc::new(Notify::new());
    let connect = || {
        let (limits, gate, entered) = (limits.clone(), gate.clone(), entered.clone());
        let service = Scripted(move |request: InferRequest, _| {
            let (gate, entered) = (gate.clone(), entered.clone());
            async move {
                if request.id == "held" {
                    entered.notify_one();
                    gate.notified().await;
                }
                Ok(echo(request))
            }
        });
        client(served(service, limits).0, &Config::default())
    };
    let (first, second) = (connect(), connect());
    let held = tokio::spawn(async move { first.infer(&request("held", BODY), ANY_TIME).await });
    entered.notified().await;
    let refused = second.infer(&request("more", BODY), ANY_TIME).await.unwrap_err();
    assert_eq!(refused.code(), Code::Overloaded);
    assert!(refused.to_string().contains("max_bytes_in_flight"), "{refused}");
    // A skipped body leaves the connection intact, and smaller requests are served.
    assert_eq!(second.infer(&request("small", 100_000), ANY_TIME).await.unwrap().id, "small");
    gate.notify_one();
    assert_eq!(held.await.unwrap().unwrap().id, "held");
    assert_eq!(second.infer(&request("again", BODY), ANY_TIME).await.unwrap().id, "again");
}

#[tokio::test]
async fn body_over_the_servers_limit_keeps_the_connection() {
    let config = Config { max_body_bytes: NonZeroU32::new(4096).unwrap(), ..Config::default() };
    let (connection, _server) = start(echoing(), &config);
    let error = connection.infer(&request("", 5000), ANY_TIME).await.unwrap_err();
    assert_eq!(error, Error::BodyTooLarge { limit: 4096 });
    connection.infer(&request("", 1000), ANY_TIME).await.unwrap();
}

#[tokio::test]
async fn answer_over_the_limit_becomes_an_error() {
    let config = Config { max_body_bytes: NonZeroU32::new(4096).unwrap(), ..Config::default() };
    let service = Scripted(|mut ask: InferRequest, _| async move {
        ask.inputs = request("", 5000).inputs;
        Ok(echo(ask))
    });
    let (connection, _server) = start(service, &config);
    let error = connection.infer(&request("", 10), ANY_TIME).await.unwrap_err();
    let told = error.to_string();
    assert!(
        error.code() == Code::TooLarge && told.starts_with("the answer has more than 4096 bytes"),
        "{told}"
    );
}

#[tokio::test]
async fn garbage_and_wrong_lengths_end_the_connection() {
    let config = Config { max_body_bytes: NonZeroU32::new(4096).unwrap(), ..Config::default() };
    let lying = Header { kind: Kind::Request, id: 1, body: 4104 }.to_bytes();
    let answer = Header { kind: Kind::Response, id: 1, body: 0 }.to_bytes();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &lying, &answer, &[0; 64]] {
        let (mut near, server) = served(endless().0, config.clone());
        near.write_all(bytes).await.unwrap();
        assert_eq!(
            server.task.await.unwrap().unwrap_err().kind(),
            std::io::ErrorKind::InvalidData,
            "{bytes:?}"
        );
    }
}

#[tokio::test]
async fn malformed_request_is_answered_and_the_connection_stays() {
    let (mut near, server) = served(echoing(), Config::default());
    let header = Header { kind: Kind::Request, id: 5, body: 8 };
    near.write_all(&header.to_bytes()).await.unwrap();
    near.write_all(&[0xff; 8]).await.unwrap();
    let (answer, _) = next_frame(&mut near).await.unwrap();
    assert_eq!((answer.kind, answer.id), (Kind::Failure, 5));
    assert!(!server.task.is_finished());
}

#[tokio::test]
async fn server_stops_reading_when_answers_are_not_read() {
    let config = Config { max_queued_bytes: NonZeroUsize::new(1 << 20).unwrap(), ..Config::default() };
    let started = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&started);
    let service = Scripted(move |request, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move { Ok(echo(request)) }
    });
    let (near, _server) = served(service, config);
    let frame = asked(1, &request("", 100_000));
    let frames = 200;
    // The far end reads up to its limit and the kernel's buffers, and then the socket fills up.
    let mut written = 0;
    let mut idle = 0;
    while idle < 1000 {
        match near.try_write(&frame[written % frame.len()..]) {
            Ok(count) => (written, idle) = (written + count, 0),
            Err(_) => idle += 1,
        }
        assert!(written < frames * frame.len(), "the server must stop reading");
        tokio::task::yield_now().await;
    }
    assert!(started.load(Ordering::SeqCst) < 40, "{started:?} of {frames} started");
}

#[tokio::test(start_paused = true)]
async fn slow_frame_is_received_on_both_sides() {
    let config = Config::default();
    let silence = config.ping_interval + config.ping_timeout;
    let (near, mut link_near) = UnixStream::pair().unwrap();
    let (mut link_far, far) = UnixStream::pair().unwrap();
    let connection = client(near, &config);
    let server = Server::new(far.into(), echoing(), Config::default());
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
    assert!(connection.is_open() && !server.task.is_finished());
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
    let limits = Limits { budget: Budget::new(1 << 20), ..Config::default().into() };
    let budget = limits.budget.clone();
    let (mut near, server) = served(endless().0, limits);
    let began = Instant::now();
    let frame = asked(1, &request("", 100_000));
    near.write_all(&frame[..LENGTH]).await.unwrap();
    for byte in frame.chunks(1).skip(LENGTH) {
        if server.task.is_finished() || near.write_all(byte).await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let error = server.task.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("did not arrive within 30s"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(33), "{:?}", began.elapsed());
    assert_eq!(budget.held(), 0);
}

/// A server with answers of a megabyte and a budget for two of them, and a client that reads nothing by itself.
fn unread() -> (UnixStream, Arc<Budget>, Server) {
    let limits = Limits { budget: Budget::new(5 << 19), ..Config::default().into() };
    let budget = limits.budget.clone();
    let service = Scripted(|mut ask: InferRequest, _| {
        ask.inputs = request("", 1 << 20).inputs;
        std::future::ready(Ok(echo(ask)))
    });
    let (near, server) = served(service, limits);
    (near, budget, server)
}

#[tokio::test(start_paused = true)]
async fn unread_answers_count_against_the_budget() {
    let (mut near, budget, server) = unread();
    let ask = [1, 2, 3].map(|number| asked(number, &request("", 8))).concat();
    near.write_all(&ask).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!((2 << 20..5 << 19).contains(&budget.held()), "{} bytes held", budget.held());
    for kind in [Kind::Response, Kind::Response, Kind::Failure] {
        assert_eq!(next_frame(&mut near).await.unwrap().0.kind, kind);
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(budget.held(), 0, "read answers are not held");
    assert!(!server.task.is_finished());
}

#[tokio::test(start_paused = true)]
async fn client_that_reads_no_answers_is_cut_off() {
    let (mut near, budget, server) = unread();
    near.write_all(&asked(1, &request("", 8))).await.unwrap();
    let began = Instant::now();
    while !server.task.is_finished() {
        let _ = near.write_all(&bare(Kind::Pong)).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let error = server.task.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("answer_timeout_ms"), "{error}");
    assert!((60..63).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    assert_eq!(budget.held(), 0);
}

/// Far more than the sockets and the TLS state hold, both ways at once, so that both sides stall repeatedly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_frames_over_tls_arrive_whole_under_backpressure() {
    let (near, far) = crate::tls::tests::pair().await;
    let connection = client(near, &Config::default());
    let server = Server::new(far, echoing(), Config::default());
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
        server.drain.cancel();
    });
    assert_eq!(answer.unwrap().outputs, last.inputs);
    server.task.await.unwrap().unwrap();
}
