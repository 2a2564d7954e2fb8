//! Mutual TLS: callers with certificates.

use super::*;

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
