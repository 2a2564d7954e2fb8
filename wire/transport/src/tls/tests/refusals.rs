//! Certificates of callers and workers, and errors, which name the cause and the remedy.

use super::*;

#[tokio::test]
async fn plain_request_to_a_tls_port_is_told_to_use_https() {
    let scene = Scene::new();
    let running = serve(&scene.local(Mode::Require)).await;
    all(running.addresses, false, &Tls::default(), Err("https://")).await;
    drop(TcpStream::connect(running.addresses.http).await.unwrap());
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
    let welcome = Tls::open(&scene.local(Mode::Allow)).unwrap().welcome();
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

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn mutual(scene: &Scene, wished: &[&str]) -> Config {
    Config { client_ca: Some(scene.path("ca.pem")), names: names(wished), ..scene.local(Mode::Require) }
}

#[tokio::test]
async fn client_with_allowed_name_is_accepted() {
    let scene = Scene::new();
    let running = serve(&mutual(&scene, &["spiffe://test/frontend/*", "*.callers.example"])).await;
    for (name, expected) in [
        ("spiffe://test/frontend/a", Ok(())),
        ("one.callers.example", Ok(())),
        ("spiffe://test/frontend/a/b", Err("the peer rejected tls.certificate")),
        ("spiffe://other/frontend/a", Err("the peer rejected tls.certificate")),
    ] {
        let issued = scene.authority.issue(&[name]);
        let tls = Tls::open(&scene.config(Mode::Off, &issued, "who")).unwrap();
        all(running.addresses, true, &tls, expected).await;
    }
}

#[tokio::test]
async fn client_without_valid_certificate_is_rejected() {
    let scene = Scene::new();
    let running = serve(&mutual(&scene, &["*"])).await;
    let ca = Some(scene.path("ca.pem"));
    let nobody = Tls::open(&Config { ca, ..Config::default() }).unwrap();
    all(running.addresses, true, &nobody, Err("set tls.certificate and tls.key")).await;
    let stranger = Authority::new().issue(&["spiffe://test/frontend/a"]);
    let stranger = Tls::open(&scene.config(Mode::Off, &stranger, "stranger")).unwrap();
    all(running.addresses, true, &stranger, Err("received fatal alert")).await;
    let late = scene.authority.issue_until(&["spiffe://test/frontend/a"], 2001);
    let late = Tls::open(&scene.config(Mode::Off, &late, "late")).unwrap();
    all(running.addresses, true, &late, Err("issue a new certificate")).await;
    let server = scene.authority.issue_as(&["spiffe://test/frontend/a"], |params| {
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    });
    let server = Tls::open(&scene.config(Mode::Off, &server, "server")).unwrap();
    all(running.addresses, true, &server, Err("received fatal alert")).await;
    assert!(running.tls.metrics().contains("{spoken=\"tls\"} 0\n"), "{}", running.tls.metrics());
}

#[tokio::test]
async fn workers_are_verified_by_configured_names() {
    let scene = Scene::new();
    let worker = scene.authority.issue(&["spiffe://test/worker/7"]);
    let running = serve(&scene.config(Mode::Require, &worker, "worker")).await;
    let caller = |wished: &[&str]| {
        let ca = Some(scene.path("ca.pem"));
        Tls::open(&Config { ca, worker_names: names(wished), ..Config::default() }).unwrap()
    };
    all(running.addresses, true, &caller(&["spiffe://test/worker/*"]), Ok(())).await;
    all(running.addresses, true, &caller(&["spiffe://test/frontend/*"]), Err("none of tls.worker_names"))
        .await;
    all(running.addresses, true, &caller(&[]), Err("tls.worker_names")).await;
}
