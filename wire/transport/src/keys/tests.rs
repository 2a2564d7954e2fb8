//! Keys that are added, removed and changed while they are in use.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use parm_protocol::{Code, Error};

use super::*;

fn entry(name: &str, role: Role, key: &str) -> Entry {
    Entry::new(name, role, Digest::of(key.as_bytes()))
}

fn bearer(key: &str) -> HeaderMap {
    HeaderMap::from_iter([(AUTHORIZATION, format!("Bearer {key}").parse().unwrap())])
}

#[test]
fn role_grants_exactly_its_access() {
    let keys = Keys::of(&[
        entry("a", Role::Infer, "1"),
        entry("b", Role::Read, "2"),
        entry("c", Role::Control, "3"),
    ]);
    let cases = [
        (Access::Everyone, [true, true, true, true]),
        (Access::AnyKey, [false, true, true, true]),
        (Access::Infer, [false, true, false, true]),
        (Access::Read, [false, false, true, true]),
        (Access::Control, [false, false, false, true]),
    ];
    for (access, expected) in cases {
        let opened = ["0", "1", "2", "3"].map(|key| keys.admit(&bearer(key), access).is_ok());
        assert_eq!(opened, expected, "{access:?}");
        assert_eq!(keys.admit(&HeaderMap::new(), access).is_ok(), expected[0], "{access:?}");
        Keys::none().admit(&HeaderMap::new(), access).unwrap();
    }
}

#[test]
fn rejection_names_the_missing_access() {
    let keys = Keys::of(&[entry("search", Role::Infer, "hush")]);
    let refusal = |headers: HeaderMap, access| keys.admit(&headers, access).unwrap_err();
    assert_eq!(refusal(HeaderMap::new(), Access::Infer), Error::NoKey);
    assert_eq!(refusal(bearer("husk"), Access::Infer), Error::UnknownKey);
    let error = refusal(bearer("hush"), Access::Control);
    assert_eq!(error.code(), Code::PermissionDenied);
    let words = error.to_string();
    assert!(words.contains("'search' has the role infer") && words.contains("requires control"), "{words}");
}

#[test]
fn change_of_keys_affects_known_callers() {
    let keys = Keys::of(&[entry("a", Role::Control, "1"), entry("b", Role::Read, "2")]);
    let (a, b) = (keys.authenticate(&bearer("1")).unwrap(), keys.authenticate(&bearer("2")).unwrap());
    assert_eq!((a.name().as_deref(), a.role()), (Some("a"), Role::Control));
    keys.replace(&[entry("a", Role::Infer, "1"), entry("c", Role::Read, "3")]);
    assert!(a.still_opens(Access::Infer) && !a.still_opens(Access::Control), "its role changed");
    assert!(!b.still_opens(Access::AnyKey), "it was removed");
    assert_eq!(b.visit(Access::Read).unwrap_err(), Error::UnknownKey);
    keys.admit(&bearer("3"), Access::Read).unwrap();
    assert!(Caller::default().still_opens(Access::Control));
}

#[test]
fn two_digests_of_one_name_share_a_holder() {
    let both = Entry {
        sha256: file::Digests::Several(vec![Digest::of(b"old"), Digest::of(b"new")]),
        concurrency: std::num::NonZeroU32::new(1),
        ..entry("a", Role::Infer, "")
    };
    let keys = Keys::of(&[both]);
    let visit = keys.admit(&bearer("old"), Access::Infer).unwrap();
    let over = keys.admit(&bearer("new"), Access::Infer).unwrap_err();
    assert_eq!(over.code(), Code::TooManyRequests);
    drop(visit);
    keys.admit(&bearer("new"), Access::Infer).unwrap();
}

#[test]
fn usage_of_a_limit_survives_a_change_of_the_file() {
    let limited = Entry { concurrency: std::num::NonZeroU32::new(1), ..entry("a", Role::Infer, "1") };
    let keys = Keys::of(std::slice::from_ref(&limited));
    let visit = keys.admit(&bearer("1"), Access::Infer).unwrap();
    keys.replace(&[limited.clone(), entry("b", Role::Read, "2")]);
    keys.admit(&bearer("1"), Access::Infer).unwrap_err();
    keys.replace(&[Entry { concurrency: std::num::NonZeroU32::new(2), ..limited }]);
    let other = keys.admit(&bearer("1"), Access::Infer).unwrap();
    drop((visit, other));
}

#[tokio::test(start_paused = true)]
async fn invalid_file_keeps_the_previous_keys() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.toml");
    let text = |key: &str| {
        format!("[[key]]\nname = \"a\"\nrole = \"infer\"\nsha256 = \"{}\"\n", Digest::of(key.as_bytes()))
    };
    std::fs::write(&path, text("1")).unwrap();
    let keys = Keys::open(Some(&path)).unwrap();
    let ended = tokio_util::sync::CancellationToken::new();
    let following = tokio::spawn(keys.clone().follow(ended.clone()));
    let opens = |key: &str| keys.admit(&bearer(key), Access::Infer).is_ok();
    let look = async || tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    for (written, known) in [
        (text("2"), "2"),
        (String::new(), "2"),
        ("[[key]]\nname = ".to_owned(), "2"),
        (text("3").replace("infer", "root"), "2"),
        (text("4"), "4"),
    ] {
        std::fs::write(&path, &written).unwrap();
        look().await;
        assert!(opens(known), "{written}");
        assert_eq!(["1", "2", "3", "4"].map(opens).iter().filter(|open| **open).count(), 1, "{written}");
    }
    std::fs::remove_file(&path).unwrap();
    look().await;
    assert!(opens("4"));
    ended.cancel();
    following.await.unwrap();
    let error = Keys::open(Some(&path)).unwrap_err();
    assert!(matches!(&error, Error::KeyFile { .. }) && error.to_string().contains("keys.toml"), "{error}");
}
