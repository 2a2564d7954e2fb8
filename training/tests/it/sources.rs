//! Every kind of source, on files made by the tests, with the errors for invalid files.

use std::fs;
use std::io::Write;
use std::path::Path;

use image::{Rgb, RgbImage};
use parm_training::Array;
use parm_training::data::known::{self, FileState};
use parm_training::data::{Limit, Samples, Source, Unusable, fit, normalise};
use tempfile::TempDir;
use zip::write::SimpleFileOptions;

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Reads the source; `{}` in it is the folder.
fn read(folder: &TempDir, source: &str) -> Result<Samples, Unusable> {
    source.replace("{}", folder.path().to_str().unwrap()).parse::<Source>()?.read(Limit::default())
}

fn write(folder: &TempDir, name: &str, content: impl AsRef<[u8]>) {
    let path = folder.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let length = u16::try_from(header.len()).unwrap().to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), data].concat()
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn npz(folder: &TempDir, name: &str, arrays: &[(&str, Vec<u8>)]) {
    let mut archive = zip::ZipWriter::new(fs::File::create(folder.path().join(name)).unwrap());
    for (name, content) in arrays {
        archive.start_file(format!("{name}.npy"), SimpleFileOptions::default()).unwrap();
        archive.write_all(content).unwrap();
    }
    archive.finish().unwrap();
}

fn picture(path: &Path, size: (u32, u32), color: impl Fn(u32, u32) -> [u8; 3]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    RgbImage::from_fn(size.0, size.1, |x, y| Rgb(color(x, y))).save(path).unwrap();
}

#[test]
fn invalid_source_is_rejected_with_the_valid_ones() {
    let folder = folder();
    let message = |source: &str| read(&folder, source).unwrap_err().to_string();
    assert!(message("images.gz").contains("start with a kind and a colon: idx, npy"));
    assert!(message("mnist:images").contains("unknown kind 'mnist'"));
    assert!(message("idx:images,").contains("a path is empty"));
    write(&folder, "x.csv", "a,b\n1,0\n");
    assert!(
        message("csv:{}/x.csv?traget=b")
            .contains("setting 'traget': unknown for this kind of source: use rows")
    );
    assert!(message("csv:{}/x.csv?rows=5").contains("'5' is not of the form 1..2"));
    assert!(message("csv:{}/x.csv,{}/x.csv").contains("give one path"));
}

