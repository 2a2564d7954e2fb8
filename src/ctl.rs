//! `parm ctl`: inspects and changes a running frontend, like the admin page.

use std::collections::BTreeSet;

use anyhow::{Context, anyhow, bail, ensure};
use clap::{Args, Subcommand};
use hyper::Method;
use parm_frontend::admin::differences;
use parm_settings::PoolSettings;
use serde_json::{Map, Value, json};

use crate::Failure;
use crate::admin::{Admin, Reach, block_on, soon};
use crate::cli::Output;
use crate::printer::say;
use crate::stream::{self, State, Stream, list, text};

pub const EXAMPLES: &str = "Examples:
  parm ctl set resnet50 stand_in.bound=0.02 policy=stand-in
      change the settings of a model
  parm ctl drain 3
      take instance 3 out of service; parm ctl return 3 puts it back
  parm ctl query 0000002a00000007
      the story of a query
  PARM_KEY=... parm ctl instances --url https://parm.example:8003 --ca ca.pem
      a frontend with TLS and keys";

/// `parm ctl`.
#[derive(Debug, Args)]
pub struct Ctl {
    #[command(flatten)]
    pub reach: Reach,
    /// Form of the output
    #[arg(long, value_enum, default_value_t = Output::Text, global = true)]
    pub output: Output,
    #[command(subcommand)]
    pub command: CtlCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub enum CtlCommand {
    /// List the models with their latencies, the rows of a batch and the used share of the latency objective
    Models,
    /// List the instances
    Instances,
    /// List the shares of the instances' time, with use, weight and waiting queries
    Shares,
    /// Show the settings of a model, or those for all
    Settings {
        /// Model
        model: Option<String>,
    },
    /// Change settings of a model, or those for all, until the frontend ends
    Set {
        /// Model, if any, then fields by path: `stand_in.bound=0.02`. Values are JSON or words; null restores the default
        #[arg(required = true, value_name = "MODEL | PATH=VALUE")]
        changes: Vec<String>,
    },
    /// Print the settings that differ from the defaults as a configuration file
    Export,
    /// Add instances until the frontend ends
    Add {
        /// Addresses, as in `--worker` or `--upstream`
        #[arg(required = true, value_name = "URL")]
        urls: Vec<String>,
    },
    /// Remove instances; they finish their jobs
    Remove(Chosen),
    /// Stop sending work to instances; they finish their jobs
    Drain(Chosen),
    /// Return drained or ejected instances to service
    Return {
        /// Numbers or addresses of the instances
        #[arg(required = true, value_name = "INSTANCE")]
        instances: Vec<String>,
    },
    /// Move the jobs of instances to others at once
    Eject(Chosen),
    /// List the kept events: ejections, outages, changes
    Events,
    /// List the latest queries: late ones, those without their own prediction, and a few others
    Queries {
        /// Model of the queries
        #[arg(long, value_name = "NAME")]
        model: Option<String>,
        /// Outcome of the queries
        #[arg(long, value_name = "NAME", value_parser = OUTCOMES)]
        outcome: Option<String>,
        /// Slowest first
        #[arg(long)]
        slowest: bool,
        /// Largest number of queries
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: u32,
    },
    /// Show the instances of a query and the reason for its answer
    Query {
        /// Id of 16 digits, or the client's id of the request
        id: String,
    },
}

/// Outcomes of queries: those of answers, then of errors.
const OUTCOMES: [&str; 8] =
    ["exact", "hedged", "reconstructed", "stand-in", "backup", "default", "rejected", "failed"];

/// The instances of an order that may leave a model without one.
#[derive(Clone, Debug, Args)]
pub struct Chosen {
    /// Numbers or addresses of the instances
    #[arg(required = true, value_name = "INSTANCE")]
    instances: Vec<String>,
    /// Also the last instances of a model
    #[arg(long)]
    force: bool,
}

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
            CtlCommand::Export => say(&exported(&self.get("settings").await?)?),
            CtlCommand::Add { urls } => {
                for url in urls {
                    let path = "/admin/v1/instances";
                    let added = self.admin.call(Method::POST, path, Some(&json!({ "url": url }))).await?;
                    let (number, address) = (&added["number"], text(&added["address"]));
                    self.show(&added, || format!("added instance {number} ({address})"))?;
                }
                Ok(())
            }
            CtlCommand::Remove(chosen) => self.order(Method::DELETE, "", chosen).await,
            CtlCommand::Drain(chosen) => self.order(Method::POST, "/drain", chosen).await,
            CtlCommand::Eject(chosen) => self.order(Method::POST, "/eject", chosen).await,
            CtlCommand::Return { instances } => {
                let chosen = Chosen { instances: instances.clone(), force: true };
                self.order(Method::POST, "/undrain", &chosen).await
            }
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
            let mut lines = vec![changed(&before, &after)];
            lines.extend(absent_stand_ins(&after));
            lines.join("\n")
        })
    }

    /// Gives an order to instances, by number or address. Fails if a model would lose its last instance, unless by force.
    async fn order(&self, method: Method, order: &str, chosen: &Chosen) -> anyhow::Result<()> {
        let all = list(&self.get("instances").await?);
        let numbers = numbers(&all, &chosen.instances)?;
        if !chosen.force {
            spare(&all, &numbers)?;
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

/// The numbers of these instances.
fn numbers(all: &[Value], words: &[String]) -> anyhow::Result<Vec<u64>> {
    words.iter().map(|word| number(all, word)).collect()
}

fn number(all: &[Value], word: &str) -> anyhow::Result<u64> {
    if let Ok(number) = word.parse() {
        return Ok(number);
    }
    let bare = |address: &str| address.split_once("://").map_or(address, |(_, rest)| rest).to_owned();
    let is_it = |one: &&Value| {
        let address = text(&one["address"]);
        [address, address.trim_start_matches("upstream+"), bare(address).as_str()].contains(&word)
    };
    let found: Vec<u64> = all.iter().filter(is_it).filter_map(|one| one["number"].as_u64()).collect();
    match found[..] {
        [number] => Ok(number),
        [] => bail!("no instance {word}: parm ctl instances lists numbers and addresses"),
        _ => bail!("several instances are at {word}, {found:?}: name one by its number"),
    }
}

/// Fails if a model would have no instance left in service.
fn spare(all: &[Value], going: &[u64]) -> anyhow::Result<()> {
    let goes = |one: &Value| one["number"].as_u64().is_some_and(|number| going.contains(&number));
    let serves = |one: &&Value| one["state"] == "ready" && one["in_service"] == true;
    let models = |one: &Value| -> Vec<String> {
        let models = one["models"].as_array().into_iter().flatten();
        models.filter(|model| model["in_service"] == true).map(|model| text(&model["name"]).into()).collect()
    };
    let kept: Vec<String> = all.iter().filter(serves).filter(|one| !goes(one)).flat_map(models).collect();
    let lost = all.iter().filter(serves).filter(|one| goes(one)).flat_map(models);
    match lost.into_iter().find(|model| !kept.contains(model)) {
        None => Ok(()),
        Some(model) => Err(anyhow!(
            "no other instance serves '{model}', and every request would fail: add an instance first, or pass --force"
        )),
    }
}

/// The field with effective settings, which are not configured.
const IN_FORCE: &str = "in_force";

/// Each changed field with its old and its new value, or a line that says there is none.
fn changed(before: &Value, after: &Value) -> String {
    let configured = differences(before, after).into_iter().filter(|field| !is_effective(&field.path));
    let lines: Vec<String> = configured.map(|field| field.to_string()).collect();
    if lines.is_empty() { "nothing changed".to_owned() } else { lines.join("\n") }
}

/// A line for each stand-in in effect that no instance serves.
fn absent_stand_ins(settings: &Value) -> Vec<String> {
    let mut absent = BTreeSet::new();
    find_absent(&settings[IN_FORCE], &mut absent);
    let line = |name: String| {
        format!("note: no instance serves the stand-in '{name}': load it on the workers, or correct the name")
    };
    absent.into_iter().map(line).collect()
}

fn find_absent(value: &Value, absent: &mut BTreeSet<String>) {
    let Value::Object(fields) = value else { return };
    let stand_in = &value["stand_in"];
    if stand_in["served"] == false {
        absent.extend(stand_in["model"].as_str().map(str::to_owned));
    }
    fields.values().for_each(|field| find_absent(field, absent));
}

fn is_effective(path: &str) -> bool {
    path.split('.').any(|name| name == IN_FORCE)
}

/// The settings of a running frontend as TOML, without those that are at their defaults.
fn exported(settings: &Value) -> anyhow::Result<String> {
    let defaults = json!(PoolSettings::default());
    let mut frontend = Map::new();
    frontend.insert("dispatch".into(), without(&settings["dispatch"], &defaults));
    let models = settings["models"].as_object().into_iter().flatten();
    // A model listed in a file uses nothing of the general settings, so its own stand even if they are defaults.
    let models: Map<String, Value> =
        models.map(|(name, own)| (name.clone(), without(own, &defaults))).collect();
    frontend.insert("models".into(), Value::Object(models));
    Ok(toml::to_string(&json!({ "frontend": frontend }))?)
}

/// The fields that differ from the defaults and are set.
fn without(own: &Value, defaults: &Value) -> Value {
    let Value::Object(fields) = own else { return own.clone() };
    let differing = fields.iter().filter(|(name, value)| !value.is_null() && defaults[*name] != **value);
    Value::Object(differing.map(|(name, value)| (name.clone(), without(value, &defaults[name]))).collect())
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

    fn serving(number: u64, address: &str, models: &[&str]) -> Value {
        let models: Vec<Value> =
            models.iter().map(|name| json!({"name": name, "in_service": true})).collect();
        json!({"number": number, "address": address, "state": "ready", "in_service": true, "models": models})
    }

    #[test]
    fn instance_is_named_by_number_or_address() {
        let all =
            [serving(1, "http://a:1", &[]), serving(2, "grpc://b:2", &[]), serving(3, "http://b:2", &[])];
        let of = |word: &str| numbers(&all, &[word.to_owned()]);
        assert_eq!((of("7").unwrap(), of("a:1").unwrap()), (vec![7], vec![1]));
        assert_eq!(of("grpc://b:2").unwrap(), [2]);
        let upstream = [serving(4, "upstream+http://a:1", &[])];
        for word in ["upstream+http://a:1", "http://a:1", "a:1"] {
            assert_eq!(numbers(&upstream, &[word.to_owned()]).unwrap(), [4], "{word}");
        }
        for (word, said) in [("c:1", "no instance c:1"), ("b:2", "several instances")] {
            assert!(of(word).unwrap_err().to_string().contains(said), "{word}");
        }
    }

    #[test]
    fn last_instances_of_a_model_are_kept() {
        let mut all = vec![serving(1, "http://a:1", &["m"]), serving(2, "http://b:1", &["m", "n"])];
        assert!(spare(&all, &[1]).is_ok());
        assert!(spare(&all, &[2]).unwrap_err().to_string().contains("'n'"));
        assert!(spare(&all, &[1, 2]).unwrap_err().to_string().contains("'m'"));
        all[0]["in_service"] = json!(false);
        assert!(spare(&all, &[2]).unwrap_err().to_string().contains("'m'"));
        assert!(spare(&all, &[1]).is_ok(), "it serves nothing anyway");
    }

    #[test]
    fn only_changed_fields_are_shown() {
        let before = json!({"policy": "hedge", "batch": {"max_size": 1}, "in_force": {"a": 1}});
        let after = json!({"policy": "hedge", "batch": {"max_size": 4}, "in_force": {"a": 2}});
        assert_eq!(changed(&before, &after), "batch.max_size 1 to 4");
        assert_eq!(changed(&before, &before), "nothing changed");
    }

    #[test]
    fn stand_in_without_an_instance_is_noted() {
        let standing =
            |served: bool| json!({"policy": "stand-in", "stand_in": {"model": "small", "served": served}});
        let note = "note: no instance serves the stand-in 'small'";
        let of_model = json!({"in_force": {"1": standing(false), "2": standing(false)}});
        let of_all = json!({"in_force": {"m": {"1": standing(true)}, "n": {"1": standing(false)}}});
        for shown in [of_model, of_all] {
            let notes = absent_stand_ins(&shown);
            assert!(notes.len() == 1 && notes[0].starts_with(note), "{notes:?}");
        }
        assert!(absent_stand_ins(&json!({"in_force": {"1": standing(true)}})).is_empty());
        assert!(absent_stand_ins(&json!({"policy": "hedge"})).is_empty());
    }

    #[test]
    fn exported_settings_are_read_back() {
        let mut own = PoolSettings { policy: parm_settings::PolicyKind::None, ..PoolSettings::default() };
        own.batch.max_size = std::num::NonZeroU16::new(4).unwrap().into();
        let shown = json!({"dispatch": own, "models": {"m": PoolSettings::default()}, "in_force": {}});
        let text = exported(&shown).unwrap();
        let read: crate::settings::Settings = toml::from_str(&text).unwrap();
        assert_eq!(read.frontend.dispatch, own, "{text}");
        assert_eq!(read.frontend.models["m"], PoolSettings::default());
        assert!(text.lines().count() < 10, "defaults are left out: {text}");
    }
}
