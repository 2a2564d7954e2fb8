//! Requests and their answers on one connection: their keys, and the end of both.

use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::*;
use crate::keys::{Digest, Entry, Keys, Role};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_requests_keep_their_answers_apart() {
    let config = Config { max_in_flight: NonZeroU32::new(4000).unwrap(), ..Config::default() };
    let service = Scripted(|request: InferRequest, _| async move {
        // Answers leave in another order than their requests arrived.
        for _ in 0..request.id.len() % 3 {
            tokio::task::yield_now().await;
        }
        Ok(echo(request))
    });
    let (connection, _server) = start(service, &config);
    let calls = (0..4000usize).map(|n| {
        let connection = &connection;
        async move {
            let size = if n % 100 == 0 { 200_000 } else { n % 977 };
            let answer = connection.infer(&request(n.to_string(), size), ANY_TIME).await.unwrap();
            assert_eq!(answer.id, n.to_string());
            assert_eq!(answer.outputs[0].tensor.data().len(), size);
        }
    });
    futures::future::join_all(calls).await;
}

#[tokio::test]
async fn bytes_read_with_the_negotiation_are_not_lost_over_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut far, _) = listener.accept().await.unwrap();
    let config = Config::default();
    let connection = client(near, &config);
    let server = async {
        let mut first = [0; 40];
        far.read_exact(&mut first).await.unwrap();
        let service = Arc::new(echoing());
        serve(far.into(), &first, service, &config.into(), CancellationToken::new()).await
    };
    let ask = request("early", 3000);
    tokio::select! {
        answer = connection.infer(&ask, ANY_TIME) => assert_eq!(answer.unwrap().id, "early"),
        end = server => panic!("{end:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn deadline_is_enforced_and_sent_to_the_server() {
    let (seen, mut told) = tokio::sync::mpsc::channel(1);
    let service = Scripted(move |_, context: Context| {
        seen.try_send((context.transport, context.deadline.unwrap() - context.arrived)).unwrap();
        std::future::pending()
    });
    let (connection, _server) = start(service, &Config::default());
    let deadline = Some(Instant::now() + Duration::from_millis(40));
    let error = connection
        .infer(&request("", 8), &CallContext { deadline, ..CallContext::default() })
        .await
        .unwrap_err();
    assert!(
        matches!(error, Error::DeadlineExceeded { waited } if waited >= Duration::from_millis(40)),
        "{error:?}"
    );
    let (transport, remaining) = told.recv().await.unwrap();
    assert_eq!(transport, Transport::Frames);
    assert!(remaining <= Duration::from_millis(40) && remaining > Duration::from_millis(20), "{remaining:?}");
}

#[tokio::test]
async fn dropped_call_is_cancelled_at_the_server() {
    let (service, count, changed) = endless();
    let (connection, _server) = start(service, &Config::default());
    let ask = request("", 8);
    tokio::select! {
        answer = connection.infer(&ask, ANY_TIME) => panic!("{answer:?}"),
        () = until(&count, &changed, 1) => {}
    }
    until(&count, &changed, 0).await;
    assert!(connection.is_open(), "only that call is cancelled");
}

#[tokio::test(start_paused = true)]
async fn connection_ends_when_the_client_hangs() {
    let (_near, server) = served(endless().0, Config::default());
    let end = server.task.await.unwrap();
    assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
}

#[tokio::test(start_paused = true)]
async fn slow_answer_does_not_end_the_connection() {
    let service = Scripted(|request, _| async move {
        tokio::time::sleep(Duration::from_secs(600)).await;
        Ok(echo(request))
    });
    let (connection, _server) = start(service, &Config::default());
    assert_eq!(connection.infer(&request("slow", 8), ANY_TIME).await.unwrap().id, "slow");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_is_lost_when_the_server_drains_under_load() {
    for round in 0..20 {
        let service = Scripted(|request, _| async move {
            tokio::task::yield_now().await;
            Ok(echo(request))
        });
        let (connection, server) = start(service, &Config::default());
        let connection = Arc::new(connection);
        let callers: Vec<_> = (0..8)
            .map(|_| {
                let connection = Arc::clone(&connection);
                tokio::spawn(async move {
                    let mut answered = 0;
                    // A call that has begun must be answered, however close the drain is.
                    while let Ok(call) = connection.begin() {
                        call.infer(&request("x", 100), ANY_TIME).await.unwrap();
                        answered += 1;
                    }
                    answered
                })
            })
            .collect();
        for _ in 0..round * 20 {
            tokio::task::yield_now().await;
        }
        server.drain.cancel();
        for caller in callers {
            let _: usize = caller.await.unwrap();
        }
        server.task.await.unwrap().unwrap();
    }
}

fn entry() -> Entry {
    Entry::new("frontend", Role::Infer, Digest::of(b"hush"))
}

fn connect<S: InferenceService>(keys: &Keys, service: S) -> Connection {
    let headers = HeaderMap::from_iter([(AUTHORIZATION, "Bearer hush".parse().unwrap())]);
    let limits = Limits { caller: keys.authenticate(&headers).unwrap(), ..Config::default().into() };
    client(served(service, limits).0, &Config::default())
}

#[tokio::test]
async fn changed_key_ends_its_connection() {
    let other = Entry::new("other", Role::Infer, Digest::of(b"other"));
    let cases =
        [(other, Code::Unauthenticated), (Entry { role: Role::Read, ..entry() }, Code::PermissionDenied)];
    for (changed, code) in cases {
        let keys = Keys::of(&[entry()]);
        let connection = connect(&keys, echoing());
        assert_eq!(connection.infer(&request("a", 8), ANY_TIME).await.unwrap().id, "a");
        keys.replace(&[changed]);
        let error = connection.infer(&request("b", 8), ANY_TIME).await.unwrap_err();
        assert_eq!(error.code(), code);
        while connection.is_open() {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn requests_of_one_connection_are_limited_one_by_one() {
    let keys = Keys::of(&[Entry { concurrency: NonZeroU32::new(1), ..entry() }]);
    let service = Scripted(|request: InferRequest, _| async move {
        if request.id == "held" {
            std::future::pending::<()>().await;
        }
        Ok(echo(request))
    });
    let connection = connect(&keys, service);
    let ask = request("held", 8);
    let mut held = Box::pin(connection.infer(&ask, ANY_TIME));
    assert!(futures::poll!(held.as_mut()).is_pending());
    let error = connection.infer(&request("b", 8), ANY_TIME).await.unwrap_err();
    assert_eq!(error.code(), Code::TooManyRequests);
    assert!(connection.is_open(), "the limit leaves the connection open");
    drop(held);
    // The slot becomes free as soon as the server has stopped the request.
    while let Err(error) = connection.infer(&request("c", 8), ANY_TIME).await {
        assert_eq!(error.code(), Code::TooManyRequests);
    }
}

#[tokio::test(start_paused = true)]
async fn old_connection_ends_after_its_requests() {
    let limits = Limits { age: Some(Duration::from_secs(10)), ..Config::default().into() };
    let (near, server) = served(Scripted(|request, _| answer(request)), limits);
    let connection = client(near, &Config::default());
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert!(connection.is_open());
    assert_eq!(connection.infer(&request("abc", 8), ANY_TIME).await.unwrap().id, "abc");
    assert!(!connection.is_open(), "eleven seconds have passed");
    server.task.await.unwrap().unwrap();
}
