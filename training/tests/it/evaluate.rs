//! Evaluation of codes with known accuracy.

use std::cell::Cell;

use parm_encoder::{Code, CodeSpec, Kind, Learned, Nets};
use parm_parity_models::bundle::{Calibration, Meaning};
use parm_training::data::Samples;
use parm_training::evaluate::{
    Bench, Contender, Metric, Model, Order, Report, Rules, Table, Truth, constant_answer,
};
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

/// Rows with the classes that the linear model answers, except in every tenth row.
fn samples() -> Samples {
    let (inputs, labels) = inputs();
    Samples::new(inputs, Some(labels.iter().map(|label| (label + 1) % CLASSES).collect())).unwrap()
}

const RULES: Rules = Rules { metric: Metric::TOP_1, meaning: Meaning::Logits, seed: 5 };

/// The judgement on a code whose parity models are all `parity`, or on a code without any.
fn judged(bench: &Bench<'_>, code: &dyn Code, parity: &Model<'_>) -> Result<Report, Error> {
    let spec = code.spec();
    let models = vec![parity; if spec.kind.has_parity_models() { spec.r } else { 0 }];
    bench.judge(&Contender {
        code,
        models: &models,
        calibration: Calibration::default(),
        order: Order::Drawn,
    })
}

/// An evaluation of `code` on the linear model; `spoil` changes the outputs for coded queries.
fn evaluated(spec: &CodeSpec, spoil: impl Fn(&mut [f32])) -> Report {
    let samples = samples();
    let spoilt = |rows: &Array<f32>| {
        let mut outputs = linear(rows);
        spoil(outputs.data_mut());
        Ok(outputs)
    };
    // The deployed model answers the coded queries of a code without parity models, after all rows.
    let is_first = Cell::new(true);
    let deployed = |rows: &Array<f32>| if is_first.take() { Ok(linear(rows)) } else { spoilt(rows) };
    let bench = Bench::new(&deployed, &samples, RULES).unwrap();
    judged(&bench, &*spec.build().unwrap(), &spoilt).unwrap()
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
fn report_depends_on_the_seed() {
    let (samples, model) = (samples(), |rows: &Array<f32>| Ok(linear(rows)));
    let code = CodeSpec::new(Kind::Berrut, 3, 1).build().unwrap();
    let report = |seed: u64, order: Order| {
        let bench = Bench::new(&model, &samples, Rules { seed, ..RULES }).unwrap();
        let calibration = Calibration::default();
        bench.judge(&Contender { code: &*code, models: &[], calibration, order }).unwrap()
    };
    assert_eq!(report(1, Order::Drawn), report(1, Order::Drawn));
    assert_ne!(report(1, Order::Drawn), report(2, Order::Drawn));
    assert_ne!(report(1, Order::Drawn), report(1, Order::Path));
}

#[test]
fn boxes_are_judged_by_intersection_over_union() {
    let boxes = |values: &[f32]| Array::new(vec![values.len() / 4, 4], values.to_vec()).unwrap();
    let truth = boxes(&[0.0, 0.0, 2.0, 2.0, 0.0, 0.0, 2.0, 2.0]);
    let samples = Samples::with_values(boxes(&[0.0; 8]), truth).unwrap();
    let deployed = |_: &Array<f32>| Ok(boxes(&[0.0, 0.0, 2.0, 2.0, 1.0, 1.0, 3.0, 3.0]));
    let sum = |_: &Array<f32>| Ok(boxes(&[1.0, 1.0, 5.0, 5.0]));
    let backup = |_: &Array<f32>| Ok(boxes(&[0.0, 0.0, 2.0, 1.0, 5.0, 5.0, 6.0, 6.0]));
    let code = CodeSpec::new(Kind::Sum, 2, 1).build().unwrap();
    let report = |metric: Metric| {
        let rules = Rules { metric, meaning: Meaning::Values, seed: 1 };
        let bench = Bench::new(&deployed, &samples, rules).unwrap().with_backup(&backup).unwrap();
        judged(&bench, &*code, &sum).unwrap()
    };
    let overlap = report(Metric::Iou);
    let expected = (1.0 + 1.0 / 7.0) / 2.0;
    assert!((overlap.available - expected).abs() < 1e-9 && (overlap.degraded() - expected).abs() < 1e-9);
    assert_eq!((overlap.constant_answer, overlap.backup), (1.0, Some(0.25)));
    let error = report(Metric::AbsoluteError);
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
    let samples = samples();
    let model = |rows: &Array<f32>| Ok(linear(rows));
    let bench = Bench::new(&model, &samples, RULES).unwrap().with_backup(&model).unwrap();
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
fn outputs_that_cannot_be_judged_are_rejected() {
    let mut samples = samples();
    let model = |rows: &Array<f32>| Ok(linear(rows));
    let narrow = |rows: &Array<f32>| Ok(Array::full(vec![rows.shape()[0], CLASSES - 1], 0.0));
    let code = CodeSpec::new(Kind::Sum, 2, 1).build().unwrap();
    let error = judged(&Bench::new(&model, &samples, RULES).unwrap(), &*code, &narrow).unwrap_err();
    let (expected, actual) = (CLASSES, CLASSES - 1);
    assert_eq!(error, Error::Width { what: "parity outputs", expected, actual });
    samples.labels.as_mut().unwrap()[7] = 9;
    let error = Bench::new(&model, &samples, RULES).err();
    assert_eq!(error, Some(Error::Label { row: 7, label: 9, classes: CLASSES }));
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
