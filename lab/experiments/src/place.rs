//! The line of an experiment file that an error is about.
//!
//! The checks of an experiment see values and not their places, because flags may replace any of them. The place is found
//! afterwards, from the names and values in the error; a value that a flag gave has none.

use parm_workload::Error as Described;
use toml::de::{DeTable, DeValue};

use crate::Error;

/// Returns the line, counted from 1.
pub fn line_of(text: &str, error: &Error) -> Option<usize> {
    let file = DeTable::parse(text).ok()?;
    let start = place(file.get_ref(), error)?;
    Some(1 + text.get(..start)?.matches('\n').count())
}

/// Returns the place as a number of bytes.
fn place(file: &DeTable<'_>, error: &Error) -> Option<usize> {
    match error {
        Error::UnknownPolicy { name, .. } => text_in(file, "policies", name),
        Error::UnknownScenario { name, .. } => text_in(file, "scenarios", name),
        Error::BadLoad { load } => number_in(file, "loads", *load).or_else(|| key(file, "rates")),
        Error::BadShare { name, .. } | Error::TooMany { name, .. } => key(file, name),
        Error::LoadsAndRates => key(file, "rates"),
        Error::Nothing { what: "policy" } => key(file, "policies"),
        Error::Nothing { what: "scenario" } => key(file, "scenarios"),
        Error::Nothing { .. } => key(file, "loads").or_else(|| key(file, "rates")),
        Error::NoDeployedInstance { policy, .. }
        | Error::ParityOnly { policy, .. }
        | Error::TooFewWorkers { policy, .. } => of_policy(file, policy),
        Error::Scenario { scenario, error } => of_scenario(file, scenario, error),
        Error::Workload(error) => of_workload(file, error),
        Error::Simulator(parm_simulator::Error::Workload(error)) => of_workload(file, error),
        Error::Simulator(parm_simulator::Error::AllWarmUp { .. }) => {
            key(file, "warm_up").or_else(|| key(file, "queries"))
        }
        _ => None,
    }
}

fn key(table: &DeTable<'_>, name: &str) -> Option<usize> {
    table.get_key_value(name).map(|(key, _)| key.span().start)
}

fn value<'a, 'i>(table: &'a DeTable<'i>, name: &str) -> Option<&'a DeValue<'i>> {
    table.get(name).map(|value| value.get_ref())
}

fn text_in(file: &DeTable<'_>, name: &str, text: &str) -> Option<usize> {
    let all = value(file, name)?.as_array()?;
    all.iter().find(|one| one.get_ref().as_str() == Some(text)).map(|one| one.span().start)
}

fn number_in(file: &DeTable<'_>, name: &str, number: f64) -> Option<usize> {
    let read = |one: &DeValue<'_>| match one {
        DeValue::Float(float) => float.as_str().parse::<f64>().ok(),
        DeValue::Integer(integer) => integer.as_str().parse::<f64>().ok(),
        _ => None,
    };
    let all = value(file, name)?.as_array()?;
    let is = |one: &DeValue<'_>| read(one).is_some_and(|read| read.total_cmp(&number).is_eq());
    all.iter().find(|one| is(one.get_ref())).map(|one| one.span().start)
}

/// A policy of the file, otherwise its name in the list. The name may have a suffix for `k` and `r`.
fn of_policy(file: &DeTable<'_>, policy: &str) -> Option<usize> {
    let name = [" k=", " r="].iter().fold(policy, |name, suffix| name.split(suffix).next().unwrap_or(name));
    let own = value(file, "policy").and_then(DeValue::as_table);
    let fields = own.and_then(|own| value(own, name)?.as_table());
    let field = fields.and_then(|fields| key(fields, "parity_only").or_else(|| key(fields, "instances")));
    field.or_else(|| key(own?, name)).or_else(|| text_in(file, "policies", name))
}

/// The fault of a scenario in the file, otherwise the scenario's name in the list.
fn of_scenario(file: &DeTable<'_>, scenario: &str, error: &Described) -> Option<usize> {
    let own = value(file, "scenario").and_then(DeValue::as_table);
    let (Described::BadFault { fault, .. } | Described::NoSuchInstance { fault, .. }) = error else {
        return own.and_then(|own| key(own, scenario)).or_else(|| text_in(file, "scenarios", scenario));
    };
    let faults = own.and_then(|own| value(value(own, scenario)?.as_table()?, "faults")?.as_array());
    let found = faults.and_then(|faults| faults.get(*fault)).map(|fault| fault.span().start);
    found.or_else(|| text_in(file, "scenarios", scenario))
}

/// The description of times, or the name of a file.
fn of_workload(file: &DeTable<'_>, error: &Described) -> Option<usize> {
    let (Described::File { path, .. } | Described::Content { path, .. } | Described::NotRead { path }) =
        error
    else {
        return key(file, "service");
    };
    file.values().find_map(|value| text_anywhere(value, &|text| !text.is_empty() && path.ends_with(text)))
}

fn text_anywhere(value: &toml::Spanned<DeValue<'_>>, is: &dyn Fn(&str) -> bool) -> Option<usize> {
    match value.get_ref() {
        DeValue::String(text) => is(text).then(|| value.span().start),
        DeValue::Array(all) => all.iter().find_map(|one| text_anywhere(one, is)),
        DeValue::Table(table) => table.values().find_map(|one| text_anywhere(one, is)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{Config, Experiment};

    /// The line of the error of an experiment file.
    fn line(text: &str) -> Option<usize> {
        let mut config = match Config::parse(text) {
            Ok(config) => config,
            Err(error) => return line_of(text, &error),
        };
        let error = match config.read_files(Path::new("/no/such")) {
            Ok(()) => Experiment::new(config).expect_err("the experiment has an error"),
            Err(error) => error,
        };
        line_of(text, &error)
    }

    #[test]
    fn line_is_that_of_the_value_in_the_error() {
        for (text, expected) in [
            ("seed = 1\npolicies = [\n  \"equal\",\n  \"hope\",\n]", 4),
            ("scenarios = [\"A\",\n\"mayhem\"]", 2),
            ("seed = 1\nloads = [0.5, -1.0]", 2),
            ("seed = 1\nloads = [0]", 2),
            ("\nrates = [-5.0]", 2),
            ("\n\nbackup_share = 200.0", 3),
            ("loads = [0.5]\nrates = [100.0]", 2),
            ("seed = 1\npolicies = []", 2),
            ("policies = [\"mine\"]\n[policy.mine]\nparity_only = 99", 3),
            ("seed = 1\nservice = { time_ms = { kind = \"constant\", value = -1.0 } }", 2),
            ("seed = 1\nservice = { time_ms = { kind = \"file\", path = \"gone.txt\" } }", 2),
        ] {
            assert_eq!(line(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn line_of_a_fault_is_that_of_its_own_table() {
        let fault = |factor: f64| {
            format!(
                "[[scenario.x.faults]]\nkind = \"slow\"\nfactor = {factor:?}\nwhen = {{ kind = \"always\" }}\n"
            )
        };
        let text = format!("scenarios = [\"x\"]\n{}{}", fault(2.0), fault(-2.0));
        assert_eq!(line(&text), Some(6), "{text}");
    }

    #[test]
    fn value_of_a_flag_has_no_line() {
        let config = Config { policies: vec!["hope".into()], ..Config::parse("seed = 1").unwrap() };
        let error = Experiment::new(config).err().unwrap();
        assert_eq!(line_of("seed = 1", &error), None);
    }
}
