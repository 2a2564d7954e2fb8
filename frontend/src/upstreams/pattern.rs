//! What tells requests apart: patterns of paths, and the model that a request names.

use serde::Deserialize;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern(Vec<Part>);

/// A part between slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    /// Any text that is not empty, between a beginning and an end.
    Any(String, String),
    /// Whatever follows the last slash, with more slashes or without.
    Rest,
}

impl Pattern {
    /// Reads a pattern; the error says what is wrong with it.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let path = text.strip_prefix('/').ok_or_else(|| format!("path '{text}' must begin with /"))?;
        if path.contains(['?', '#', '%']) {
            return Err(format!("path '{text}' must not contain ?, # or %"));
        }
        let (path, rest) = match path.strip_suffix('*') {
            Some(before) if before.is_empty() || before.ends_with('/') => (before, Some(Part::Rest)),
            _ => (path, None),
        };
        let has_rest = rest.is_some();
        let parts = path.split('/').filter(|part| !has_rest || !part.is_empty());
        let parts: Option<Vec<_>> = parts.map(Part::read).chain(rest.map(Some)).collect();
        parts.map(Self).ok_or_else(|| {
            format!("path '{text}' has braces that do not fit: write one {{NAME}} between two slashes")
        })
    }

    pub(super) fn fits(&self, path: &str) -> bool {
        let mut parts = path.strip_prefix('/').into_iter().flat_map(|path| path.split('/'));
        let all = self.0.iter().all(|part| parts.next().is_some_and(|text| part.fits(text)));
        all && (matches!(self.0.last(), Some(Part::Rest)) || parts.next().is_none())
    }
}

impl Part {
    fn read(text: &str) -> Option<Self> {
        let Some((before, rest)) = text.split_once('{') else {
            return (!text.contains('}')).then(|| Self::Text(text.to_owned()));
        };
        let (name, after) = rest.split_once('}')?;
        let odd = |text: &str| text.contains(['{', '}']);
        (!name.is_empty() && !odd(name) && !odd(before) && !odd(after))
            .then(|| Self::Any(before.to_owned(), after.to_owned()))
    }

    fn fits(&self, text: &str) -> bool {
        match self {
            Self::Text(own) => own == text,
            Self::Any(before, after) => text
                .strip_prefix(&**before)
                .and_then(|rest| rest.strip_suffix(&**after))
                .is_some_and(|middle| !middle.is_empty()),
            Self::Rest => true,
        }
    }
}

/// The part of a body that is read.
#[derive(Deserialize)]
struct Named {
    model: String,
}

/// The model's name; `None` if the body is not a JSON object with one.
pub(super) fn named_model(body: &[u8]) -> Option<String> {
    serde_json::from_slice::<Named>(body).ok().map(|named| named.model)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_stand_for_a_part_between_slashes() {
        let fits = |pattern, path| Pattern::read(pattern).unwrap().fits(path);
        assert!(fits("/v1/models/{model}:predict", "/v1/models/a-b:predict"));
        assert!(fits("/predictions/{model}/{version}", "/predictions/a/1"));
        assert!(fits("/", "/") && fits("/a", "/a"));
        assert!(fits("/*", "/") && fits("/*", "/a/b") && fits("/a/{b}/*", "/a/b/c/d") && fits("/a/*", "/a/"));
        for (pattern, path) in [
            ("/v1/models/{model}:predict", "/v1/models/:predict"),
            ("/v1/models/{model}:predict", "/v1/models/a/b:predict"),
            ("/v1/models/{model}:predict", "/v1/models/a:explain"),
            ("/a", "/a/"),
            ("/a", "/A"),
            ("/a/{b}", "/a"),
            ("/a/{b}", "/a/"),
            ("/", ""),
            ("/a/*", "/a"),
            ("/a/*", "/ab/c"),
            ("/a*", "/ab"),
        ] {
            assert!(!fits(pattern, path), "{pattern} {path}");
        }
        for bad in ["a", "/{", "/}", "/{}", "/{a}{b}", "/{a{b}}", "/a?b", "/%41", ""] {
            assert!(Pattern::read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn name_is_that_of_the_outer_object() {
        for (body, name) in [
            (r#"{"model": "a"}"#, Some("a")),
            (r#"{"messages": [{"model": "b", "content": "{"}], "model": "a\u002f1", "n": 1}"#, Some("a/1")),
            (r#"{"model": "a", and so on"#, None),
            (r#"{"model": 1}"#, None),
            (r#"{"model": null}"#, None),
            (r#"{"input": {"model": "a"}}"#, None),
            (r#"["model", "a"]"#, None),
            (r#"{"model""#, None),
            ("model=a", None),
            ("", None),
        ] {
            assert_eq!(named_model(body.as_bytes()).as_deref(), name, "{body}");
        }
    }
}
