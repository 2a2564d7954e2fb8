//! Clients that ignore the server's goodbye, or send requests after their own.

use super::*;

/// A server whose connection is old after ten seconds, and the client's end of it.
struct Scene {
    near: UnixStream,
    serving: JoinHandle<std::io::Result<()>>,
    began: Instant,
    drain: CancellationToken,
}

/// Takes a second per character of a request's id.
async fn answer(request: InferRequest) -> Result<parm_protocol::InferResponse, Error> {
    tokio::time::sleep(Duration::from_secs(request.id.len() as u64)).await;
    Ok(echo(request))
}

impl Scene {
    fn new(age: Option<Duration>) -> Self {
        let (near, far) = UnixStream::pair().unwrap();
        let (drain, limits) = (CancellationToken::new(), Limits { age, ..Config::default().into() });
        let ended = drain.clone();
        let service = Arc::new(Scripted(|request, _| answer(request)));
        let serving = tokio::spawn(async move { serve(far.into(), b"", service, &limits, ended).await });
        Self { near, serving, began: Instant::now(), drain }
    }

    async fn ask(&mut self, number: u64, id: &str) -> std::io::Result<()> {
        let frame = codec::encode_request(number, &request(id, 8), &codec::Envelope::default(), 64 << 20);
        self.near.write_all(&frame.unwrap().chunks.concat()).await
    }

    /// Sends a request every second, answers pings and ignores the goodbye, until the server closes. Returns the
    /// received frames with their times.
    async fn ignore_goodbye(&mut self) -> Vec<(header::Kind, u64, Duration)> {
        let mut heard = Vec::new();
        for number in 100.. {
            assert!(
                self.began.elapsed() < Duration::from_secs(120),
                "the connection outlives its age: {heard:?}"
            );
            if self.ask(number, "").await.is_err() {
                break;
            }
            let second = tokio::time::sleep(Duration::from_secs(1));
            tokio::pin!(second);
            loop {
                let frame = tokio::select! {
                    frame = next_frame(&mut self.near) => frame,
                    () = second.as_mut() => break,
                };
                match frame {
                    Ok((header, _)) => heard.push((header.kind, header.id, self.began.elapsed())),
                    Err(_) => return heard,
                }
                if heard.last().is_some_and(|(kind, ..)| *kind == header::Kind::Ping) {
                    let _ = self.near.write_all(&Frame::bare(header::Kind::Pong, 0).chunks[0]).await;
                }
            }
        }
        heard
    }
}

#[tokio::test(start_paused = true)]
async fn connection_ends_at_its_age_when_goodbye_is_ignored() {
    let mut scene = Scene::new(Some(Duration::from_secs(10)));
    let heard = scene.ignore_goodbye().await;
    let ended = scene.began.elapsed();
    scene.serving.await.unwrap().unwrap();
    let patience = Config::default().ping_timeout;
    let end = Duration::from_secs(10) + patience;
    assert!((end..end + Duration::from_secs(3)).contains(&ended), "ended after {ended:?}: {heard:?}");
    let answered = heard.iter().filter(|(kind, ..)| *kind == header::Kind::Response).count();
    assert!(answered >= 14, "requests before the end are answered: {heard:?}");
}

#[tokio::test(start_paused = true)]
async fn requests_in_progress_are_answered_after_ignored_goodbye() {
    let mut scene = Scene::new(Some(Duration::from_secs(10)));
    scene.ask(7, &"x".repeat(30)).await.unwrap();
    let heard = scene.ignore_goodbye().await;
    let ended = scene.began.elapsed();
    scene.serving.await.unwrap().unwrap();
    assert!(heard.iter().any(|(kind, id, _)| (*kind, *id) == (header::Kind::Response, 7)), "{heard:?}");
    assert!(ended < Duration::from_secs(33), "ended after {ended:?}");
    let late = heard.iter().filter(|(_, id, at)| *id >= 100 && *at > Duration::from_secs(17));
    let kinds: Vec<_> = late.map(|(kind, ..)| *kind).collect();
    assert!(kinds.len() >= 10, "later requests are refused, not dropped: {heard:?}");
    assert!(kinds.iter().all(|kind| *kind == header::Kind::Failure), "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn drain_ends_connection_when_goodbye_is_ignored() {
    let mut scene = Scene::new(None);
    scene.drain.cancel();
    scene.ignore_goodbye().await;
    assert!(scene.began.elapsed() < Duration::from_secs(9), "{:?}", scene.began.elapsed());
    scene.serving.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn connection_ends_when_requests_follow_clients_goodbye() {
    for early in [true, false] {
        let mut scene = Scene::new(Some(Duration::from_secs(10)));
        let goodbye = Frame::bare(header::Kind::GoAway, 0).chunks[0].clone();
        if early {
            scene.near.write_all(&goodbye).await.unwrap();
        }
        // A request takes three seconds and one arrives every second, so the connection is never idle.
        let mut ended = false;
        for number in 100..130 {
            ended = scene.ask(number, "xxx").await.is_err();
            let second = tokio::time::sleep(Duration::from_secs(1));
            tokio::pin!(second);
            while !ended {
                let frame = tokio::select! {
                    frame = next_frame(&mut scene.near) => frame,
                    () = second.as_mut() => break,
                };
                match frame.map(|(header, _)| header.kind) {
                    Ok(header::Kind::GoAway) => scene.near.write_all(&goodbye).await.unwrap(),
                    Ok(_) => {}
                    Err(_) => ended = true,
                }
            }
            if ended {
                break;
            }
        }
        assert!(ended, "the connection lasts after {:?}, goodbye said early: {early}", scene.began.elapsed());
        let error = scene.serving.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidData, "{error}");
        assert!(scene.began.elapsed() < Duration::from_secs(13), "{:?}", scene.began.elapsed());
    }
}
