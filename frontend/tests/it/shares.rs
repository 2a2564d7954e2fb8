//! Tests of the shares that requests are charged to.

use parm_frontend::{Config, Frontend, Timers};
use parm_protocol::Code;
use parm_settings::PolicyKind;
use parm_shares::{Settings, ShareSettings};

use crate::rig::{Network, config, frontend, infer, metric, request, with};
use crate::scripted::Scripted;

fn shares(names: &[&str]) -> Config {
    let shares = names.iter().map(|name| ((*name).to_owned(), ShareSettings::default())).collect();
    Config { shares: Settings(shares), ..config(PolicyKind::Equal) }
}

#[tokio::test(start_paused = true)]
async fn request_is_charged_to_named_share_or_its_model() {
    let instance = Scripted::quick("a", 10);
    let frontend = frontend(shares(&["gold", "silver"]), &[&instance]).await;
    infer(&frontend, with(request(&[1.0]), "parm_share", "gold")).await.unwrap();
    infer(&frontend, request(&[1.0])).await.unwrap();
    let used = |label: &str| metric(&frontend, "parm_share_used_seconds_total", &[label]);
    for label in ["share=\"gold\"", "model=\"double\""] {
        assert!((used(label) - 0.010).abs() < 0.002, "{label}: {}", used(label));
    }
    assert_eq!(used("share=\"silver\""), 0.0);
    let refused = infer(&frontend, with(request(&[1.0]), "parm_share", "bronze")).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(["bronze", "gold", "silver"].iter().all(|name| refused.to_string().contains(name)), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn contradictory_shares_are_an_error_at_start() {
    let mut twice = shares(&["gold", "silver"]);
    twice.shares.0.values_mut().for_each(|share| share.models.push("double".into()));
    let error = Frontend::start(twice, Network::with(&[]), Timers::Runtime).err().expect("refused");
    assert!(error.to_string().contains("'double'"), "{error}");
}
