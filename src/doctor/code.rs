//! Prints the cause and the remedy of a stable code from docs/errors.md.

use std::io::Write;

use anyhow::{Context, anyhow};
use parm_protocol::StableCode;

/// The page is compiled in, so that the text is that of this version and needs no file.
const PAGE: &str = include_str!("../../docs/errors.md");

/// Prints the section of a code, or the titles of all.
pub(super) fn print(code: Option<&str>) -> anyhow::Result<()> {
    let text = match code {
        Some(code) => explained(code)?,
        None => StableCode::ALL.iter().filter_map(|code| section(code.name())).map(title).collect(),
    };
    crate::printer::stdout().write_all(text.as_bytes()).context("cannot print the explanation")
}

/// Whether a text looks like a code.
pub(super) fn is_code(text: &str) -> bool {
    name_of(text).starts_with("PARM-")
}

fn explained(code: &str) -> anyhow::Result<String> {
    let name = name_of(code);
    let known = StableCode::ALL.iter().any(|code| code.name() == name);
    let section = section(&name).filter(|_| known);
    let section =
        section.ok_or_else(|| anyhow!("unknown code '{code}': list all codes with parm doctor codes"))?;
    Ok(format!("{}\n", section.trim_end()))
}

/// The name of a code, which may be given as its number alone.
fn name_of(code: &str) -> String {
    let name = code.trim_matches(['[', ']']).to_ascii_uppercase();
    let number = name.strip_prefix("PARM-").unwrap_or(&name);
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { format!("PARM-{number:0>4}") } else { name }
}

/// The section of a code, without the mark of its heading.
fn section(name: &str) -> Option<&'static str> {
    let start = PAGE.find(&format!("\n### {name}: "))? + "\n### ".len();
    let rest = &PAGE[start..];
    Some(&rest[..rest.find("\n##").unwrap_or(rest.len())])
}

/// The first line of a section.
fn title(section: &str) -> String {
    format!("{}\n", section.lines().next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_page_has_one_section_per_code_in_order() {
        let headings: Vec<&str> = PAGE.lines().filter_map(|line| line.strip_prefix("### PARM-")).collect();
        let in_page: Vec<_> =
            headings.iter().map(|text| text.split(':').next().unwrap_or_default()).collect();
        let in_table: Vec<_> = StableCode::ALL.iter().map(|code| code.name().replace("PARM-", "")).collect();
        assert_eq!(in_page, in_table);
        let rises = in_table.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(rises, "codes rise, and the code of a retired error is not given again: {in_table:?}");
    }

    #[test]
    fn each_section_has_a_cause_and_a_remedy_in_few_words() {
        for code in StableCode::ALL {
            let text = explained(code.name()).unwrap();
            let words = text.split_whitespace().count();
            assert!(text.contains("\n- Cause: ") && text.contains("\n- What to do: "), "{text}");
            assert!((20..=65).contains(&words), "{words} words: {text}");
        }
    }

    #[test]
    fn unknown_code_error_names_the_command_that_lists_codes() {
        for code in ["PARM-9999", "PARM-", "Exit codes", ""] {
            let error = explained(code).unwrap_err().to_string();
            assert_eq!(error, format!("unknown code '{code}': list all codes with parm doctor codes"));
        }
        assert_eq!(explained("[parm-0003]").unwrap(), explained("PARM-0003").unwrap());
    }

    #[test]
    fn bare_number_of_a_code_is_explained() {
        for number in ["12", "0012", "parm-12"] {
            assert_eq!(explained(number).unwrap(), explained("PARM-0012").unwrap(), "{number}");
        }
        explained("0").unwrap_err();
        explained("00012").unwrap_err();
    }
}
