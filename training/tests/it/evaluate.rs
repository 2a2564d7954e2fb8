//! Evaluation of codes with known accuracy.

use parm_encoder::{Code, CodeSpec, Kind, Learned, Nets};
use parm_parity_models::bundle::{Calibration, Meaning};
use parm_training::data::Samples;
use parm_training::evaluate::{Bench, Contender, Model, Order, Rules};
use parm_training::evaluate::{Confidence, Evaluation, Groups, Metric, Report, Table, Truth};
use parm_training::evaluate::{constant_answer, encode, parity};
use parm_training::{Array, Error};

const ROWS: usize = 60;
const CLASSES: usize = 4;

/// Rows of one feature per class; the label's is the largest, except in every tenth row.
fn inputs() -> (Array<f32>, Vec<usize>) {
    let labels: Vec<usize> = (0..ROWS).map(|row| row * 7 % CLASSES).collect();
    let value = |row: usize, class: usize| {
        let shown = if row.is_multiple_of(10) { (labels[row] + 1) % CLASSES } else { labels[row] };
        (row * 31 + class * 17) as f32 % 5.0 * 0.1 + if class == shown { 3.0 } else { 0.0 }
    };
    let data = (0..ROWS).flat_map(|row| (0..CLASSES).map(move |class| (row, class)));
    let data = data.map(|(row, class)| value(row, class)).collect();
    (Array::new(vec![ROWS, CLASSES], data).unwrap(), labels)
}

/// A linear model: every output is twice the input of the class before.
fn linear(rows: &Array<f32>) -> Array<f32> {
    let turned =
        rows.data().chunks(CLASSES).flat_map(|row| (0..CLASSES).map(|at| 2.0 * row[(at + 3) % CLASSES]));
    Array::new(rows.shape().to_vec(), turned.collect()).unwrap()
}

/// An evaluation of `code` on the linear model; `spoil` changes the outputs for coded queries.
fn evaluated(spec: &CodeSpec, spoil: impl Fn(&mut [f32])) -> Report {
    let (inputs, labels) = inputs();
    let code = spec.build().unwrap();
    let groups = Groups::draw(ROWS, spec.k, 5).unwrap();
    let coded = encode(&*code, &groups, &inputs).unwrap();
    let parities = coded.iter().map(|queries| {
        let mut outputs = linear(queries);
        spoil(outputs.data_mut());
        outputs
    });
    let truth = Truth::Classes(labels.iter().map(|label| (label + 1) % CLASSES).collect());
    let evaluation = Evaluation {
        code: &*code,
        groups: &groups,
        deployed: &linear(&inputs),
        parities: &parities.collect::<Vec<_>>(),
        truth: &truth,
        metric: Metric::TOP_1,
        confidence: Confidence::of(Meaning::Logits, Calibration::default()),
        backup: None,
    };
    parity(&evaluation).unwrap()
}

#[test]
fn reconstructions_of_a_linear_model_equal_predictions() {
    for spec in
        [CodeSpec::new(Kind::Sum, 3, 1), CodeSpec::new(Kind::Weighted, 4, 2), CodeSpec::new(Kind::Mds, 4, 2)]
    {
        let report = evaluated(&spec, |_| {});
        assert_eq!(report.deployed, 0.9, "{spec:?}");
        assert_eq!(report.degraded.len(), spec.r, "{spec:?}");
        for degraded in &report.degraded {
            assert_eq!((degraded.score, degraded.agreement), (0.9, 1.0), "{spec:?}");
            // Every loss of every group counts once.
            let losses = degraded.patterns * degraded.lost * (ROWS / spec.k);
            assert_eq!(degraded.reconstructions, losses as u64, "{spec:?}");
        }
        assert_eq!(report.degraded[0].patterns, spec.k);
    }
}

#[test]
fn useless_parity_model_spoils_only_reconstructions() {
    let report = evaluated(&CodeSpec::new(Kind::Sum, 2, 1), |outputs| outputs.fill(0.0));
    assert_eq!(report.available, 0.9);
    assert!(report.degraded() < 0.5, "{report:?}");
    let overall: Vec<f64> = report.overall.iter().map(|at| at.score).collect();
    assert!(overall.is_sorted_by(|a, b| a > b), "{overall:?}");
    let half = 0.5 * (report.available + report.degraded());
    assert!((report.one_loss_a_group() - half).abs() < 1e-12);
}

