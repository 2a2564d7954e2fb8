//! `parm ctl`: inspects and changes a running frontend, like the admin page.

mod changes;
mod named;

use std::io::Write;

use anyhow::anyhow;
use serde_json::{Map, Value, json};

use crate::Failure;
use crate::admin::{Admin, block_on, soon};
use crate::cli::Output;
use crate::cli::admin::{Ctl, CtlCommand};
use crate::top::{self, ModelFigures, State};

/// A request to the admin API.
#[derive(Debug, PartialEq)]
struct Order {
    method: &'static str,
    path: String,
    body: Option<Value>,
}

/// Runs the command.
pub fn main(flags: &Ctl) -> Result<(), Failure> {
    let admin = Admin::of(&flags.reach)?;
    let mut out = crate::printer::stdout();
    let mut say = |text: String| writeln!(out, "{text}").map_err(anyhow::Error::from);
    match &flags.command {
        CtlCommand::Events => say(block_on(events(&admin))?)?,
        CtlCommand::Models => {
            let models = block_on(models(&admin))?;
            say(match flags.output {
                Output::Json => serde_json::to_string(&models).map_err(anyhow::Error::from)?,
                Output::Text => top::table(&models).trim_end().to_owned(),
            })?;
        }
        CtlCommand::Export => {
            let settings = block_on(admin.call("GET", "/admin/v1/settings", None))?;
            say(changes::exported(&settings)?)?;
        }
        _ => {}
    }
    let command = block_on(numbered(&admin, &flags.command))?;
    for order in orders(&command).map_err(Failure::Configuration)? {
        let before = match (&command, flags.output) {
            (CtlCommand::Set { .. }, Output::Text) => Some(block_on(admin.call("GET", &order.path, None))?),
            _ => None,
        };
        let answer = block_on(obey(&admin, &order))?;
        say(match (flags.output, before) {
            (Output::Json, _) => answer.to_string(),
            (Output::Text, Some(before)) => {
                let mut lines = vec![changes::changed(&before, &answer)];
                lines.extend(changes::absent_stand_ins(&answer));
                lines.join("\n")
            }
            (Output::Text, None) => worded(&command, &answer)?,
        })?;
    }
    Ok(())
}

/// The command with numbers for the addresses of instances. Fails if a model would lose its last instance.
async fn numbered(admin: &Admin, command: &CtlCommand) -> anyhow::Result<CtlCommand> {
    use CtlCommand::{Drain, Eject, Remove, Return};
    let (words, force) = match command {
        Drain { instances, force } | Eject { instances, force } | Remove { instances, force } => {
            (instances, *force)
        }
        Return { instances } => (instances, true),
        other => return Ok(other.clone()),
    };
    let all = admin.call("GET", "/admin/v1/instances", None).await?;
    let all = all.as_array().map_or(&[][..], Vec::as_slice);
    let numbers = named::numbers(all, words)?;
    if !force {
        named::spare(all, &numbers)?;
    }
    let instances = numbers.iter().map(u64::to_string).collect();
    Ok(match command {
        Drain { .. } => Drain { instances, force },
        Eject { .. } => Eject { instances, force },
        Remove { .. } => Remove { instances, force },
        _ => Return { instances },
    })
}

/// The kept events, oldest first.
async fn events(admin: &Admin) -> anyhow::Result<String> {
    let mut lines = admin.lines("/admin/v1/stream").await?;
    while let Some(lines) = soon(lines.next()).await? {
        if let Some(events) = lines.iter().find_map(|line| line.get("events")) {
            return Ok(rows(events.as_array().into_iter().flatten(), event));
        }
    }
    Err(ended())
}

/// The figures of all models at the next frame.
async fn models(admin: &Admin) -> anyhow::Result<Vec<ModelFigures>> {
    let mut lines = admin.lines("/admin/v1/stream").await?;
    let mut state = State::default();
    while let Some(lines) = soon(lines.next()).await? {
        // Each line counts, also those behind the frame.
        let mut current = false;
        for line in &lines {
            current |= state.take(line);
        }
        if current {
            return Ok(top::figures(&state));
        }
    }
    Err(ended())
}

