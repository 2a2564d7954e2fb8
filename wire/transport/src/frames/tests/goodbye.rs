//! Clients that ignore the server's goodbye, send requests after their own, or use the number of a cancelled request.

use super::*;

/// A server whose connection is old after ten seconds, and the client's end of it.
struct Scene {
    near: UnixStream,
    server: Server,
    began: Instant,
    /// The received frames with their times.
    heard: Vec<(Header, Bytes, Duration)>,
}

impl Scene {
    fn new(age: Option<Duration>) -> Self {
        let limits = Limits { age, ..Config::default().into() };
        let (near, server) = served(Scripted(|request, _| answer(request)), limits);
        Self { near, server, began: Instant::now(), heard: Vec::new() }
    }

    async fn ask(&mut self, number: u64, id: &str) -> std::io::Result<()> {
        self.near.write_all(&asked(number, &request(id, 8))).await
    }

    /// Receives frames for so many seconds, and answers pings. Whether the server closed the connection.
    async fn hear(&mut self, seconds: u64) -> bool {
        let end = Instant::now() + Duration::from_secs(seconds);
        while let Ok(frame) = tokio::time::timeout_at(end, next_frame(&mut self.near)).await {
            let Ok((header, body)) = frame else { return true };
            self.heard.push((header, body.into(), self.began.elapsed()));
            if header.kind == Kind::Ping {
                let _ = self.near.write_all(&bare(Kind::Pong)).await;
            }
        }
        false
    }

    /// Sends a request every second and ignores the goodbye, until the server closes.
    async fn ignore_goodbye(&mut self) {
        for number in 100.. {
            let heard = &self.heard;
            assert!(self.began.elapsed().as_secs() < 120, "the connection outlives its age: {heard:?}");
            if self.ask(number, "").await.is_err() || self.hear(1).await {
                return;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn connection_ends_when_goodbye_is_ignored() {
    for age in [Some(Duration::from_secs(10)), None] {
        let mut scene = Scene::new(age);
        if age.is_none() {
            scene.server.drain.cancel();
        }
        scene.ignore_goodbye().await;
        let (ended, heard) = (scene.began.elapsed(), scene.heard);
        scene.server.task.await.unwrap().unwrap();
        let end = age.unwrap_or_default() + Config::default().ping_timeout;
        assert!((end..end + Duration::from_secs(3)).contains(&ended), "ended after {ended:?}: {heard:?}");
        let answered = heard.iter().filter(|(header, ..)| header.kind == Kind::Response).count();
        assert!(answered >= end.as_secs() as usize - 1, "requests before the end are answered: {heard:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn connection_ends_when_requests_follow_clients_goodbye() {
    for early in [true, false] {
        let mut scene = Scene::new(Some(Duration::from_secs(10)));
        if early {
            scene.near.write_all(&bare(Kind::GoAway)).await.unwrap();
        }
        // A request takes three seconds and one arrives every second, so the connection is never idle.
        for number in 100.. {
            assert!(number < 130, "the connection lasts, goodbye said early: {early}");
            if scene.ask(number, "xxx").await.is_err() || scene.hear(1).await {
                break;
            }
            if scene.heard.drain(..).any(|(header, ..)| header.kind == Kind::GoAway) {
                scene.near.write_all(&bare(Kind::GoAway)).await.unwrap();
            }
        }
        let error = scene.server.task.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidData, "{error}");
        assert!(scene.began.elapsed() < Duration::from_secs(13), "{:?}", scene.began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn request_gets_its_own_answer_when_its_id_was_cancelled() {
    let mut scene = Scene::new(None);
    scene.ask(5, &"x".repeat(20)).await.unwrap();
    scene.hear(1).await;
    scene.near.write_all(&Frame::bare(Kind::Cancel, 5).chunks[0]).await.unwrap();
    scene.ask(5, "second").await.unwrap();
    scene.hear(60).await;
    let mut answers = scene.heard.iter().filter(|(header, ..)| header.kind != Kind::Ping);
    let (header, body, _) = answers.next().unwrap();
    assert_eq!((header.kind, header.id), (Kind::Response, 5));
    assert_eq!(codec::decode_response(body).unwrap().id, "second");
    assert!(answers.next().is_none(), "{:?}", scene.heard);
}
