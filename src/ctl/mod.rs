//! `parm ctl`: inspects and changes a running frontend, like the admin page.

mod changes;
mod named;

use anyhow::{Context, anyhow, ensure};
use hyper::Method;
use serde_json::{Map, Value, json};

use crate::Failure;
use crate::admin::{Admin, block_on, soon};
use crate::cli::Output;
use crate::cli::admin::{Ctl, CtlCommand};
use crate::printer::say;
use crate::stream::{self, State, Stream, list, text};

/// A running frontend, and the form of the output.
struct Session {
    admin: Admin,
    output: Output,
}

/// Runs the command.
pub fn main(flags: &Ctl) -> Result<(), Failure> {
    let session = Session { admin: Admin::of(&flags.reach)?, output: flags.output };
    if let CtlCommand::Set { changes } = &flags.command {
        let (path, patch) = change(changes).map_err(Failure::Configuration)?;
        return Ok(block_on(session.set(&path, &patch))?);
    }
    Ok(block_on(session.run(&flags.command))?)
}

impl Session {
    async fn run(&self, command: &CtlCommand) -> anyhow::Result<()> {
        match command {
            CtlCommand::Models => {
                let models = stream::figures(&self.state().await?);
                self.show(&json!(models), || stream::table(&models).trim_end().to_owned())
            }
            CtlCommand::Events => {
                let state = self.state().await?;
                let now_ms = state.now_ms().unwrap_or_default();
                say(&rows(state.events.iter(), |one| stream::event(one, now_ms)))
            }
            CtlCommand::Instances => {
                let all = self.get("instances").await?;
                self.show(&all, || rows(list(&all).iter(), instance))
            }
            CtlCommand::Shares => {
                let all = self.get("shares").await?;
                self.show(&all, || rows(list(&all).iter(), share))
            }
            CtlCommand::Settings { model } => {
                let of = model.as_ref().map(|model| format!("/{}", escaped(model))).unwrap_or_default();
                let settings = self.get(&format!("settings{of}")).await?;
                self.show(&settings, || format!("{settings:#}"))
            }
            // `main` has done it, because a wrong change is a wrong configuration.
            CtlCommand::Set { .. } => Ok(()),
            CtlCommand::Export => say(&changes::exported(&self.get("settings").await?)?),
            CtlCommand::Add { urls } => {
                for url in urls {
                    let path = "/admin/v1/instances";
                    let added = self.admin.call(Method::POST, path, Some(&json!({ "url": url }))).await?;
                    let (number, address) = (&added["number"], text(&added["address"]));
                    self.show(&added, || format!("added instance {number} ({address})"))?;
                }
                Ok(())
            }
            CtlCommand::Remove { instances, force } => {
                self.order(Method::DELETE, "", instances, *force).await
            }
            CtlCommand::Drain { instances, force } => {
                self.order(Method::POST, "/drain", instances, *force).await
            }
            CtlCommand::Eject { instances, force } => {
                self.order(Method::POST, "/eject", instances, *force).await
            }
            CtlCommand::Return { instances } => self.order(Method::POST, "/undrain", instances, true).await,
            CtlCommand::Queries { model, outcome, slowest, limit } => {
                let mut path = format!("queries?slowest={slowest}&limit={limit}");
                for (name, value) in [("model", model), ("outcome", outcome)] {
                    value.iter().for_each(|value| path.push_str(&format!("&{name}={}", escaped(value))));
                }
                let found = self.get(&path).await?;
                self.show(&found, || rows(list(&found["queries"]).iter(), query))
            }
            CtlCommand::Query { id } => {
                let mut found = self.get(&query_path(id)).await?;
                // Several queries may have the same client's id: the latest is shown.
                if !is_own(id) {
                    let own = found["queries"][0]["id"].as_str();
                    let own = own.context("no query with this id: the frontend keeps only recent ones")?;
                    found = self.get(&query_path(own)).await?;
                }
                self.show(&found, || story(&found))
            }
        }
    }

