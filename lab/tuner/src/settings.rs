//! Writes the winner as a configuration file of `parm serve`: its differences from the defaults, with reasons.

use parm_settings::PoolSettings;
use toml::{Table, Value};

use crate::Report;

/// The first line of every written file, which allows the file to be replaced.
pub const MARK: &str = "# Found by `parm tune`";

/// Returns the winner as a configuration file.
pub fn to_toml(report: &Report) -> String {
    let mut text = String::new();
    let Some(winner) = report.winner() else { return text };
    text.push_str(MARK);
    let asked = &report.asked;
    let wanted = format!(
        " for {:.1} queries per second on {} instances and an SLO of {} ms.\n#\n",
        asked.queries_per_second, asked.instances, asked.slo_ms
    );
    text.push_str(&wanted);
    let notes = report.caveats.iter().map(|caveat| format!("note: {caveat}"));
    for line in report.reason.iter().cloned().chain(notes) {
        text.push_str(&format!("# {line}\n"));
    }
    let dispatch = changes(&winner.settings);
    let inner: Table = [("dispatch".to_owned(), Value::Table(dispatch))].into_iter().collect();
    let outer: Table = [("frontend".to_owned(), Value::Table(inner))].into_iter().collect();
    text.push('\n');
    text.push_str(&outer.to_string());
    text
}

/// Returns the policy and all settings that differ from the defaults.
fn changes(settings: &PoolSettings) -> Table {
    let table =
        |settings: &PoolSettings| Table::try_from(settings).expect("every setting has a form in TOML");
    let mut own = differing(table(settings), &table(&PoolSettings::default()));
    let policy = table(settings).remove("policy");
    own.extend(policy.map(|policy| ("policy".to_owned(), policy)));
    // A budget is written completely: its fields have no separate defaults.
    if let Some(hedge) = own.get_mut("hedge").and_then(Value::as_table_mut)
        && hedge.contains_key("budget")
    {
        let budget = Value::try_from(&settings.hedge.budget).expect("every setting has a form in TOML");
        hedge.insert("budget".to_owned(), budget);
    }
    own
}

fn differing(own: Table, usual: &Table) -> Table {
    let entries = own.into_iter().filter_map(|(name, value)| match (value, usual.get(&name)) {
        (Value::Table(own), Some(Value::Table(usual))) => {
            let inner = differing(own, usual);
            (!inner.is_empty()).then_some((name, Value::Table(inner)))
        }
        (value, usual) => (Some(&value) != usual).then_some((name, value)),
    });
    entries.collect()
}

#[cfg(test)]
mod tests {
    use parm_settings::{Factor, Fraction, PolicyKind};

    use super::*;

    #[test]
    fn written_settings_parse_to_the_same_settings() {
        let mut settings = PoolSettings { policy: PolicyKind::ParmPlus, ..PoolSettings::default() };
        settings.hedge.budget.ratio = Fraction::percent(5);
        settings.coding.grace.factor = Factor::percent(150);
        settings.coding.parm_plus.k_follows_load = false;
        settings.stand_in.late_factor = Factor::percent(150);
        settings.stand_in.bound = Fraction::percent(2);
        let written = changes(&settings).to_string();
        assert_eq!(toml::from_str::<PoolSettings>(&written).unwrap(), settings, "{written}");
        assert!(!written.contains("queue_limit"), "defaults are left out: {written}");
        let usual = changes(&PoolSettings::default()).to_string();
        assert_eq!(usual.trim(), "policy = \"hedge\"");
    }
}
