//! The section of one scenario, load and batch size, with the policies that are compared.

use parm_settings::BatchSize;

use crate::Row;

use super::{Palette, outcomes, spectrum, text, timeline, verdicts};

/// Groups the rows that are compared with each other.
pub(super) fn groups(rows: &[Row]) -> Vec<Vec<&Row>> {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        match groups.last_mut() {
            Some(group) if same(group[0], row) => group.push(row),
            _ => groups.push(vec![row]),
        }
    }
    groups
}

fn same(a: &Row, b: &Row) -> bool {
    (&a.scenario, a.rate, a.batch) == (&b.scenario, b.rate, b.batch)
}

/// Returns the title of a group.
pub(super) fn title(row: &Row) -> String {
    let batch = match row.batch {
        BatchSize::Auto => String::new(),
        BatchSize::Server => ", batches of the server".to_owned(),
        BatchSize::Fixed(size) => format!(", batches of {size}"),
    };
    let load = row.load.map_or_else(|| row.intensity(), |load| format!("load {load}"));
    format!("{} at {load}{batch}", text(&row.scenario))
}

/// Returns the anchor of a group on the page.
pub(super) fn anchor(row: &Row) -> String {
    let name = format!("{}-{}-{}", row.scenario, row.intensity(), row.batch);
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

/// The section.
pub(super) fn section(rows: &[&Row], palette: &Palette) -> String {
    let (id, title, rate) = (anchor(rows[0]), title(rows[0]), rows[0].rate);
    format!(
        "<h3 id=\"{id}\">{title} <span class=\"soft\">({rate:.0} queries per second)</span></h3>{}{}{}{}",
        verdicts::table(rows, palette),
        spectrum::chart(rows, palette),
        timeline::chart(rows, palette),
        outcomes::chart(rows),
    )
}
