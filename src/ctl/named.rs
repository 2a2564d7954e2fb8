//! Instances that the operator names by number or address, and the guard before the last of a model goes.

use anyhow::{anyhow, bail};
use serde_json::Value;

use crate::stream::text;

/// The numbers of these instances.
pub(super) fn numbers(all: &[Value], words: &[String]) -> anyhow::Result<Vec<u64>> {
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
pub(super) fn spare(all: &[Value], going: &[u64]) -> anyhow::Result<()> {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn instance(number: u64, address: &str, models: &[&str]) -> Value {
        let models: Vec<Value> =
            models.iter().map(|name| json!({"name": name, "in_service": true})).collect();
        json!({"number": number, "address": address, "state": "ready", "in_service": true, "models": models})
    }

    #[test]
    fn instance_is_named_by_number_or_address() {
        let all =
            [instance(1, "http://a:1", &[]), instance(2, "grpc://b:2", &[]), instance(3, "http://b:2", &[])];
        let of = |word: &str| numbers(&all, &[word.to_owned()]);
        assert_eq!((of("7").unwrap(), of("a:1").unwrap()), (vec![7], vec![1]));
        assert_eq!(of("grpc://b:2").unwrap(), [2]);
        let upstream = [instance(4, "upstream+http://a:1", &[])];
        for word in ["upstream+http://a:1", "http://a:1", "a:1"] {
            assert_eq!(numbers(&upstream, &[word.to_owned()]).unwrap(), [4], "{word}");
        }
        for (word, said) in [("c:1", "no instance c:1"), ("b:2", "several instances")] {
            assert!(of(word).unwrap_err().to_string().contains(said), "{word}");
        }
    }

    #[test]
    fn last_instances_of_a_model_are_kept() {
        let mut all = vec![instance(1, "http://a:1", &["m"]), instance(2, "http://b:1", &["m", "n"])];
        assert!(spare(&all, &[1]).is_ok());
        assert!(spare(&all, &[2]).unwrap_err().to_string().contains("'n'"));
        assert!(spare(&all, &[1, 2]).unwrap_err().to_string().contains("'m'"));
        all[0]["in_service"] = json!(false);
        assert!(spare(&all, &[2]).unwrap_err().to_string().contains("'m'"));
        assert!(spare(&all, &[1]).is_ok(), "it serves nothing anyway");
    }
}
