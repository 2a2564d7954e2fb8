//! Hostile arrays and tables with false headers.

use parm_parity_models::bundle::Preprocessing;
use parm_training::Array;
use parm_training::data::normalise;

use crate::{Case, MOST, check, complaint, doubles, npy};

/// An idx file of bytes with these sizes.
fn idx(sizes: &[u32], data: &[u8]) -> Vec<u8> {
    let rank = u8::try_from(sizes.len()).unwrap();
    let sizes: Vec<u8> = sizes.iter().flat_map(|size| size.to_be_bytes()).collect();
    [&[0, 0, 8, rank], &sizes[..], data].concat()
}

/// Headers of other wrong forms are in the tests of `parm-arrays`.
#[test]
fn array_is_rejected_when_its_sizes_lie_or_hold_nothing() {
    let npy_case = |shape: &str, words| Case::new("npy:{}/a.npy", npy("<f4", shape, &[0; 64]), words);
    let empty = |source, shape: &str| Case::new(source, npy("<f4", shape, &[]), "no element");
    check(vec![
        npy_case("(1099511627776, 4)", "bytes of data"),
        npy_case("(1099511627776, 1099511627776)", "overflow"),
        npy_case("(18446744073709551616, 4)", "no shape"),
        npy_case("(4, 5)", "bytes of data"),
        Case::new("npy:{}/a.npy", npy("|O", "(2, 2)", b"\x80\x04cos\n"), "elements of type '|O'"),
        Case::new("npy:{}/a.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}".to_vec(), "cut short"),
        Case::new("npy:{}/a.npy", vec![b'\n'; 2 << 20], "more than 1048576 bytes"),
        Case::new(
            "npy:{}/a.npy",
            npy("<f4", "(1, 2)", &[0, 0, 0xc0, 0x7f, 0, 0, 0, 0]),
            "row 0 holds a value that is not a finite",
        ),
        empty("npy:{}/a.npy?part=train", "(1152921504606846976, 0)"),
        empty("npy:{}/a.npy?sample=3", "(0, 1152921504606846976, 1152921504606846976)"),
        empty("npy:{}/a.npy", "(0, 4)"),
        Case::new("idx:{}/i?part=test", idx(&[u32::MAX, 0, u32::MAX], &[]), "no element"),
        Case::new("idx:{}/i", idx(&[0, u32::MAX, u32::MAX], &[]), "no element"),
        Case::new("idx:{}/i", idx(&[u32::MAX; 3], &[1; 8]), "overflow"),
        Case::new("idx:{}/i", idx(&[u32::MAX, 1, 1], &[1; 8]), "bytes of data"),
        Case::new("idx:{}/i", idx(&[1; 200], &[1]), "3 dimensions"),
    ]);
}

#[test]
fn labels_are_rejected_when_they_are_not_classes() {
    let rows = || npy("<f4", "(2, 1)", &[0; 8]);
    let labels = |values: &[f64]| npy("<f8", "(2,)", &doubles(values));
    let case = |values: &[f64], words| {
        Case::new("npy:{}/a.npy,{}/b.npy", rows(), words).and("b.npy", labels(values))
    };
    check(vec![
        case(&[0.0, -1.0], "not whole numbers"),
        case(&[0.0, 0.5], "not whole numbers"),
        case(&[0.0, f64::NAN], "not whole numbers"),
        case(&[0.0, 1e17], "not whole numbers"),
        Case::new("idx:{}/i,{}/l", idx(&[2, 1, 1], &[1, 2]), "2 rows but 1 labels").and("l", idx(&[1], &[0])),
        Case::new("idx:{}/i,{}/l", idx(&[2, 1, 1], &[1, 2]), "declares 4 bytes").and("l", idx(&[4], &[0, 1])),
        Case::new("idx:{}/i,{}/l", idx(&[2, 1, 1], &[1, 2]), "elements are")
            .and("l", [&[0, 0, 13, 1, 0, 0, 0, 2][..], &[0; 8]].concat()),
    ]);
}

/// A table with a different word in each of these columns in every row.
fn words(columns: usize, rows: usize) -> Vec<u8> {
    let line = |cell: &dyn Fn(usize) -> String| (0..columns).map(cell).collect::<Vec<_>>().join(",") + ",1\n";
    let mut table = line(&|column| format!("c{column}"));
    (0..rows).for_each(|row| table += &line(&|_| format!("w{row}")));
    table.into_bytes()
}

#[test]
fn table_is_rejected_when_its_rows_are_invalid() {
    check(vec![
        // 200 kB that would become 50 million numbers.
        Case::new("csv:{}/t.csv", words(200, 250), "more than 1048576 bytes"),
        Case::new("csv:{}/t.csv", words(1, 300), "different words"),
        Case::new("csv:{}/t.csv", b"a,b\n1,2\n1e999,1\n".to_vec(), "not a finite number"),
        Case::new("csv:{}/t.csv", b"a,b\n\xff\xfe,2\n".to_vec(), "UTF-8"),
        Case::new("csv:{}/t.csv", Vec::new(), "has no rows"),
        Case::new("csv:{}/t.csv", b"a,b\n\"1,2\n3,4\n".to_vec(), "record 1"),
        Case::new("csv:{}/t.csv?as=value", b"a,b\n1,x\n".to_vec(), "not a finite number"),
        Case::new("csv:{}/t.csv", b"a\n1\n2\n".to_vec(), "no column"),
    ]);
}

#[test]
fn preprocessing_is_rejected_when_it_is_not_finite() {
    let rows = || Array::full(vec![2, 3], 0.5_f32);
    let plain = || Preprocessing { scale: 1.0, mean: vec![0.0; 3], deviation: vec![1.0; 3] };
    let cases: [(&str, Preprocessing, &str); 6] = [
        ("a deviation of 0", Preprocessing { deviation: vec![1.0, 0.0, 1.0], ..plain() }, "a deviation of 0"),
        ("no number", Preprocessing { mean: vec![f32::NAN], ..plain() }, "not finite"),
        ("an endless scale", Preprocessing { scale: f32::INFINITY, ..plain() }, "not finite"),
        ("no means", Preprocessing { mean: Vec::new(), ..plain() }, "have no 0 channels"),
        ("many means", Preprocessing { mean: vec![0.0; 100], ..plain() }, "have no 100 channels"),
        ("many deviations", Preprocessing { deviation: vec![1.0; 2], ..plain() }, "have no 2 channels"),
    ];
    for (name, with, words) in cases {
        assert_eq!(complaint(name, words, MOST, || normalise(&mut rows(), &with)), None);
    }
}
