//! Hostile archives of arrays: bombs, wrong lengths of sequences, false central directories.

use std::io::{Cursor, Write};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::{Case, check, doubles, npy};

/// An archive of these members.
fn archive(members: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    for (name, content) in members {
        writer.start_file(format!("{name}.npy"), options).unwrap();
        writer.write_all(content).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// An archive of sequences with these lengths.
fn sequences(shape: &str, rows: usize, lengths: &[f64]) -> Vec<u8> {
    let shape_of_lengths = format!("({},)", lengths.len());
    archive(&[
        ("x", npy("<f4", shape, &vec![0; 4 * rows])),
        ("lengths", npy("<f8", &shape_of_lengths, &doubles(lengths))),
    ])
}

#[test]
fn archive_is_rejected_when_it_is_a_bomb_or_torn() {
    let bomb = archive(&[("x", npy("|u1", "(67108864, 1)", &vec![0; 64 << 20]))]);
    assert!(bomb.len() < 1 << 18, "it is small until it is unpacked");
    let whole = archive(&[("x", npy("<f4", "(2, 1)", &[0; 8]))]);
    let torn = whole[..whole.len() - 8].to_vec();
    let mut liar = whole.clone();
    // The unpacked size in the central directory.
    let at = liar.windows(4).position(|bytes| bytes == b"PK\x01\x02").unwrap() + 24;
    liar[at..at + 4].copy_from_slice(&0xffff_fffe_u32.to_le_bytes());
    check(vec![
        Case::new("npz:{}/a.npz", bomb, "more than 1048576 bytes"),
        Case::new("npz:{}/a.npz", torn, "not an npz archive"),
        Case::new("npz:{}/a.npz?inputs=y", liar, "no array 'y'"),
        Case::new("npz:{}/a.npz", b"PK\x05\x06".repeat(20_000), "not an npz archive"),
        Case::new("npz:{}/a.npz", archive(&[("x", b"\x80\x04.".to_vec())]), "cut short"),
        Case::new("npz:{}/a.npz", archive(&[("x", npy("|O", "(1, 1)", b"\x80\x04."))]), "'|O'"),
        Case::new("npz:{}/a.npz", archive(&[("x", npy("<f4", "(9, 0)", &[]))]), "no element"),
    ]);
}

#[test]
fn sequences_are_rejected_when_their_lengths_are_wrong() {
    let case = |content, words| Case::new("npz:{}/a.npz?lengths=lengths", content, words);
    let frames = "npz:{}/a.npz?lengths=lengths&frames=1000000000000000000";
    check(vec![
        case(sequences("(5, 0)", 0, &[5.0]), "no element"),
        case(sequences("(4, 1)", 4, &[5.0]), "sum to 5"),
        case(sequences("(4, 1)", 4, &[1e300]), "sum to"),
        case(sequences("(4, 1)", 4, &[f64::INFINITY]), "not a whole number"),
        case(sequences("(4, 1)", 4, &[f64::NAN, 4.0]), "not a whole number"),
        case(sequences("(4, 1)", 4, &[-1.0, 5.0]), "not a whole number"),
        case(sequences("(4,)", 4, &[4.0]), "2 dimensions"),
        Case::new(frames, sequences("(4, 1)", 4, &[4.0]), "more than 1048576 bytes"),
        Case::new(
            "npz:{}/a.npz?lengths=lengths&frames=99999",
            sequences("(4, 4)", 16, &[1.0; 4]),
            "more than",
        ),
    ]);
}
