//! Reads files of measurements: numbers separated by spaces or commas; `#` begins a comment.

use std::fs;
use std::path::Path;

use crate::Error;

/// Most bytes of a file: a million numbers.
const LARGEST: u64 = 16 << 20;

/// Reads a file, relative to a folder, with a parser.
pub(crate) fn from_file<T>(
    folder: &Path,
    path: &Path,
    parser: impl Fn(&str) -> Result<T, Error>,
) -> Result<T, Error> {
    let refused = |reason: String| Error::File { path: path.into(), reason };
    let full = folder.join(path);
    let size = fs::metadata(&full).map_err(|error| refused(error.to_string()))?.len();
    if size > LARGEST {
        return Err(refused(format!("it has {size} bytes, at most {LARGEST} are read: cut it")));
    }
    let text = fs::read_to_string(&full).map_err(|error| refused(error.to_string()))?;
    parser(&text).map_err(|error| Error::Content { path: path.into(), error: Box::new(error) })
}

/// Reads all numbers of a text; each must be above 0.
pub fn numbers(text: &str) -> Result<Vec<f64>, Error> {
    let mut all = Vec::new();
    for (line, words) in lines(text) {
        for word in words {
            all.push(positive(line, word)?);
        }
    }
    if all.is_empty() { Err(Error::NoNumbers) } else { Ok(all) }
}

/// Reads a table with one line per step and one column per instance, and returns its columns.
pub(crate) fn columns(text: &str) -> Result<Vec<Vec<f64>>, Error> {
    let mut columns: Vec<Vec<f64>> = Vec::new();
    for (line, words) in lines(text) {
        if columns.is_empty() {
            columns.resize(words.len(), Vec::new());
        }
        if words.len() != columns.len() {
            return Err(Error::UnevenLine { line, found: words.len(), wanted: columns.len() });
        }
        for (column, word) in columns.iter_mut().zip(words) {
            column.push(positive(line, word)?);
        }
    }
    if columns.is_empty() { Err(Error::NoNumbers) } else { Ok(columns) }
}

/// Reads recorded arrivals: a time in seconds in each line, in order, and the size of the query in each line or in none.
/// Returns the times, and the sizes over their mean.
pub(crate) fn arrivals(text: &str) -> Result<(Vec<f64>, Vec<f64>), Error> {
    let (mut seconds, mut sizes): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
    for (line, words) in lines(text) {
        let refused = || Error::BadArrival { line, text: words.join(" ") };
        let (time, size) = match words[..] {
            [time] => (time, None),
            [time, size] => (time, Some(positive(line, size).map_err(|_| refused())?)),
            _ => return Err(refused()),
        };
        // The first line says whether lines have sizes.
        if !seconds.is_empty() && size.is_some() == sizes.is_empty() {
            return Err(refused());
        }
        let earliest = seconds.last().copied().unwrap_or(0.0);
        let time = time.parse().ok().filter(|time: &f64| time.is_finite() && *time >= earliest);
        seconds.push(time.ok_or_else(refused)?);
        sizes.extend(size);
    }
    let mean = sizes.iter().sum::<f64>() / sizes.len().max(1) as f64;
    sizes.iter_mut().for_each(|size| *size /= mean);
    if seconds.is_empty() { Err(Error::EmptyTrace) } else { Ok((seconds, sizes)) }
}

/// Returns the words of the lines that have some, each with the number of its line.
fn lines(text: &str) -> impl Iterator<Item = (usize, Vec<&str>)> {
    (1..).zip(text.lines().map(words)).filter(|(_, words)| !words.is_empty())
}

fn words(line: &str) -> Vec<&str> {
    let content = line.split('#').next().unwrap_or_default();
    content.split([' ', ',', '\t', ';', '\r']).filter(|word| !word.is_empty()).collect()
}

fn positive(line: usize, word: &str) -> Result<f64, Error> {
    let number = word.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| Error::BadNumber { line, text: word.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_and_a_bad_one_is_named() {
        assert_eq!(numbers("# factors\n1, 1.5\n\n2 # slow\n"), Ok(vec![1.0, 1.5, 2.0]));
        for bad in ["x", "0", "nan"] {
            let error = Error::BadNumber { line: 2, text: bad.into() };
            assert_eq!(numbers(&format!("1\n2 {bad}\n")), Err(error));
        }
        assert_eq!(numbers("# nothing\n"), Err(Error::NoNumbers));
        assert_eq!(columns("1 2\n# a pause\n3,4\n"), Ok(vec![vec![1.0, 3.0], vec![2.0, 4.0]]));
        assert_eq!(columns("1 2\n\n3\n"), Err(Error::UnevenLine { line: 3, found: 1, wanted: 2 }));
    }

    #[test]
    fn arrivals_are_read_with_sizes_over_their_mean_and_a_bad_one_is_named() {
        let read = arrivals("# s tokens\n0 300\n\n0.5,100\n2 200 # late\n");
        assert_eq!(read, Ok((vec![0.0, 0.5, 2.0], vec![1.5, 0.5, 1.0])));
        assert_eq!(arrivals("0.5\n0.5\n"), Ok((vec![0.5, 0.5], vec![])));
        for (text, line, content) in [
            ("1\n0.5", 2, "0.5"),
            ("1\nnan", 2, "nan"),
            ("1 5\n2", 2, "2"),
            ("1\n2 3", 2, "2 3"),
            ("1 0", 1, "1 0"),
            ("1 2 3", 1, "1 2 3"),
        ] {
            let error = Error::BadArrival { line, text: content.into() };
            assert_eq!(arrivals(text), Err(error), "{text:?}");
        }
        assert_eq!(arrivals("#\n"), Err(Error::EmptyTrace));
    }
}
