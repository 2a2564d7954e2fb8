//! Triton's `config.pbtxt`: the fields that are honoured, and the names of those that are not.

use std::path::Path;

/// Fields that say what the model file says anyway.
const REDUNDANT: [&str; 6] = ["name", "platform", "backend", "default_model_filename", "input", "output"];

/// The configuration of a model in Triton's format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TritonConfig {
    /// Largest number of rows; 0 if the first dimension is not a batch.
    pub max_batch_size: Option<usize>,
    /// Other fields.
    pub ignored: Vec<String>,
    /// Mistakes of the file. What they concern is ignored.
    pub problems: Vec<String>,
}

impl TritonConfig {
    /// That of a model file at `NAME/VERSION/model.onnx`; `None` without one.
    pub fn beside(model: &Path) -> Option<Self> {
        let path = model.parent()?.parent()?.join("config.pbtxt");
        // A pipe would block.
        path.is_file().then(|| std::fs::read_to_string(path).ok()).flatten().map(|text| Self::read(&text))
    }

    /// Reads the fields at the top level.
    pub fn read(text: &str) -> Self {
        let words: Vec<&str> = Words { rest: text }.collect();
        let (mut config, mut depth, mut field) = (Self::default(), 0usize, "");
        for (at, &word) in words.iter().enumerate() {
            let is_value = at > 0 && words[at - 1] == ":";
            match word {
                "{" | "[" => depth += 1,
                "}" | "]" => depth = depth.saturating_sub(1),
                ":" if depth == 0 && field == "max_batch_size" => {
                    let value = words.get(at + 1).copied().unwrap_or_default();
                    config.max_batch_size = value.parse().ok();
                    if config.max_batch_size.is_none() {
                        config.problems.push(format!("max_batch_size is '{value}': give a whole number"));
                    }
                }
                _ if depth > 0 || is_value || word == ":" => {}
                _ => {
                    field = word;
                    let known = word == "max_batch_size" || REDUNDANT.contains(&word);
                    if !known && !config.ignored.iter().any(|ignored| ignored == word) {
                        config.ignored.push(word.into());
                    }
                }
            }
        }
        if depth > 0 {
            config.problems.push("the file is not complete: a brace or bracket is not closed".into());
        }
        config
    }
}

/// Words, strings and single signs; commas, semicolons and comments are skipped.
struct Words<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        loop {
            self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n', ',', ';']);
            match self.rest.strip_prefix('#') {
                Some(comment) => self.rest = comment.split_once('\n').map_or("", |(_, rest)| rest),
                None => break,
            }
        }
        let first = self.rest.chars().next()?;
        let end = match first {
            '{' | '}' | '[' | ']' | ':' => 1,
            '"' | '\'' => self.rest[1..].find(first).map_or(self.rest.len(), |end| end + 2),
            _ => self
                .rest
                .find(|sign: char| sign.is_whitespace() || "{}[]:,;#\"'".contains(sign))
                .unwrap_or(self.rest.len()),
        };
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipe_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("config.pbtxt");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let model = folder.path().join("1/model.onnx");
        std::thread::spawn(move || tell.send(TritonConfig::beside(&model).is_none()));
        assert_eq!(told.recv_timeout(std::time::Duration::from_secs(60)), Ok(true), "it waits for a writer");
    }

    #[test]
    fn batch_size_is_read_and_other_fields_are_named() {
        let text = r#"
            name: "digits" # the model
            platform: "onnxruntime_onnx"
            max_batch_size: 8
            input [ { name: "x", data_type: TYPE_FP32, dims: [ 4 ] } ]
            version_policy: { all { } }
            instance_group [ { count: 2, kind: KIND_CPU } ]
            dynamic_batching { max_queue_delay_microseconds: 100 }
        "#;
        let ignored = ["version_policy", "instance_group", "dynamic_batching"].map(String::from);
        assert_eq!(
            TritonConfig::read(text),
            TritonConfig { max_batch_size: Some(8), ignored: ignored.into(), ..TritonConfig::default() }
        );
        assert_eq!(TritonConfig::read("max_batch_size:0").max_batch_size, Some(0));
        for odd in ["", "{{{", "max_batch_size:", "\"", "a: \"unfinished", "é: 1"] {
            assert_eq!(TritonConfig::read(odd).max_batch_size, None, "{odd}");
        }
    }

    #[test]
    fn wrong_values_and_open_braces_are_told() {
        for (text, told) in [
            ("max_batch_size: many", "max_batch_size is 'many'"),
            ("max_batch_size: -3", "max_batch_size is '-3'"),
            ("max_batch_size:", "max_batch_size is ''"),
            ("dynamic_batching { preferred_batch_size: [ 4, 8 ]", "the file is not complete"),
        ] {
            let problems = TritonConfig::read(text).problems;
            assert!(problems.len() == 1 && problems[0].starts_with(told), "{text}: {problems:?}");
        }
        for well in ["", "max_batch_size: 0", "dynamic_batching { preferred_batch_size: [ 4, 8 ] }"] {
            assert_eq!(TritonConfig::read(well).problems, [""; 0], "{well}");
        }
    }
}
