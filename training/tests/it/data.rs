//! Every kind of source, on files made by the tests. `tests/hostile` has files that lie.

use std::fs;
use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use parm_parity_models::bundle::Preprocessing;
use parm_training::Array;
use parm_training::data::{Limit, Samples, Source, Unusable, normalise};
use tempfile::TempDir;

/// Two images of 2x2 pixels.
const IMAGES: &[u8] = &[0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 0, 51, 102, 255, 1, 2, 3, 4];
const LABELS: &[u8] = &[0, 0, 8, 1, 0, 0, 0, 2, 7, 1];

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Reads the source for a model with this many inputs; `{}` in it is the folder.
fn read_for(inputs: usize, folder: &TempDir, source: &str) -> Result<Samples, Unusable> {
    let source = source.replace("{}", folder.path().to_str().unwrap());
    source.parse::<Source>()?.read_for(inputs, Limit::default())
}

fn read(folder: &TempDir, source: &str) -> Result<Samples, Unusable> {
    read_for(1, folder, source)
}

fn refusal(folder: &TempDir, source: &str) -> String {
    read(folder, source).unwrap_err().to_string()
}

fn write(folder: &TempDir, name: &str, content: impl AsRef<[u8]>) {
    let path = folder.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn packed(content: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(content).unwrap();
    packed.finish().unwrap()
}

fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let length = u16::try_from(header.len()).unwrap().to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), data].concat()
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn invalid_source_is_rejected_with_the_valid_ones() {
    let folder = folder();
    write(&folder, "x.csv", "a,b\n1,0\n");
    for (source, expected) in [
        ("images.gz", "start with a kind and a colon: idx, npy"),
        ("mnist:images", "unknown kind 'mnist'"),
        ("idx:images,", "a path is empty"),
        ("csv:{}/x.csv?traget=b", "setting 'traget': unknown for this kind of source: use rows"),
        ("csv:{}/x.csv?rows=5", "'5' is not of the form 1..2"),
        ("csv:{}/x.csv,{}/x.csv", "give one path"),
    ] {
        let message = refusal(&folder, source);
        assert!(message.contains(expected), "{source}: {message}");
    }
}

#[test]
fn idx_files_are_read_plain_and_gzipped() {
    let folder = folder();
    write(&folder, "images", IMAGES);
    write(&folder, "images.gz", packed(IMAGES));
    write(&folder, "labels", LABELS);
    let plain = read(&folder, "idx:{}/images,{}/labels").unwrap();
    assert_eq!(plain.inputs.shape(), [2, 1, 2, 2]);
    assert!((plain.inputs.data()[1] - 0.2).abs() < 1e-6);
    assert_eq!(plain.classes(), [0, 1, 0, 0, 0, 0, 0, 1]);
    assert_eq!(read(&folder, "idx:{}/images.gz,{}/labels"), Ok(plain));
}

#[test]
fn a_file_beyond_the_limit_is_not_unpacked() {
    let folder = folder();
    write(&folder, "bomb.gz", packed(&[0; 1 << 16]));
    let path = folder.path().join("bomb.gz");
    let error = Samples::idx(&path, None, Limit(1000)).unwrap_err();
    assert_eq!(error, Unusable::TooLarge { path, limit: 1000 });
}

#[test]
fn saved_samples_are_read_again_unchanged() {
    let folder = folder();
    let inputs = Array::new(vec![2, 1, 2], vec![1.5, 2.0, -3.0, 4.0]).unwrap();
    let samples = Samples::new(inputs.clone(), Some(vec![4, 0])).unwrap();
    let path = |name: &str| folder.path().join("saved").join(name);
    assert_eq!(samples.save(&path("")).unwrap(), [path("inputs.npy"), path("labels.npy")]);
    assert_eq!(read(&folder, "npy:{}/saved/inputs.npy,{}/saved/labels.npy"), Ok(samples));
    let values = Samples::with_values(inputs, Array::new(vec![2, 1], vec![0.5, 7.0]).unwrap()).unwrap();
    let stale = values.save(&path("")).unwrap_err().to_string();
    assert!(stale.contains("labels.npy") && stale.contains("other rows"), "{stale}");
    fs::remove_file(path("labels.npy")).unwrap();
    values.save(&path("")).unwrap();
    assert_eq!(read(&folder, "npy:{}/saved/inputs.npy,{}/saved/values.npy"), Ok(values));
}

#[test]
fn arrays_of_two_inputs_and_labels_are_read() {
    let folder = folder();
    write(&folder, "ids.npy", npy("<i8", "(2, 2)", &[1i64, 2, 3, 4].map(i64::to_le_bytes).concat()));
    write(&folder, "mask.npy", npy("<f4", "(2, 1)", &floats(&[0.5, 1.0])));
    write(&folder, "y.npy", npy("|u1", "(2,)", &[1, 0]));
    write(&folder, "hash.npy", npy("<i8", "(2, 1)", &[1i64, 16_777_217].map(i64::to_le_bytes).concat()));
    write(&folder, "three.npy", npy("<f4", "(3, 1)", &floats(&[0.5, 1.0, 2.0])));
    let samples = read_for(2, &folder, "npy:{}/ids.npy,{}/mask.npy,{}/y.npy").unwrap();
    let rows = [1.0, 2.0, 0.5, 3.0, 4.0, 1.0];
    assert_eq!((samples.inputs.data(), samples.labels), (&rows[..], Some(vec![1, 0])));
    assert_eq!(samples.parts.count(), 2);
    for (source, expected) in [
        ("npy:{}/ids.npy", "give 2 paths, or one more for labels"),
        ("csv:{}/a.csv", "2 inputs: use npy: with one array per input"),
        ("npy:{}/hash.npy,{}/mask.npy", "the integer 16777217 is beyond 16777216"),
        ("npy:{}/ids.npy,{}/three.npy", "[2, 3] rows"),
    ] {
        let message = read_for(2, &folder, source).unwrap_err().to_string();
        assert!(message.contains(expected), "{source}: {message}");
    }
}