fn ended() -> anyhow::Error {
    anyhow!("the frontend ended the stream: check its log")
}

async fn obey(admin: &Admin, order: &Order) -> anyhow::Result<Value> {
    let answer = admin.call(order.method, &order.path, order.body.as_ref()).await?;
    // Several queries may have the same client's id: the latest is shown.
    if !order.path.contains("queries?request=") {
        return Ok(answer);
    }
    let id = answer["queries"][0]["id"]
        .as_str()
        .ok_or_else(|| anyhow!("no query with this id: the frontend keeps only recent ones"))?;
    admin.call("GET", &format!("/admin/v1/queries/{id}"), None).await
}

fn orders(command: &CtlCommand) -> anyhow::Result<Vec<Order>> {
    let get = |path: String| vec![Order { method: "GET", path: format!("/admin/v1/{path}"), body: None }];
    let post = |number: &String, order: &str| Order {
        method: "POST",
        path: format!("/admin/v1/instances/{number}/{order}"),
        body: None,
    };
    Ok(match command {
        CtlCommand::Instances => get("instances".into()),
        CtlCommand::Shares => get("shares".into()),
        CtlCommand::Settings { model: None } => get("settings".into()),
        CtlCommand::Settings { model: Some(model) } => get(format!("settings/{}", escaped(model))),
        CtlCommand::Set { changes } => vec![change(changes)?],
        CtlCommand::Drain { instances, .. } => instances.iter().map(|one| post(one, "drain")).collect(),
        CtlCommand::Return { instances } => instances.iter().map(|one| post(one, "undrain")).collect(),
        CtlCommand::Eject { instances, .. } => instances.iter().map(|one| post(one, "eject")).collect(),
        CtlCommand::Remove { instances, .. } => {
            let path = |number: &String| format!("/admin/v1/instances/{number}");
            instances.iter().map(|one| Order { method: "DELETE", path: path(one), body: None }).collect()
        }
        CtlCommand::Add { urls } => {
            let add = |url: &String| Order {
                method: "POST",
                path: "/admin/v1/instances".into(),
                body: Some(json!({ "url": url })),
            };
            urls.iter().map(add).collect()
        }
        CtlCommand::Events | CtlCommand::Export | CtlCommand::Models => Vec::new(),
        CtlCommand::Queries { model, outcome, slowest, limit } => {
            let mut path = format!("queries?slowest={slowest}&limit={limit}");
            for (name, value) in [("model", model), ("outcome", outcome)] {
                value.iter().for_each(|value| path.push_str(&format!("&{name}={}", escaped(value))));
            }
            get(path)
        }
        CtlCommand::Query { id } if is_own(id) => get(format!("queries/{id}")),
        CtlCommand::Query { id } => get(format!("queries?request={}&limit=1", escaped(id))),
    })
}

