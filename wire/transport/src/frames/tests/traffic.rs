//! Requests and their answers on one connection.

use super::*;

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
    assert_eq!(connection.in_flight(), 0);
}

#[tokio::test]
async fn bytes_read_with_the_negotiation_are_not_lost_over_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut far, _) = listener.accept().await.unwrap();
    let config = Config::default();
    let connection = Connection::new("tcp".into(), near.into(), b"", Negotiated::of(&config), &config);
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

#[tokio::test]
async fn service_error_keeps_its_class_and_message() {
    let failure = Error::UnknownModel { name: "m".into() };
    let words = failure.to_string();
    let service = Scripted(move |_, _| std::future::ready(Err(failure.clone())));
    let (connection, _server) = start(service, &Config::default());
    let error = connection.infer(&request("", 8), ANY_TIME).await.unwrap_err();
    assert_eq!(error, Error::Remote { code: Code::NotFound, message: words });
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
async fn service_panic_fails_only_its_request() {
    let service = Scripted(|request: InferRequest, _| async move {
        tokio::task::yield_now().await;
        assert_ne!(request.id, "bad", "scripted panic");
        Ok(echo(request))
    });
    let (connection, _server) = start(service, &Config::default());
    let error = connection.infer(&request("bad", 8), ANY_TIME).await.unwrap_err();
    assert_eq!(error.code(), Code::Internal);
    assert_eq!(connection.infer(&request("good", 8), ANY_TIME).await.unwrap().id, "good");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_survive_partial_writes() {
    let service = Scripted(|request, _| std::future::ready(Ok(echo(request))));
    let (connection, server) = start(service, &Config::default());
    for n in 0..200 {
        let answer = connection.infer(&request(n.to_string(), 602_112), ANY_TIME).await;
        if let Err(error) = answer {
            panic!("{error} {:?}", server.task.await);
        }
    }
}
