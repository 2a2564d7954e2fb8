//! Any bytes as a request to the admin API: a line with method and path, lines of headers, an empty line, the body.
//!
//! Every request is answered, and a rejection gives its reason. Accepted settings can be read and sent back unchanged. A
//! request without a key changes nothing. The amount of it that event streams report is bounded.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::{Method, Request, StatusCode};
use serde_json::{Map, Value, json};

use super::world::{INSTANCES, MODEL, READER, World};

/// Most characters of an error or an event: both can quote the request.
const LONGEST: usize = 2000;

/// Runs the target.
pub fn run(data: &[u8]) {
    thread_local!(static WORLD: World = World::start());
    let Some(ask) = Ask::read(data) else { return };
    WORLD.with(|world| {
        ask.without_a_key(world);
        ask.with_all_rights(world);
    });
}

/// A request, which is sent more than once.
struct Ask<'a> {
    method: Method,
    path: &'a str,
    headers: Vec<(&'a str, &'a str)>,
    body: &'a [u8],
}

impl<'a> Ask<'a> {
    /// Returns `None` if a server would not accept it as a request.
    fn read(data: &'a [u8]) -> Option<Self> {
        let end = data.windows(2).position(|two| two == b"\n\n").unwrap_or(data.len());
        let head = std::str::from_utf8(&data[..end]).ok()?;
        let (first, lines) = head.split_once('\n').unwrap_or((head, ""));
        let (method, path) = first.split_once(' ')?;
        let headers = lines.lines().map(|line| line.split_once(": ")).collect::<Option<Vec<_>>>()?;
        let body = data.get(end + 2..).unwrap_or_default();
        let ask = Self { method: method.parse().ok()?, path, headers, body };
        ask.built().map(|_| ask)
    }

    fn built(&self) -> Option<Request<Full<Bytes>>> {
        let request = Request::builder().method(self.method.clone()).uri(self.path);
        let request =
            self.headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        request.body(Full::new(Bytes::copy_from_slice(self.body))).ok()
    }

    fn request(&self) -> Request<Full<Bytes>> {
        self.built().expect("it was built before")
    }

    fn without_a_key(&self, world: &World) {
        let before = state(world);
        let request = self.request();
        let reads = request.headers().get(AUTHORIZATION).is_some_and(|key| {
            let key = key.to_str().unwrap_or_default();
            key.trim_start_matches(|letter: char| letter != ' ').trim() == READER
        });
        let is_data = request.uri().path().starts_with("/admin");
        let (status, body) = world.asked_for_a_key(request);
        well_formed(status, &body, is_data);
        assert!(
            reads || !is_data || !status.is_success(),
            "{status} to {} {} without a key",
            self.method,
            self.path
        );
        assert_eq!(state(world), before, "{} {} changed this without a key", self.method, self.path);
    }

    fn with_all_rights(&self, world: &World) {
        let request = self.request();
        let is_data = request.uri().path().starts_with("/admin");
        let streams = request.uri().path().ends_with("/stream");
        let (status, body) = world.asked(request);
        well_formed(status, &body, is_data);
        if streams && status == StatusCode::OK {
            lines_are_whole(&body);
        }
        if self.method == Method::GET {
            return;
        }
        survives(world);
        restore(world);
    }
}

fn well_formed(status: StatusCode, body: &[u8], is_data: bool) {
    assert!(status != StatusCode::INTERNAL_SERVER_ERROR, "{}", String::from_utf8_lossy(body));
    if status.is_success() || status == StatusCode::NOT_MODIFIED || !is_data {
        return;
    }
    let told: Value = serde_json::from_slice(body).expect("errors are JSON");
    let said = told["error"].as_str().expect("an error says why").chars().count();
    assert!((1..=LONGEST).contains(&said), "an error of {said} characters");
}

/// Asserts that lines are bounded: an observer would drop a stream with very long ones.
fn lines_are_whole(body: &[u8]) {
    let text = std::str::from_utf8(body).expect("a stream is text");
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).expect("a line is JSON");
        for event in line["events"].as_array().into_iter().flatten() {
            let said = event["text"].as_str().expect("an event has words").chars().count();
            assert!(said <= LONGEST, "an event of {said} characters");
        }
    }
}

/// Asserts that settings can be sent back and are unchanged.
fn survives(world: &World) {
    let settings = told(world, "/admin/v1/settings");
    let (status, answer) = send(world, Method::PATCH, "/admin/v1/settings", &settings["dispatch"]);
    assert_eq!(
        status,
        StatusCode::OK,
        "settings in use are rejected when sent back: {}",
        String::from_utf8_lossy(&answer)
    );
    assert_eq!(told(world, "/admin/v1/settings")["dispatch"], settings["dispatch"]);
}

/// Restores the state, so that a run does not depend on the previous ones.
fn restore(world: &World) {
    let _ = send(world, Method::DELETE, &format!("/admin/v1/settings/{MODEL}"), &Value::Null);
    let settings = told(world, "/admin/v1/settings");
    let names = settings["dispatch"].as_object().expect("settings are a table").keys();
    let defaults: Map<_, _> = names.map(|name| (name.clone(), Value::Null)).collect();
    let (status, _) = send(world, Method::PATCH, "/admin/v1/settings", &Value::Object(defaults));
    assert_eq!(status, StatusCode::OK, "the defaults can be used");
    for instance in told(world, "/admin/v1/instances").as_array().expect("a list of instances") {
        let number = instance["number"].as_u64().expect("an instance has a number");
        let (method, order) =
            if number > INSTANCES as u64 { (Method::DELETE, "") } else { (Method::POST, "/undrain") };
        let (status, _) = send(world, method, &format!("/admin/v1/instances/{number}{order}"), &Value::Null);
        assert_eq!(status, StatusCode::ACCEPTED);
    }
    world.settles();
}

/// Returns the state that a request without a key must not change.
fn state(world: &World) -> Value {
    let instances = told(world, "/admin/v1/instances");
    let wishes = instances.as_array().expect("a list of instances").iter();
    let wishes: Vec<_> =
        wishes.map(|instance| json!([instance["number"], instance["address"], instance["state"]])).collect();
    json!([wishes, told(world, "/admin/v1/settings")])
}

fn told(world: &World, path: &str) -> Value {
    let (status, body) = send(world, Method::GET, path, &Value::Null);
    assert_eq!(status, StatusCode::OK, "{path}");
    serde_json::from_slice(&body).expect("it is JSON")
}

fn send(world: &World, method: Method, path: &str, body: &Value) -> (StatusCode, Bytes) {
    let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, "application/json");
    world.asked(request.body(Full::new(Bytes::from(body.to_string()))).expect("a path is an address"))
}
