//! Limits of a connection and of all connections together, and invalid frames.

use super::*;

#[tokio::test]
async fn client_rejects_requests_over_its_limit() {
    let config = Config { max_in_flight: NonZeroU32::new(2).unwrap(), ..Config::default() };
    let (service, count, changed) = endless();
    let (connection, _server) = start(service, &config);
    let ask = request("", 8);
    let two = async { tokio::join!(connection.infer(&ask, ANY_TIME), connection.infer(&ask, ANY_TIME)) };
    tokio::select! {
        answers = two => panic!("{answers:?}"),
        () = async {
            until(&count, &changed, 2).await;
            let refused = connection.infer(&ask, ANY_TIME).await.unwrap_err();
            assert_eq!(refused.code(), Code::Overloaded);
        } => {}
    }
}

#[tokio::test]
async fn server_rejects_requests_over_its_limit() {
    let server_config = Config { max_in_flight: NonZeroU32::new(2).unwrap(), ..Config::default() };
    let (near, far) = UnixStream::pair().unwrap();
    let no_limits = Negotiated {
        max_body_bytes: u32::MAX,
        max_in_flight: u32::MAX,
        grants: false,
        shares: false,
        slots: None,
    };
    let connection = Connection::new("pair".into(), near.into(), b"", no_limits, &Config::default());
    let (service, ..) = endless();
    let server = tokio::spawn(serve_end(far, service, server_config));
    let ask = request("", 8);
    let calls = (0..3).map(|_| Box::pin(connection.infer(&ask, ANY_TIME)));
    let (first, ..) = futures::future::select_all(calls).await;
    assert_eq!(first.unwrap_err().code(), Code::Overloaded);
    server.abort();
}

#[tokio::test]
async fn requests_of_all_connections_share_one_budget() {
    const BODY: usize = 300_000;
    let limits = Limits { budget: Budget::new(BODY * 3 / 2), ..Config::default().into() };
    let gate = Arc::new(Notify::new());
    let entered = Arc::new(Notify::new());
    let connect = || {
        let (near, far) = UnixStream::pair().unwrap();
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
        tokio::spawn(serve_end(far, service, limits));
        client(near, &Config::default())
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
    let lying = header::Header { kind: header::Kind::Request, id: 1, body: 4104 }.to_bytes();
    let answer = header::Header { kind: header::Kind::Response, id: 1, body: 0 }.to_bytes();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &lying, &answer, &[0; 64]] {
        let (mut near, far) = UnixStream::pair().unwrap();
        near.write_all(bytes).await.unwrap();
        let (service, ..) = endless();
        let end = serve_end(far, service, config.clone()).await;
        assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::InvalidData, "{bytes:?}");
    }
}

#[tokio::test]
async fn malformed_request_is_answered_and_the_connection_stays() {
    let (mut near, far) = UnixStream::pair().unwrap();
    let service = echoing();
    let server = tokio::spawn(serve_end(far, service, Config::default()));
    let header = header::Header { kind: header::Kind::Request, id: 5, body: 8 };
    near.write_all(&header.to_bytes()).await.unwrap();
    near.write_all(&[0xff; 8]).await.unwrap();
    let mut answer = [0; header::LENGTH];
    near.read_exact(&mut answer).await.unwrap();
    let answer = header::Header::from_bytes(&answer).unwrap();
    assert_eq!((answer.kind, answer.id), (header::Kind::Failure, 5));
    assert!(!server.is_finished());
    server.abort();
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
    let (near, far) = UnixStream::pair().unwrap();
    let server = tokio::spawn(serve_end(far, service, config));
    let envelope = codec::Envelope::default();
    let frame = codec::encode_request(1, &request("", 100_000), &envelope, 1 << 20).unwrap().chunks.concat();
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
    server.abort();
}
