//! A fleet that enables TLS step by step: neighbouring modes are compatible, and no caller is downgraded.

use super::*;

const ALL: [Mode; 4] = [Mode::Off, Mode::Allow, Mode::Prefer, Mode::Require];

#[tokio::test]
async fn machines_one_step_apart_understand_each_other() {
    let scene = Scene::new();
    for (at, server) in ALL.into_iter().enumerate() {
        let running = serve(&scene.local(server)).await;
        for caller in &ALL[at.saturating_sub(1)..(at + 2).min(ALL.len())] {
            all(running.addresses, false, &scene.caller(*caller), Ok(())).await;
        }
    }
}

#[tokio::test]
async fn address_of_an_upstream_decides_in_every_mode() {
    let scene = Scene::new();
    for (mode, secured) in ALL.into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
        let ca = secured.then(|| scene.path("ca.pem"));
        let tls = Tls::open(&Config { ca, ..scene.local(mode) }).unwrap();
        let server = if secured { scene.local(Mode::Require) } else { Config::default() };
        let running = serve(&server).await;
        for url in &urls(running.addresses, secured)[..2] {
            let alive = dial(&format!("upstream+{url}"), &tls).unwrap().is_ready().await;
            assert_eq!(alive, Ok(true), "{url} with {}", mode.name());
        }
    }
}

#[tokio::test]
async fn caller_that_speaks_tls_never_sends_plain_text() {
    let scene = Scene::new();
    let running = serve(&scene.local(Mode::Off)).await;
    for mode in [Mode::Prefer, Mode::Require] {
        let tls = scene.caller(mode);
        all(running.addresses, false, &tls, Err("TLS")).await;
        let (url, mut heard) = plain_server().await;
        for _ in 0..2 {
            let error = ask(&url, &tls, 8).await.unwrap_err();
            assert!(error.to_string().contains("does not speak TLS"), "{error}");
            assert_eq!(heard.recv().await.unwrap()[0], 0x16, "nothing but handshakes is sent");
        }
    }
}

#[tokio::test]
async fn one_port_takes_both_until_tls_is_required() {
    let scene = Scene::new();
    let running = serve(&scene.local(Mode::Allow)).await;
    all(running.addresses, false, &Tls::default(), Ok(())).await;
    all(running.addresses, true, &scene.caller(Mode::Off), Ok(())).await;
    let page = running.tls.metrics();
    let counted = |spoken: &str| {
        let line = page.lines().find(|line| line.contains(&format!("{{spoken=\"{spoken}\"}}"))).unwrap();
        line.rsplit(' ').next().unwrap().parse::<u32>().unwrap()
    };
    assert!(counted("plain") >= 3 && counted("tls") >= 3 && counted("refused") == 0, "{page}");
}

/// A plain HTTP server, which reports the first bytes of each caller.
async fn plain_server() -> (String, tokio::sync::mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (report, heard) = tokio::sync::mpsc::channel(64);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = vec![0; 4096];
            let read = stream.read(&mut bytes).await.unwrap_or_default();
            bytes.truncate(read);
            let _ = report.send(bytes).await;
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
        }
    });
    (url, heard)
}
