//! Errors name the cause and the remedy.

use super::*;

#[tokio::test]
async fn plain_request_to_a_tls_port_is_told_to_use_https() {
    let scene = Scene::new();
    let running = serve(&scene.local(Mode::Require)).await;
    all(running.addresses, false, &Tls::default(), Err("https://")).await;
    let Addresses { http, grpc, metrics } = running.addresses;
    for address in [http, grpc, metrics] {
        let answer = raw(address, b"GET /v2 HTTP/1.1\r\nhost: a\r\n\r\n").await;
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("use https://"), "{answer}");
    }
    drop(TcpStream::connect(http).await.unwrap());
    let page = running.tls.metrics();
    assert!(page.contains("{spoken=\"tls\"} 0\n") && !page.contains("{spoken=\"refused\"} 0\n"), "{page}");
}

#[tokio::test]
async fn rejected_certificate_is_explained() {
    let scene = Scene::new();
    let caller = scene.caller(Mode::Off);
    let elsewhere = scene.authority.issue(&["other.example"]);
    let running = serve(&scene.config(Mode::Require, &elsewhere, "elsewhere")).await;
    all(running.addresses, true, &caller, Err("is only valid for DnsName(\"other.example\")")).await;
    let over = scene.authority.issue_until(&["127.0.0.1"], 2001);
    let running = serve(&scene.config(Mode::Require, &over, "over")).await;
    all(running.addresses, true, &caller, Err("certificate expired")).await;
    // An authority of the same name.
    let stranger = Authority::new().issue(&["127.0.0.1"]);
    let running = serve(&scene.config(Mode::Require, &stranger, "stranger")).await;
    all(running.addresses, true, &caller, Err("BadSignature")).await;
    let plain = serve(&Config::default()).await;
    all(plain.addresses, true, &caller, Err("TLS")).await;
    let error = ask("https://127.0.0.1:1", &Tls::default(), 8).await.unwrap_err().to_string();
    assert!(error.contains("tls.ca"), "{error}");
}

#[test]
fn invalid_files_are_named() {
    let scene = Scene::new();
    let good = scene.local(Mode::Require);
    let other = scene.config(Mode::Require, &scene.authority.issue(&["b"]), "other");
    let junk = scene.path("junk.pem");
    std::fs::write(&junk, "-----BEGIN NOTHING-----\n").unwrap();
    let some = |path: &PathBuf| Some(path.clone());
    let cases = [
        (Config { key: other.key.clone(), ..good.clone() }, "is not the key of the certificate"),
        (Config { key: good.certificate.clone(), ..good.clone() }, "holds no private key"),
        (Config { certificate: some(&junk), ..good.clone() }, "tls.certificate"),
        (Config { certificate: good.key.clone(), ..good.clone() }, "holds no certificate"),
        (Config { ca: some(&junk), ..good.clone() }, "tls.ca"),
        (Config { ca: Some("/no/such.pem".into()), ..good.clone() }, "cannot read /no/such.pem"),
    ];
    for (config, words) in cases {
        let error = Tls::open(&config).unwrap_err().to_string();
        assert!(error.contains("cannot use [tls]") && error.contains(words), "{error}");
    }
    assert_eq!(Tls::exposed(&good), None);
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(good.key.as_ref().unwrap(), open).unwrap();
    assert_eq!(Tls::exposed(&good), good.key.as_deref());
}

#[tokio::test(start_paused = true)]
async fn incomplete_handshake_times_out() {
    let scene = Scene::new();
    let welcome = Tls::open(&scene.local(Mode::Allow)).unwrap().welcome(Spoken::Http2);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for begin in [&b""[..], &[0x16, 3, 1, 0, 200]] {
        let mut caller = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        caller.write_all(begin).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let error = welcome.greet(stream.into()).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut, "{error}");
    }
}

#[tokio::test]
async fn garbage_after_a_handshake_byte_breaks_nothing() {
    let scene = Scene::new();
    let running = serve(&scene.local(Mode::Allow)).await;
    for bytes in
        [&[0x16; 64][..], &[0x16, 3, 1, 0xff, 0xff, 1, 2, 3, 4, 5, 6, 7, 8], b"\x16\x03\x01\x00\x02ab"]
    {
        raw(running.addresses.http, bytes).await;
    }
    all(running.addresses, true, &scene.caller(Mode::Off), Ok(())).await;
}

#[tokio::test]
async fn clients_that_stall_in_a_handshake_keep_no_other_out() {
    let scene = Scene::new();
    let config = Config { max_handshakes: 8.try_into().unwrap(), ..scene.local(Mode::Require) };
    let running = serve(&config).await;
    let mut stalled = Vec::new();
    for _ in 0..8 {
        let mut stream = TcpStream::connect(running.addresses.http).await.unwrap();
        stream.write_all(&[0x16]).await.unwrap();
        stalled.push(stream);
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let url = format!("https://{}", running.addresses.http);
    let caller = scene.caller(Mode::Off);
    let asked = ask(&url, &caller, 8);
    // They have ten seconds for their handshakes.
    tokio::time::timeout(Duration::from_secs(8), asked).await.expect("it gets its turn").unwrap();
}