#[test]
fn nan_answer_is_wrong() {
    let report = evaluated(&CodeSpec::new(Kind::Sum, 2, 1), |outputs| outputs.fill(f32::NAN));
    assert_eq!((report.available, report.degraded()), (0.9, 0.0));
}

#[test]
fn non_systematic_code_has_its_own_available_accuracy() {
    let report = evaluated(&CodeSpec::new(Kind::Berrut, 4, 1), |outputs| {
        outputs.iter_mut().for_each(|value| *value = -*value);
    });
    assert!(!report.systematic);
    assert_eq!(report.deployed, 0.9);
    assert!(report.available < report.deployed, "{report:?}");
    assert_eq!(report.one_loss_a_group(), report.degraded());
    assert_eq!(report.degraded[0].reconstructions, 5 * ROWS as u64);
    let undisturbed = report.overall_at(0.0);
    assert_eq!(undisturbed, report.available);
}

#[test]
fn groups_and_report_depend_on_the_seed() {
    let spec = CodeSpec::new(Kind::Berrut, 3, 1);
    assert_eq!(evaluated(&spec, |_| {}), evaluated(&spec, |_| {}));
    let (one, other) = (Groups::draw(ROWS, 3, 1).unwrap(), Groups::draw(ROWS, 3, 2).unwrap());
    assert_ne!(one, other);
    let mut rows: Vec<usize> = one.iter().flatten().copied().collect();
    rows.sort_unstable();
    assert_eq!(rows, (0..ROWS).collect::<Vec<_>>());
}

#[test]
fn groups_along_paths_hold_the_same_rows() {
    let (inputs, _) = inputs();
    let groups = Groups::draw(ROWS, 5, 1).unwrap();
    let sorted = |groups: &Groups| -> Vec<Vec<usize>> {
        let sorted = |group: &[usize]| {
            let mut group = group.to_vec();
            group.sort_unstable();
            group
        };
        groups.iter().map(sorted).collect()
    };
    let ordered = groups.clone().along_paths(&inputs);
    assert_ne!(ordered, groups);
    assert_eq!(sorted(&ordered), sorted(&groups));
}

#[test]
fn boxes_are_judged_by_intersection_over_union() {
    let boxes = |values: &[f32]| Array::new(vec![values.len() / 4, 4], values.to_vec()).unwrap();
    let truth = Truth::Values(boxes(&[0.0, 0.0, 2.0, 2.0, 0.0, 0.0, 2.0, 2.0]));
    let deployed = boxes(&[0.0, 0.0, 2.0, 2.0, 1.0, 1.0, 3.0, 3.0]);
    let code = CodeSpec::new(Kind::Sum, 2, 1).build().unwrap();
    let groups = Groups::draw(2, 2, 1).unwrap();
    let sum = Array::new(vec![1, 4], vec![1.0, 1.0, 5.0, 5.0]).unwrap();
    let evaluation = Evaluation {
        code: &*code,
        groups: &groups,
        deployed: &deployed,
        parities: &[sum],
        truth: &truth,
        metric: Metric::Iou,
        confidence: None,
        backup: Some(&boxes(&[0.0, 0.0, 2.0, 1.0, 5.0, 5.0, 6.0, 6.0])),
    };
    let report = parity(&evaluation).unwrap();
    let expected = (1.0 + 1.0 / 7.0) / 2.0;
    assert!((report.available - expected).abs() < 1e-9 && (report.degraded() - expected).abs() < 1e-9);
    assert_eq!((report.constant_answer, report.backup), (1.0, Some(0.25)));
    let error = parity(&Evaluation { metric: Metric::AbsoluteError, ..evaluation }).unwrap();
    assert_eq!(error.degraded(), 0.5);
    assert_eq!(error.accuracy(), None);
}

/// Networks that compute the sum code: one parity, and the difference that is missing.
#[derive(Debug)]
struct SumNets;

impl Nets for SumNets {
    fn encode(&self, queries: &[f32], parities: &mut [f32]) -> Result<(), String> {
        let (first, second) = queries.split_at(CLASSES);
        parities.iter_mut().zip(first.iter().zip(second)).for_each(|(sum, (a, b))| *sum = a + b);
        Ok(())
    }

