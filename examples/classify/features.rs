//! A file as the model sees it: its first and last kilobyte, without the white space around them.

/// Tokens from the start, and as many from the end.
const SIDE: usize = 1024;
/// What is looked at on either side; white space within it is stripped.
const BLOCK: usize = 4096;
/// Stands where the file has no byte.
const PADDING: i32 = 256;
/// Files with fewer bytes say too little.
const SHORTEST: usize = 8;

/// The model's input.
#[derive(Debug, PartialEq)]
pub(crate) enum Features {
    /// 2048 tokens: bytes, or padding.
    Tokens(Vec<i32>),
    /// Too few bytes for a prediction.
    TooShort,
}

impl Features {
    pub(crate) fn of(content: &[u8]) -> Self {
        let block = content.len().min(BLOCK);
        let start = trim_start(&content[..block]);
        let end = trim_end(&content[content.len() - block..]);
        if content.len() < SHORTEST || start.len() < SHORTEST {
            return Features::TooShort;
        }
        let start = &start[..start.len().min(SIDE)];
        let end = &end[end.len().saturating_sub(SIDE)..];
        let mut tokens = vec![PADDING; 2 * SIDE];
        // Padding comes after a short start, and before a short end.
        tokens[..start.len()].iter_mut().zip(start).for_each(|(token, &byte)| *token = byte.into());
        tokens[2 * SIDE - end.len()..].iter_mut().zip(end).for_each(|(token, &byte)| *token = byte.into());
        Features::Tokens(tokens)
    }
}

/// White space as the model was trained with: ASCII's, the vertical tab included.
fn is_space(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

fn trim_start(bytes: &[u8]) -> &[u8] {
    let first = bytes.iter().position(|byte| !is_space(byte)).unwrap_or(bytes.len());
    &bytes[first..]
}

fn trim_end(bytes: &[u8]) -> &[u8] {
    let last = bytes.iter().rposition(|byte| !is_space(byte)).map_or(0, |last| last + 1);
    &bytes[..last]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(content: &[u8]) -> Vec<i32> {
        match Features::of(content) {
            Features::Tokens(tokens) => tokens,
            Features::TooShort => panic!("too short"),
        }
    }

    #[test]
    fn a_short_file_stands_at_both_ends_with_padding_between() {
        let tokens = tokens(b" \x0b\nabcdefgh\t\r\n");
        assert_eq!(tokens[..9], [97, 98, 99, 100, 101, 102, 103, 104, 9]);
        assert_eq!(tokens[11..2037], [PADDING; 2026]);
        assert_eq!(tokens[2040..], [97, 98, 99, 100, 101, 102, 103, 104]);
        assert_eq!(tokens[2037..2040], [32, 11, 10]);
    }

    #[test]
    fn only_a_block_on_either_side_is_stripped() {
        let mut content = vec![b' '; 10_000];
        content[4_090..4_099].copy_from_slice(b"abcdefghi");
        // Six letters lie within the first block, none within the last.
        assert_eq!(Features::of(&content), Features::TooShort);
        content[4_000..4_008].copy_from_slice(b"12345678");
        let tokens = tokens(&content);
        assert_eq!((tokens[0], tokens[95], tokens[96]), (i32::from(b'1'), i32::from(b'f'), PADDING));
        assert_eq!(tokens[SIDE..], [PADDING; SIDE]);
    }

    #[test]
    fn fewer_than_eight_bytes_are_too_short() {
        for content in [&b""[..], b"1234567", b"\n        1234567"] {
            assert_eq!(Features::of(content), Features::TooShort);
        }
    }
}
