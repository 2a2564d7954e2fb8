//! Files that change while connections arrive.

use super::*;

/// Follows the files of a configuration on a paused clock.
struct Followed {
    tls: Tls,
    stop: CancellationToken,
}

impl Followed {
    fn start(config: &Config) -> Self {
        let (tls, stop) = (Tls::open(config).unwrap(), CancellationToken::new());
        tokio::spawn(tls.clone().follow(stop.clone()));
        Self { tls, stop }
    }

    fn expires(&self) -> u64 {
        let page = self.tls.metrics();
        let line = page.lines().find_map(|line| line.strip_prefix("parm_tls_certificate_expires_seconds "));
        line.unwrap().parse().unwrap()
    }

    /// Time for more than two reads.
    async fn looks(&self) {
        tokio::time::sleep(Duration::from_secs(5)).await;
    }

    fn says(&self, line: &str) -> bool {
        self.tls.metrics().contains(&format!("{line}\n"))
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[tokio::test(start_paused = true)]
async fn changed_files_are_applied_and_invalid_ones_ignored() {
    let scene = Scene::new();
    let config = scene.config(Mode::Require, &scene.authority.issue_until(&["127.0.0.1"], 3000), "a");
    let followed = Followed::start(&config);
    let first = followed.expires();
    assert!(followed.says(&format!("parm_tls_certificate_expires_seconds {first}")));
    followed.looks().await;
    assert!(followed.says("parm_tls_reloads_total 0") && followed.says("parm_tls_files_stale 0"));
    assert_eq!(followed.tls.faults(), []);

    scene.authority.issue_until(&["127.0.0.1"], 3001).write(scene.folder.path(), "a");
    followed.looks().await;
    let second = followed.expires();
    assert!(second > first && followed.says("parm_tls_reloads_total 1"));

    // The certificate without its key, then an invalid file, then an expired certificate.
    let next = scene.authority.issue_until(&["127.0.0.1"], 3002);
    std::fs::write(config.certificate.as_ref().unwrap(), &next.certificate).unwrap();
    followed.looks().await;
    assert!(followed.expires() == second && followed.says("parm_tls_files_stale 1"));
    let codes: Vec<_> = followed.tls.faults().iter().map(|fault| (fault.code, fault.fails)).collect();
    assert_eq!(codes, [(StableCode::TlsFiles, true)]);
    std::fs::remove_file(config.key.as_ref().unwrap()).unwrap();
    followed.looks().await;
    assert!(followed.expires() == second && followed.says("parm_tls_files_stale 1"));
    scene.authority.issue_until(&["127.0.0.1"], 2001).write(scene.folder.path(), "a");
    followed.looks().await;
    assert!(followed.expires() == second && followed.says("parm_tls_files_stale 1"));

    next.write(scene.folder.path(), "a");
    followed.looks().await;
    assert!(followed.expires() > second && followed.says("parm_tls_files_stale 0"));
    assert_eq!(followed.tls.faults(), []);
}

#[test]
fn certificate_is_a_fault_outside_of_its_validity() {
    let scene = Scene::new();
    let early = scene.authority.issue_as(&["127.0.0.1"], |params| {
        params.not_before = rcgen::date_time_ymd(3000, 1, 2);
    });
    let late = scene.authority.issue_until(&["127.0.0.1"], 2020);
    for (issued, words) in [(early, "is not valid yet: it is valid from"), (late, "has expired")] {
        let faults = Tls::open(&scene.config(Mode::Require, &issued, "a")).unwrap().faults();
        let [fault] = &faults[..] else { panic!("{faults:?}") };
        assert_eq!((fault.code, fault.fails), (StableCode::CertificateExpired, true));
        assert!(fault.text.contains(words), "{}", fault.text);
    }
}

#[tokio::test]
async fn new_connections_get_new_authorities_on_both_sides() {
    let (scene, other) = (Scene::new(), Authority::new());
    let config = Config {
        client_ca: Some(scene.path("ca.pem")),
        names: vec!["*".into()],
        ..scene.config(Mode::Require, &scene.authority.issue(&["127.0.0.1"]), "a")
    };
    let running = serve(&config).await;
    let caller = Tls::open(&config).unwrap();
    tokio::spawn(caller.clone().follow(running.stop.clone()));
    all(running.addresses, true, &caller, Ok(())).await;
    // Both authorities, then a certificate of the new one, then the old one is removed: the way to replace one without
    // a gap.
    let both = scene.authority.pem() + &other.pem();
    let seen = |tls: &Tls, number: u32| tls.metrics().contains(&format!("parm_tls_reloads_total {number}\n"));
    for (step, change) in [0, 1, 2].into_iter().enumerate() {
        match change {
            0 => std::fs::write(scene.path("ca.pem"), &both).unwrap(),
            1 => drop(other.issue(&["127.0.0.1"]).write(scene.folder.path(), "a")),
            _ => std::fs::write(scene.path("ca.pem"), other.pem()).unwrap(),
        }
        let number = step as u32 + 1;
        while !(seen(&running.tls, number) && seen(&caller, number)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(ask(&urls(running.addresses, true)[0], &caller, 8).await.is_ok(), "at every step");
        }
        all(running.addresses, true, &caller, Ok(())).await;
    }
    // A certificate of the old authority is invalid now.
    let old = scene.authority.issue(&["127.0.0.1"]);
    let [certificate, key] = old.write(scene.folder.path(), "old");
    let ca = Some(scene.path("ca.pem"));
    let old = Config { certificate: Some(certificate), key: Some(key), ca, ..Config::default() };
    all(running.addresses, true, &Tls::open(&old).unwrap(), Err("received fatal alert")).await;
}