    /// Changes settings, and says what has changed.
    async fn set(&self, path: &str, patch: &Value) -> anyhow::Result<()> {
        let before = self.admin.call(Method::GET, path, None).await?;
        let after = self.admin.call(Method::PATCH, path, Some(patch)).await?;
        self.show(&after, || {
            let mut lines = vec![changes::changed(&before, &after)];
            lines.extend(changes::absent_stand_ins(&after));
            lines.join("\n")
        })
    }

    /// Gives an order to instances, by number or address. Fails if a model would lose its last instance, unless by force.
    async fn order(
        &self,
        method: Method,
        order: &str,
        instances: &[String],
        force: bool,
    ) -> anyhow::Result<()> {
        let all = list(&self.get("instances").await?);
        let numbers = named::numbers(&all, instances)?;
        if !force {
            named::spare(&all, &numbers)?;
        }
        for number in numbers {
            let path = format!("/admin/v1/instances/{number}{order}");
            let answer = self.admin.call(method.clone(), &path, None).await?;
            self.show(&answer, || match method {
                Method::DELETE => format!("instance {number} finishes its jobs and is removed"),
                _ => {
                    format!("instance {number} received the order; its state was {}", text(&answer["state"]))
                }
            })?;
        }
        Ok(())
    }

    async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.admin.call(Method::GET, &format!("/admin/v1/{path}"), None).await
    }

    /// The frontend's state after its next frame.
    async fn state(&self) -> anyhow::Result<State> {
        let mut stream = Stream::open(&self.admin).await?;
        ensure!(soon(stream.next()).await?, "the frontend ended the stream: check its log");
        Ok(stream.state)
    }

    fn show(&self, answer: &Value, worded: impl FnOnce() -> String) -> anyhow::Result<()> {
        match self.output {
            Output::Json => say(&answer.to_string()),
            Output::Text => say(&worded()),
        }
    }
}

/// The path of a query, which has the frontend's id or that of its client.
fn query_path(id: &str) -> String {
    match is_own(id) {
        true => format!("queries/{id}"),
        false => format!("queries?request={}&limit=1", escaped(id)),
    }
}

/// Whether an id was made by the frontend. Any other id was sent by a client.
fn is_own(id: &str) -> bool {
    id.len() == 16 && id.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

/// The path and the patch of changed settings.
fn change(words: &[String]) -> anyhow::Result<(String, Value)> {
    let (model, fields) = match words {
        [first, rest @ ..] if !first.contains('=') => (Some(first), rest),
        all => (None, all),
    };
    if fields.is_empty() {
        return Err(anyhow!("no change: give PATH=VALUE, such as hedge.min_delay_us=500"));
    }
    let mut patch = json!({});
    for field in fields {
        let (path, value) = field.split_once('=').ok_or_else(|| {
            anyhow!("'{field}' is not PATH=VALUE: give at most one model, before the changes")
        })?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
        let names = path.split('.').collect::<Vec<_>>();
        set(&mut patch, &names, value);
    }
    let path = match model {
        Some(model) => format!("/admin/v1/settings/{}", escaped(model)),
        None => "/admin/v1/settings".to_owned(),
    };
    Ok((path, patch))
}

/// Sets the value at a path.
fn set(patch: &mut Value, path: &[&str], value: Value) {
    let Some((name, rest)) = path.split_first() else {
        *patch = value;
        return;
    };
    if !patch.is_object() {
        *patch = Value::Object(Map::new());
    }
    set(&mut patch[*name], rest, value);
}

/// Escapes a word for a URL.
pub fn escaped(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let byte = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    word.bytes().map(byte).collect()
}

fn rows<'a>(all: impl Iterator<Item = &'a Value>, row: impl Fn(&Value) -> String) -> String {
    let rows: Vec<_> = all.map(row).collect();
    if rows.is_empty() { "none".to_owned() } else { rows.join("\n") }
}

