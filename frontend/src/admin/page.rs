//! Operator page: static files without data, compiled into the binary.
//!
//! They need no key. The content security policy forbids foreign content and framing.

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::extract::Path;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use super::refusal::{self, Refusal};

/// A file of the page.
struct File {
    name: &'static str,
    text: &'static str,
}

macro_rules! file {
    ($name:literal) => {
        File { name: $name, text: include_str!(concat!("../../page/", $name)) }
    };
}

const INDEX: File = file!("index.html");

/// All other files.
const FILES: &[File] = &[
    file!("style.css"),
    file!("icon.svg"),
    file!("main.js"),
    file!("bands.js"),
    file!("chart.js"),
    file!("confirm.js"),
    file!("controls.js"),
    file!("ctl.js"),
    file!("dom.js"),
    file!("events.js"),
    file!("groups.js"),
    file!("histogram.js"),
    file!("history.js"),
    file!("instances.js"),
    file!("key.js"),
    file!("nodes.js"),
    file!("queries.js"),
    file!("queue.js"),
    file!("savings.js"),
    file!("sound.js"),
    file!("stream.js"),
    file!("summary.js"),
    file!("table.js"),
    file!("tiles.js"),
    file!("timeline.js"),
    file!("verdict.js"),
    file!("words.js"),
];

const POLICY: &str = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

pub(super) async fn index(headers: HeaderMap) -> Response {
    INDEX.answer(&headers)
}

pub(super) async fn file(
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    match FILES.iter().find(|file| file.name == name) {
        Some(file) => Ok(file.answer(&headers)),
        None => Err(refusal::unknown_path(&uri)),
    }
}

impl File {
    fn answer(&self, headers: &HeaderMap) -> Response {
        // A collision gives an attacker nothing.
        let mut hasher = DefaultHasher::new();
        self.text.hash(&mut hasher);
        let tag = format!("\"{:016x}\"", hasher.finish());
        let own = [
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_FRAME_OPTIONS, "DENY"),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            (CACHE_CONTROL, "no-cache"),
            (ETAG, &tag),
        ];
        if headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
            return (StatusCode::NOT_MODIFIED, own).into_response();
        }
        (own, [(CONTENT_TYPE, self.content_type())], self.text).into_response()
    }

    fn content_type(&self) -> &'static str {
        match self.name.rsplit_once('.').map(|(_, kind)| kind) {
            Some("html") => "text/html; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "text/javascript; charset=utf-8",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;

    #[test]
    fn every_page_file_is_served_and_loads_no_foreign_content() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/page");
        let names =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let page = |name: &String| [".js", ".css", ".svg", ".html"].iter().any(|end| name.ends_with(end));
        let served = FILES.iter().chain([&INDEX]).map(|file| file.name.to_owned());
        assert_eq!(served.collect::<BTreeSet<_>>(), names.filter(page).collect::<BTreeSet<_>>());
        for file in FILES.iter().chain([&INDEX]) {
            let foreign = file.text.match_indices("://").filter(|(at, _)| {
                let rest = &file.text[at + 3..];
                !rest.starts_with("www.w3.org/") && !rest.starts_with("127.0.0.1")
            });
            assert_eq!(foreign.count(), 0, "{} names another host", file.name);
        }
    }
}
