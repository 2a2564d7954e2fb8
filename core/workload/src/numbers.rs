//! Reads files of measured factors: numbers separated by spaces or commas; `#` begins a comment.

use crate::Error;

/// Reads all numbers of a text, line by line.
pub(crate) fn list(text: &str) -> Result<Vec<f64>, Error> {
    Ok(lines(text)?.into_iter().flat_map(|(_, numbers)| numbers).collect())
}

/// Reads a table with one line per step and one column per instance, and returns its columns.
pub(crate) fn columns(text: &str) -> Result<Vec<Vec<f64>>, Error> {
    let lines = lines(text)?;
    let wanted = lines[0].1.len();
    let mut columns = vec![Vec::with_capacity(lines.len()); wanted];
    for (line, numbers) in lines {
        if numbers.len() != wanted {
            return Err(Error::UnevenLine { line, found: numbers.len(), wanted });
        }
        columns.iter_mut().zip(numbers).for_each(|(column, number)| column.push(number));
    }
    Ok(columns)
}

/// Returns the lines that have numbers, at least one, each with its number in the text.
fn lines(text: &str) -> Result<Vec<(usize, Vec<f64>)>, Error> {
    let mut lines = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.split('#').next().unwrap_or_default();
        let words = content.split([' ', ',', '\t', ';', '\r']).filter(|word| !word.is_empty());
        let numbers: Result<Vec<f64>, Error> = words.map(|word| number(line, word)).collect();
        let numbers = numbers?;
        if !numbers.is_empty() {
            lines.push((line, numbers));
        }
    }
    if lines.is_empty() { Err(Error::NoNumbers) } else { Ok(lines) }
}

fn number(line: usize, word: &str) -> Result<f64, Error> {
    let number = word.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| Error::BadNumber { line, text: word.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_and_a_bad_one_is_named() {
        assert_eq!(list("# factors\n1, 1.5\n\n2 # slow\n"), Ok(vec![1.0, 1.5, 2.0]));
        assert_eq!(list("1\n2 x\n"), Err(Error::BadNumber { line: 2, text: "x".into() }));
        assert_eq!(list("1\n0\n"), Err(Error::BadNumber { line: 2, text: "0".into() }));
        assert_eq!(list("# nothing\n"), Err(Error::NoNumbers));
    }

    #[test]
    fn table_is_read_by_columns() {
        assert_eq!(columns("1 2\n# a pause\n3,4\n"), Ok(vec![vec![1.0, 3.0], vec![2.0, 4.0]]));
        assert_eq!(columns("1 2\n\n3\n"), Err(Error::UnevenLine { line: 3, found: 1, wanted: 2 }));
    }
}