fn instance(one: &Value) -> String {
    let state =
        if one["state"] == "ready" && one["in_service"] == false { "ejected" } else { text(&one["state"]) };
    let reason = one["reason"].as_str().map(|reason| format!("  reason: {reason}"));
    let p99 = one["service_time"]["p99_us"].as_f64().map(|us| format!("  p99 {:.1} ms", us / 1e3));
    let slower = one["slower"].as_f64().filter(|times| *times > 1.0);
    let slower = slower.map(|times| format!("  {times:.1}x slower"));
    let problem = one["problem"].as_str().map(|problem| format!("  {problem}"));
    let (number, address) = (one["number"].to_string(), text(&one["address"]));
    let remarks: String = [reason, p99, slower, problem].into_iter().flatten().collect();
    format!("{number:>4}  {state:<10}  {address}{remarks}")
}

fn share(one: &Value) -> String {
    let name = one["share"].as_str().map_or_else(|| format!("model {}", text(&one["model"])), str::to_owned);
    let seconds = |field: &str| one[field].as_f64().unwrap_or_default();
    let (weight, reserved, waiting) = (&one["weight"], &one["reserved"], &one["waiting"]);
    let (used, entitled) = (seconds("used_s"), seconds("entitled_s"));
    format!(
        "{name:<24}  weight {weight}  reserved {reserved}  used {used:.1} s of {entitled:.1} s  {waiting} waiting"
    )
}

fn query(one: &Value) -> String {
    let (id, outcome, took) =
        (text(&one["id"]), text(&one["outcome"]), one["took_us"].as_f64().unwrap_or_default());
    let alone = one["alone_us"].as_f64().map_or("not yet".to_owned(), |us| format!("{:.1} ms", us / 1e3));
    let (model, request) = (text(&one["model"]), text(&one["request"]));
    format!("{id}  {outcome:<13} {:>8.1} ms  alone {alone:>10}  {model}  {request}", took / 1e3)
}

fn story(query: &Value) -> String {
    let mut told = format!("{}\n", text(&query["why"]));
    for step in query["timeline"].as_array().into_iter().flatten() {
        let at = step["at_us"].as_f64().map_or(String::new(), |us| format!("{:.2} ms", us / 1e3));
        told.push_str(&format!("\n{at:>12}  {}", text(&step["text"])));
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(all: &[&str]) -> Vec<String> {
        all.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn changes_become_one_patch() {
        let (path, patch) =
            change(&words(&["res net", "stand_in.bound=0.02", "stand_in.hedge=false", "policy=parm+"]))
                .unwrap();
        assert_eq!(patch, json!({"stand_in": {"bound": 0.02, "hedge": false}, "policy": "parm+"}));
        assert_eq!(path, "/admin/v1/settings/res%20net");
        let (path, patch) = change(&words(&["queue_limit=null"])).unwrap();
        assert_eq!((path.as_str(), patch), ("/admin/v1/settings", json!({"queue_limit": null})));
        for wrong in [&["resnet50"][..], &["a=1", "resnet50"], &["a", "b"]] {
            change(&words(wrong)).unwrap_err();
        }
    }

    #[test]
    fn instance_line_says_how_much_slower_it_is() {
        let line = |slower: Value| {
            let own = json!({"number": 3, "state": "ready", "in_service": true, "address": "http://a:1",
                             "service_time": {"p99_us": 48_000}, "slower": slower});
            instance(&own)
        };
        assert_eq!(line(json!(2.43)), "   3  ready       http://a:1  p99 48.0 ms  2.4x slower");
        for as_fast in [json!(null), json!(0.8)] {
            assert!(!line(as_fast.clone()).contains("slower"), "{as_fast}");
        }
    }

    #[test]
    fn share_line_has_used_and_entitled_time() {
        let own = json!({"share": null, "model": "m", "weight": 2.0, "reserved": 1, "used_s": 1.25,
                         "entitled_s": 3.0, "waiting": 4, "running": 0});
        let line = share(&own);
        for part in ["model m", "weight 2.0", "reserved 1", "used 1.2 s of 3.0 s", "4 waiting"] {
            assert!(line.contains(part), "{line}");
        }
        assert_eq!(rows([].iter(), share), "none");
    }

    #[test]
    fn query_is_found_by_its_own_or_its_clients_id() {
        assert_eq!(query_path("0000002a00000007"), "queries/0000002a00000007");
        assert_eq!(query_path("frame/88"), "queries?request=frame%2F88&limit=1");
    }
}
