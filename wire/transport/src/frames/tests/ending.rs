//! The end of requests and connections: cancelled calls, hung peers, drains.

use super::*;

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

#[tokio::test]
async fn requests_of_a_disconnected_client_are_dropped() {
    let (service, count, changed) = endless();
    let (connection, server) = start(service, &Config::default());
    let connection = Arc::new(connection);
    let calls: Vec<_> = (0..5)
        .map(|_| {
            let connection = Arc::clone(&connection);
            tokio::spawn(async move { connection.infer(&request("", 8), ANY_TIME).await })
        })
        .collect();
    until(&count, &changed, 5).await;
    calls.iter().for_each(JoinHandle::abort);
    for call in calls {
        assert!(call.await.unwrap_err().is_cancelled());
    }
    drop(connection);
    until(&count, &changed, 0).await;
    server.task.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn calls_fail_when_the_server_hangs() {
    let (near, far) = UnixStream::pair().unwrap();
    let config = Config::default();
    let connection = client(near, &config);
    let ask = request("", 100);
    let (first, second) = tokio::join!(connection.infer(&ask, ANY_TIME), connection.infer(&ask, ANY_TIME));
    let expected =
        Error::Transport { peer: "pair".into(), message: "no sign of life in 5s after a ping".into() };
    assert_eq!(first, Err(expected.clone()));
    assert_eq!(second, Err(expected));
    assert!(!connection.is_open());
    drop(far);
}

#[tokio::test(start_paused = true)]
async fn connection_ends_when_the_client_hangs() {
    let (near, far) = UnixStream::pair().unwrap();
    let (service, ..) = endless();
    let end = serve_end(far, service, Config::default()).await;
    assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    drop(near);
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

#[tokio::test]
async fn drain_answers_accepted_requests_and_then_closes() {
    let gate = Arc::new(Notify::new());
    let (count, changed) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let service = {
        let (gate, count, changed) = (Arc::clone(&gate), Arc::clone(&count), Arc::clone(&changed));
        Scripted(move |request, _| {
            let (gate, alive) = (Arc::clone(&gate), Alive::new(&count, &changed));
            async move {
                gate.notified().await;
                drop(alive);
                Ok(echo(request))
            }
        })
    };
    let (connection, server) = start(service, &Config::default());
    let connection = Arc::new(connection);
    let calls: Vec<_> = (0..10)
        .map(|n| {
            let connection = Arc::clone(&connection);
            tokio::spawn(async move { connection.infer(&request(n.to_string(), 3000), ANY_TIME).await })
        })
        .collect();
    until(&count, &changed, 10).await;
    server.drain.cancel();
    while connection.is_open() {
        tokio::task::yield_now().await;
    }
    let refused = connection.begin().map(drop).unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    gate.notify_waiters();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    server.task.await.unwrap().unwrap();
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