#[test]
fn arrays_of_an_archive_are_read_by_name() {
    let folder = folder();
    let rows = npy("<f4", "(3, 2)", &floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    npz(&folder, "a.npz", &[("x", rows), ("y", npy("|u1", "(3,)", &[0, 1, 0]))]);
    let samples = read(&folder, "npz:{}/a.npz?labels=y").unwrap();
    assert_eq!((samples.inputs.shape(), samples.labels), (&[3, 2][..], Some(vec![0, 1, 0])));
    let error = read(&folder, "npz:{}/a.npz?inputs=X").unwrap_err();
    let Unusable::NoArray { name, mut available, .. } = error else { panic!("{error}") };
    available.sort();
    assert_eq!((name.as_str(), available), ("X", vec!["x".to_owned(), "y".to_owned()]));
}

#[test]
fn arrays_of_two_inputs_and_labels_are_read() {
    let folder = folder();
    write(&folder, "ids.npy", npy("<i8", "(2, 2)", &[1i64, 2, 3, 4].map(i64::to_le_bytes).concat()));
    write(&folder, "mask.npy", npy("<f4", "(2, 1)", &floats(&[0.5, 1.0])));
    write(&folder, "y.npy", npy("|u1", "(2,)", &[1, 0]));
    let source = |text: &str| text.replace("{}", folder.path().to_str().unwrap()).parse::<Source>().unwrap();
    let read = |text: &str| source(text).read_for(2, Limit::default());
    let samples = read("npy:{}/ids.npy,{}/mask.npy,{}/y.npy").unwrap();
    assert_eq!(
        (samples.inputs.data(), samples.labels),
        (&[1.0, 2.0, 0.5, 3.0, 4.0, 1.0][..], Some(vec![1, 0]))
    );
    assert_eq!(samples.parts.count(), 2);
    let message = |text: &str| read(text).unwrap_err().to_string();
    assert!(message("npy:{}/ids.npy").contains("give 2 paths, or one more for labels"));
    assert!(message("npz:{}/a.npz").contains("2 inputs: use npy: with one array per input"));
    write(&folder, "hash.npy", npy("<i8", "(2, 1)", &[1i64, 16_777_217].map(i64::to_le_bytes).concat()));
    assert!(message("npy:{}/hash.npy,{}/mask.npy").contains("the integer 16777217 is beyond 16777216"));
    write(&folder, "three.npy", npy("<f4", "(3, 1)", &floats(&[0.5, 1.0, 2.0])));
    assert!(message("npy:{}/ids.npy,{}/three.npy").contains("[2, 3] rows"));
}

#[test]
fn sequences_are_resampled_to_one_length() {
    let folder = folder();
    let rows = npy("<f4", "(5, 1)", &floats(&[0.0, 2.0, 4.0, 7.0, 9.0]));
    npz(&folder, "a.npz", &[("x", rows), ("n", npy("|u1", "(2,)", &[3, 2]))]);
    let samples = read(&folder, "npz:{}/a.npz?lengths=n&frames=5").unwrap();
    assert_eq!(samples.inputs.shape(), [2, 1, 5, 1]);
    assert_eq!(samples.inputs.data(), [0.0, 1.0, 2.0, 3.0, 4.0, 7.0, 7.5, 8.0, 8.5, 9.0]);
    npz(&folder, "b.npz", &[("x", npy("<f4", "(1, 1)", &floats(&[0.0]))), ("n", npy("|u1", "(1,)", &[2]))]);
    let message = read(&folder, "npz:{}/b.npz?lengths=n").unwrap_err().to_string();
    assert!(message.contains("its lengths sum to 2, it has 1 rows"), "{message}");
}

#[test]
fn features_of_sequences_are_standardised() {
    let folder = folder();
    let frames = [100.0, 0.0, 300.0, 2.0, 200.0, 4.0, 200.0, 2.0];
    let arrays =
        [("x", npy("<f4", "(4, 2)", &floats(&frames))), ("n", npy("<f4", "(2,)", &floats(&[2.0, 2.0])))];
    npz(&folder, "s.npz", &arrays);
    let samples = read(&folder, "npz:{}/s.npz?lengths=n&frames=2&standard").unwrap();
    let root = 2f32.sqrt();
    let expected = [-root, -root, root, 0.0, 0.0, root, 0.0, 0.0];
    let off = samples.inputs.data().iter().zip(expected).map(|(a, b)| (a - b).abs());
    assert!(off.fold(0.0, f32::max) < 1e-6, "{:?}", samples.inputs);
}

#[test]
fn matrix_of_labels_is_read_as_numbers() {
    let folder = folder();
    write(&folder, "x.npy", npy("<f4", "(2, 1)", &floats(&[1.0, 2.0])));
    write(&folder, "y.npy", npy("<f4", "(2, 2)", &floats(&[0.1, 0.2, 0.3, 0.4])));
    let samples = read(&folder, "npy:{}/x.npy,{}/y.npy").unwrap();
    assert_eq!((samples.labels, samples.values.unwrap().shape()), (None, &[2, 2][..]));
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
    for (content, expected) in [
        ("a,b\n1,0\nNaN,1\n", "line 3: 'NaN' in column 'a' is not a finite number"),
        ("a,b\n1,0\n2,1\nx,1\n", "line 4: 'x' in column 'a' is not a finite number"),
        ("a,b\n1,0\n2\n", "line 3"),
    ] {
        write(&folder, "t.csv", content);
        let message = read(&folder, "csv:{}/t.csv").unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    write(&folder, "t.csv", "a,b\n1,0\n");
    let error = read(&folder, "csv:{}/t.csv?target=c").unwrap_err().to_string();
    assert!(error.ends_with("has no column 'c': it has a, b"), "{error}");
    write(&folder, "t.csv", "a,b\n");
    assert!(read(&folder, "csv:{}/t.csv").unwrap_err().to_string().contains("has no rows"));
}

#[test]
fn folders_of_images_become_classes() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    picture(&at("dog/1.png"), (2, 3), |_, _| [255, 0, 51]);
    picture(&at("cat/1.png"), (2, 3), |x, _| if x == 0 { [255; 3] } else { [0; 3] });
    let samples = read(&folder, "folder:{}").unwrap();
    assert_eq!((samples.inputs.shape(), samples.labels), (&[2, 3, 3, 2][..], Some(vec![0, 1])));
    let dog = &samples.inputs.data()[18..];
    assert!(dog[..6].iter().all(|red| *red == 1.0) && dog[6..12].iter().all(|green| *green == 0.0));
    assert!(dog[12..].iter().all(|blue| (blue - 0.2).abs() < 1e-6));
    let gray = read(&folder, "folder:{}?gray&size=1x1").unwrap();
    assert_eq!(gray.inputs.shape(), [2, 1, 1, 1]);
    assert!((gray.inputs.data()[0] - 0.5).abs() < 0.01, "half of the cat is white: {:?}", gray.inputs);
}

#[test]
fn images_of_unequal_size_and_empty_classes_are_rejected() {
    let folder = folder();
    picture(&folder.path().join("cat/1.png"), (2, 2), |_, _| [0; 3]);
    picture(&folder.path().join("cat/2.png"), (3, 2), |_, _| [0; 3]);
    let message = read(&folder, "folder:{}").unwrap_err().to_string();
    assert!(message.contains("2.png") && message.contains("give a common size"), "{message}");
    write(&folder, "cat/2.png", "no picture");
    let message = read(&folder, "folder:{}").unwrap_err().to_string();
    assert!(message.contains("2.png' is not a PNG or JPEG image"), "{message}");
    fs::create_dir(folder.path().join("dog")).unwrap();
    let message = read(&folder, "folder:{}").unwrap_err().to_string();
    assert!(message.contains("dog' holds no file that ends in png or jpg or jpeg"), "{message}");
}

#[test]
fn parts_are_disjoint_and_depend_on_the_seed() {
    let folder = folder();
    let lines: String = (0..50).map(|row| format!("{row},{}\n", row % 2)).collect();
    write(&folder, "t.csv", format!("a,b\n{lines}"));
    let rows = |settings: &str| -> Vec<f32> {
        read(&folder, &format!("csv:{{}}/t.csv?{settings}")).unwrap().inputs.into_data()
    };
    let (train, test) = (rows("part=train&hold=0.3"), rows("part=test&hold=0.3"));
    assert_eq!((train.len(), test.len()), (35, 15));
    assert!(test.iter().all(|row| !train.contains(row)));
    assert_eq!(rows("part=test&hold=0.3&seed=1"), test);
    assert_ne!(rows("part=test&hold=0.3&seed=2"), test);
    assert_eq!(rows("rows=3..6"), [3.0, 4.0, 5.0]);
    let error = read(&folder, "csv:{}/t.csv?rows=40..60").unwrap_err();
    assert_eq!(error, Unusable::Range { from: 40, to: 60, rows: 50 });
}

#[test]
fn samples_have_the_given_size_and_are_disjoint() {
    let folder = folder();
    let lines: String = (0..50).map(|row| format!("{row},{}\n", row % 2)).collect();
    write(&folder, "t.csv", format!("a,b\n{lines}"));
    let source = |settings: &str| read(&folder, &format!("csv:{{}}/t.csv?{settings}"));
    let rows = |settings: &str| source(settings).unwrap().inputs.into_data();
    let some = rows("sample=20");
    assert_eq!(some.len(), 20);
    assert!(some.is_sorted() && some != (0..20).map(|row| row as f32).collect::<Vec<_>>());
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
    write(&folder, "a/tiny.txt", "1234567");
    write(&folder, "long.bin", [vec![7; 5000], vec![8; 5000]].concat());
    let samples = read(&folder, "bytes:{}").unwrap();
    assert_eq!((samples.inputs.shape(), &samples.labels), (&[2, 2048][..], &None));
    let rows: Vec<&[f32]> = samples.inputs.data().chunks(2048).collect();
    // A short file is at both ends, without surrounding white space; padding fills the middle.
    let tokens = |text: &str| text.bytes().map(f32::from).collect::<Vec<f32>>();
    assert_eq!((&rows[0][..9], &rows[0][2038..]), (&tokens("12345678\n")[..], &tokens(" \n12345678")[..]));
    assert!(rows[0][9..2038].iter().all(|token| *token == 256.0));
    assert_eq!((rows[1][0], rows[1][1023], rows[1][1024], rows[1][2047]), (7.0, 7.0, 8.0, 8.0));
    for one in 0..30 {
        write(&folder, &format!("many/{one}.rs"), format!("the source file number {one}"));
    }
    let drawn = |settings: &str| read(&folder, &format!("bytes:{{}}/many?{settings}")).unwrap().inputs;
    assert_eq!(drawn("each=10").shape()[0], 10);
    assert_eq!(drawn("each=10"), drawn("each=10"));
    assert_ne!(drawn("each=10"), drawn("each=10&draw=2"));
    let message = read(&folder, "bytes:{}/none").unwrap_err().to_string();
    assert!(message.contains("cannot read") && message.contains("none"), "{message}");
}

#[test]
fn normalised_channels_have_mean_zero_and_deviation_one() {
    let mut rows = Array::new(vec![2, 2, 2], vec![1.0, 3.0, 5.0, 5.0, 5.0, 7.0, 5.0, 5.0]).unwrap();
    let preprocessing = fit(&rows);
    assert_eq!((&preprocessing.mean[..], preprocessing.deviation[1]), (&[4.0, 5.0][..], 1.0));
    normalise(&mut rows, &preprocessing).unwrap();
    let first: Vec<f32> = [0, 1, 4, 5].iter().map(|&at| rows.data()[at]).collect();
    assert!(first.iter().sum::<f32>().abs() < 1e-6);
    assert!((first.iter().map(|value| value * value).sum::<f32>() - 4.0).abs() < 1e-5);
    let other = Array::full(vec![1, 3], 0.0);
    assert!(normalise(&mut other.clone(), &preprocessing).is_err());
}

#[test]
fn known_sets_are_checked_by_checksums() {
    let folder = folder();
    let set = known::find("mnist").unwrap();
    write(&folder, "train-labels-idx1-ubyte", "something else");
    let checked = set.check(folder.path(), Limit::default()).unwrap();
    let states: Vec<&FileState> = checked.iter().map(|file| &file.state).collect();
    assert_eq!(states[0], &FileState::Missing);
    assert!(matches!(states[1], FileState::Differs(sum) if sum.len() == 32));
    assert!(known::find("nist").unwrap_err().to_string().contains("fashion-mnist, mnist"));
}

#[test]
fn sources_of_known_sets_parse() {
    for set in known::SETS {
        for source in set.sources_in(Path::new("/data")) {
            assert!(source.parse::<Source>().is_ok(), "{source}");
        }
    }
}