    fn decode(&self, outputs: &[f32], predictions: &mut [f32]) -> Result<(), String> {
        let (exact, parity) = outputs.split_at(2 * CLASSES);
        let missing = |at: usize| parity[at % CLASSES] - exact[(at + CLASSES) % (2 * CLASSES)];
        predictions.iter_mut().enumerate().for_each(|(at, prediction)| *prediction = missing(at));
        Ok(())
    }
}

#[test]
fn bench_judges_trained_untrained_and_learned_codes() {
    let (inputs, labels) = inputs();
    let samples =
        Samples::new(inputs, Some(labels.iter().map(|label| (label + 1) % CLASSES).collect())).unwrap();
    let model = |rows: &Array<f32>| Ok(linear(rows));
    let rules = Rules { metric: Metric::TOP_1, meaning: Meaning::Logits, seed: 3 };
    let bench = Bench::new(&model, &samples, rules).unwrap().with_backup(&model).unwrap();
    let judge = |code: &dyn Code, models: &[&Model<'_>]| {
        let (calibration, order) = (Calibration::default(), Order::Path);
        bench.judge(&Contender { code, models, calibration, order })
    };
    let sum = CodeSpec::new(Kind::Sum, 3, 1).build().unwrap();
    let report = judge(&*sum, &[&model]).unwrap();
    assert_eq!((report.degraded(), report.backup), (0.9, Some(0.9)));
    assert_eq!(judge(&*CodeSpec::new(Kind::Mds, 2, 1).build().unwrap(), &[]).unwrap().degraded(), 0.9);
    let error = judge(&*sum, &[]).unwrap_err();
    assert_eq!(error, Error::Models { kind: Kind::Sum, expected: 1, actual: 0 });

    let learned = Learned::new(&CodeSpec::new(Kind::Learned, 2, 1), Box::new(SumNets)).unwrap();
    let report = judge(&learned, &[]).unwrap();
    assert_eq!((report.degraded(), report.degraded[0].agreement), (0.9, 1.0));
}

#[test]
fn constant_answer_is_the_most_frequent_classes() {
    let truth = Truth::Classes(vec![0, 2, 2, 2, 1, 1, 0, 2]);
    assert_eq!(constant_answer(Metric::TOP_1, &truth), 0.5);
    assert_eq!(constant_answer("top-2".parse().unwrap(), &truth), 0.75);
}

#[test]
fn label_beyond_the_classes_is_rejected_with_its_row() {
    let (inputs, _) = inputs();
    let code = CodeSpec::new(Kind::Sum, 2, 1).build().unwrap();
    let groups = Groups::draw(ROWS, 2, 1).unwrap();
    let parities = encode(&*code, &groups, &inputs).unwrap();
    let mut labels = vec![0; ROWS];
    labels[7] = 9;
    let truth = Truth::Classes(labels);
    let evaluation = Evaluation {
        code: &*code,
        groups: &groups,
        deployed: &inputs,
        parities: &parities,
        truth: &truth,
        metric: Metric::TOP_1,
        confidence: None,
        backup: None,
    };
    assert_eq!(parity(&evaluation).unwrap_err(), Error::Label { row: 7, label: 9, classes: CLASSES });
    let other = Groups::draw(ROWS - 2, 2, 1).unwrap();
    let error = parity(&Evaluation { groups: &other, truth: &Truth::Classes(vec![0; ROWS]), ..evaluation });
    let (expected, actual) = (ROWS / 2 - 1, ROWS / 2);
    assert_eq!(error.unwrap_err(), Error::Rows { what: "parity outputs", expected, actual });
}

#[test]
fn table_is_written_as_text_and_csv() {
    let mut table = Table::default();
    table.push("two, summed", evaluated(&CodeSpec::new(Kind::Sum, 2, 1), |_| {}));
    table.push("three", evaluated(&CodeSpec::new(Kind::Sum, 3, 1), |outputs| outputs.fill(0.0)));
    let csv = table.to_csv();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[1].starts_with("\"two, summed\",sum,2,1,top-1,0.900000,0.900000,0.900000,,"), "{csv}");
    assert!(table.to_string().contains("90.00"), "{table}");
}