#[test]
fn words_of_a_table_become_columns() {
    let folder = folder();
    write(&folder, "t.csv", "size,colour,price\n1.5,red,10\n2,blue,30\n3, red ,20\n");
    let samples = read(&folder, "csv:{}/t.csv?as=value").unwrap();
    assert_eq!(samples.inputs.shape(), [3, 3]);
    assert_eq!(samples.inputs.data(), [1.5, 0.0, 1.0, 2.0, 1.0, 0.0, 3.0, 0.0, 1.0]);
    assert_eq!(samples.values.unwrap().data(), [10.0, 30.0, 20.0]);
    let classes = read(&folder, "csv:{}/t.csv?target=colour").unwrap();
    assert_eq!((classes.inputs.shape(), classes.labels), (&[3, 2][..], Some(vec![1, 0, 1])));
}

#[test]
fn invalid_cell_is_named_by_line_and_column() {
    let folder = folder();
    for (content, source, expected) in [
        ("a,b\n1,0\nNaN,1\n", "csv:{}/t.csv", "line 3: 'NaN' in column 'a' is not a finite number"),
        ("a,b\n1,0\n2,1\nx,1\n", "csv:{}/t.csv", "line 4: 'x' in column 'a' is not a finite number"),
        ("a,b\n1,0\n2\n", "csv:{}/t.csv", "line 3"),
        ("a,b\n1,0\n", "csv:{}/t.csv?target=c", "has no column 'c': it has a, b"),
    ] {
        write(&folder, "t.csv", content);
        let message = refusal(&folder, source);
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn parts_and_samples_are_disjoint_and_depend_on_the_seed() {
    let folder = folder();
    let lines: String = (0..50).map(|row| format!("{row},{}\n", row % 2)).collect();
    write(&folder, "t.csv", format!("a,b\n{lines}"));
    let source = |settings: &str| read(&folder, &format!("csv:{{}}/t.csv?{settings}"));
    let rows = |settings: &str| source(settings).unwrap().inputs.into_data();
    let (train, test) = (rows("part=train&hold=0.3"), rows("part=test&hold=0.3"));
    assert_eq!((train.len(), test.len()), (35, 15));
    assert!(test.iter().all(|row| !train.contains(row)));
    assert_eq!(rows("part=test&hold=0.3&seed=1"), test);
    assert_ne!(rows("part=test&hold=0.3&seed=2"), test);
    assert_eq!(rows("rows=3..6"), [3.0, 4.0, 5.0]);
    assert_eq!(source("rows=40..60").unwrap_err(), Unusable::Range { from: 40, to: 60, rows: 50 });

    let some = rows("sample=20");
    assert!(some.len() == 20 && some.is_sorted() && some != rows("rows=0..20"), "{some:?}");
    assert_ne!(rows("sample=20&seed=2"), some);
    assert_eq!(rows("sample=50").len(), 50);
    let (train, test) = (rows("sample=20&part=train&hold=0.25"), rows("sample=20&part=test&hold=0.25"));
    assert_eq!((train.len(), test.len()), (15, 5));
    assert!(test.iter().all(|row| some.contains(row) && !train.contains(row)));
    assert_eq!(source("sample=60").unwrap_err(), Unusable::Range { from: 0, to: 60, rows: 50 });
    assert!(source("seed=2").unwrap_err().to_string().contains("choose a part"));
}

#[test]
fn files_are_read_by_their_ends_and_once() {
    let folder = folder();
    write(&folder, "a/short.txt", " \n12345678\n");
    write(&folder, "a/same.txt", " \n12345678\n");
    write(&folder, "long.bin", [vec![7; 5000], vec![8; 5000]].concat());
    let samples = read(&folder, "bytes:{}").unwrap();
    assert_eq!((samples.inputs.shape(), &samples.labels), (&[2, 2048][..], &None));
    let rows: Vec<&[f32]> = samples.inputs.data().chunks(2048).collect();
    assert_eq!((rows[0][0], rows[0][9]), (f32::from(b'1'), 256.0), "padding fills the middle");
    assert_eq!((rows[1][0], rows[1][1023], rows[1][1024], rows[1][2047]), (7.0, 7.0, 8.0, 8.0));
    for one in 0..30 {
        write(&folder, &format!("many/{one}.rs"), format!("the source file number {one}"));
    }
    let drawn = |settings: &str| read(&folder, &format!("bytes:{{}}/many?{settings}")).unwrap().inputs;
    assert_eq!(drawn("each=10").shape()[0], 10);
    assert_eq!(drawn("each=10"), drawn("each=10"));
    assert_ne!(drawn("each=10"), drawn("each=10&draw=2"));
}

#[test]
fn values_are_normalised_by_channel() {
    let mut rows = Array::new(vec![1, 2, 2], vec![2.0, 4.0, 1.0, 3.0]).unwrap();
    let (mean, deviation) = (vec![1.0, 0.5], vec![1.0, 0.5]);
    normalise(&mut rows, &Preprocessing { scale: 0.5, mean, deviation }).unwrap();
    assert_eq!(rows.data(), [0.0, 1.0, 0.0, 2.0]);
}