/// Whether an id was made by the frontend. Any other id was sent by a client.
fn is_own(id: &str) -> bool {
    id.len() == 16 && id.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

fn change(words: &[String]) -> anyhow::Result<Order> {
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
    Ok(Order { method: "PATCH", path, body: Some(patch) })
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

/// Prints an answer for people.
fn worded(command: &CtlCommand, answer: &Value) -> anyhow::Result<String> {
    Ok(match command {
        CtlCommand::Instances => rows(answer.as_array().into_iter().flatten(), instance),
        CtlCommand::Shares => rows(answer.as_array().into_iter().flatten(), share),
        CtlCommand::Add { .. } => {
            format!("added instance {} ({})", answer["number"], text(&answer["address"]))
        }
        CtlCommand::Remove { .. } => {
            format!("instance {} finishes its jobs and is removed", answer["number"])
        }
        CtlCommand::Drain { .. } | CtlCommand::Return { .. } | CtlCommand::Eject { .. } => {
            let number = &answer["number"];
            format!("instance {number} received the order; its state was {}", text(&answer["state"]))
        }
        CtlCommand::Queries { .. } => rows(answer["queries"].as_array().into_iter().flatten(), query),
        CtlCommand::Query { .. } => story(answer),
        CtlCommand::Settings { .. } | CtlCommand::Set { .. } => serde_json::to_string_pretty(answer)?,
        CtlCommand::Events | CtlCommand::Export | CtlCommand::Models => String::new(),
    })
}

fn rows<'a>(all: impl Iterator<Item = &'a Value>, row: fn(&Value) -> String) -> String {
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

fn event(one: &Value) -> String {
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_millis(one["at"].as_u64().unwrap_or_default());
    let ago = at.elapsed().unwrap_or_default().as_secs();
    let of = one["instance"].as_u64().map(|number| format!("instance {number}: ")).unwrap_or_default();
    let times = match one["times"].as_u64() {
        Some(times) if times > 1 => format!(" ({times} times)"),
        _ => String::new(),
    };
    let by = one["by"].as_str().map(|by| format!(", by {by}")).unwrap_or_default();
    format!("{ago:>7} s ago  {:<9} {of}{}{times}{by}", text(&one["kind"]), text(&one["text"]))
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

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(all: &[&str]) -> Vec<String> {
        all.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn changes_become_one_patch() {
        let order =
            change(&words(&["res net", "stand_in.bound=0.02", "stand_in.hedge=false", "policy=parm+"]))
                .unwrap();
        let patch = json!({"stand_in": {"bound": 0.02, "hedge": false}, "policy": "parm+"});
        let path = "/admin/v1/settings/res%20net".to_owned();
        assert_eq!(order, Order { method: "PATCH", path, body: Some(patch) });
        let order = change(&words(&["queue_limit=null"])).unwrap();
        assert_eq!(
            (order.path.as_str(), order.body),
            ("/admin/v1/settings", Some(json!({"queue_limit": null})))
        );
        for wrong in [&["resnet50"][..], &["a=1", "resnet50"], &["a", "b"]] {
            change(&words(wrong)).unwrap_err();
        }
    }

    #[test]
    fn instance_line_says_how_much_slower_it_is() {
        let line = |slower: Value| {
            let own = json!({"number": 3, "state": "ready", "in_service": true, "address": "http://a:1",
                             "service_time": {"p99_us": 48_000}, "slower": slower});
            worded(&CtlCommand::Instances, &json!([own])).unwrap()
        };
        assert_eq!(line(json!(2.43)), "   3  ready       http://a:1  p99 48.0 ms  2.4x slower");
        for as_fast in [json!(null), json!(0.8)] {
            assert!(!line(as_fast.clone()).contains("slower"), "{as_fast}");
        }
    }

    #[test]
    fn instance_line_says_why_it_is_ejected() {
        let own = json!({"number": 3, "state": "ready", "in_service": false, "address": "http://a:1", "reason": "silent"});
        let line = worded(&CtlCommand::Instances, &json!([own])).unwrap();
        assert_eq!(line, "   3  ejected     http://a:1  reason: silent");
    }

    #[test]
    fn share_line_has_used_and_entitled_time() {
        let own = json!({"share": null, "model": "m", "weight": 2.0, "reserved": 1, "used_s": 1.25,
                         "entitled_s": 3.0, "waiting": 4, "running": 0});
        let line = worded(&CtlCommand::Shares, &json!([own])).unwrap();
        for part in ["model m", "weight 2.0", "reserved 1", "used 1.2 s of 3.0 s", "4 waiting"] {
            assert!(line.contains(part), "{line}");
        }
        assert_eq!(worded(&CtlCommand::Shares, &json!([])).unwrap(), "none");
    }

    #[test]
    fn query_is_found_by_its_own_or_its_clients_id() {
        let path = |id: &str| orders(&CtlCommand::Query { id: id.into() }).unwrap()[0].path.clone();
        assert_eq!(path("0000002a00000007"), "/admin/v1/queries/0000002a00000007");
        assert_eq!(path("frame/88"), "/admin/v1/queries?request=frame%2F88&limit=1");
    }
}
