//! Every operator compared with ONNX Runtime, and its gradients with finite differences.

use parm_training::{Array, Device, Gradients, Host, Mode, Network};

use crate::support::{Case, agree, cases};

#[test]
fn every_operator_agrees_with_onnx_runtime() {
    let cases = cases();
    let wrong: Vec<String> = cases.iter().filter_map(|case| compare(case).err()).collect();
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

fn compare(case: &Case) -> Result<(), String> {
    let named = |error| format!("{}: {error}", case.name);
    let network = Network::new(case.model(), Device::Cpu).map_err(named)?;
    let outputs = network.predict(&case.inputs).map_err(named)?;
    let wrong = outputs.iter().zip(&case.outputs).find(|(actual, expected)| !agree(actual, expected, 1e-5));
    match wrong {
        Some((actual, expected)) => Err(format!("{}: {actual:?}\n  where {expected:?}", case.name)),
        None if outputs.len() == case.outputs.len() => Ok(()),
        None => Err(format!("{}: {} outputs", case.name, outputs.len())),
    }
}

#[test]
fn every_gradient_agrees_with_finite_differences() {
    let floats = |hosts: &[Host]| hosts.iter().all(|host| host.floats().is_some());
    let cases: Vec<Case> = cases().into_iter().filter(|case| floats(&case.outputs)).collect();
    let checked: Vec<Result<usize, String>> = cases.iter().map(|case| check(case, Mode::Evaluate)).collect();
    let wrong: Vec<&String> = checked.iter().filter_map(|result| result.as_ref().err()).collect();
    let wrong: Vec<&str> = wrong.into_iter().map(String::as_str).collect();
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    let derivatives: usize = checked.into_iter().flatten().sum();
    assert!(derivatives > 5000, "only {derivatives} derivatives were compared");
}

#[test]
fn gradients_flow_through_the_statistics_of_a_training_batch() {
    for name in ["batch_norm", "batch_norm_2d", "small_network"] {
        let compared =
            check(&crate::support::case(name), Mode::Train).unwrap_or_else(|wrong| panic!("{wrong}"));
        assert!(compared > 20, "{name}: only {compared} derivatives were compared");
    }
}

/// Half the distance of the differences: the cases keep kinks further away.
const STEP: f32 = 4e-3;
const TOLERANCE: f64 = 8e-3;

/// Compares every derivative of a weighted sum of the outputs, by inputs and parameters; returns their number.
fn check(case: &Case, mode: Mode) -> Result<usize, String> {
    let mut network = Network::new(case.model(), Device::Cpu).map_err(|error| error.to_string())?;
    let seeds: Vec<Array<f32>> = case.outputs.iter().map(|output| seed(output.shape())).collect();
    let Gradients { parameters, inputs, .. } = run(&mut network, &case.inputs, &seeds, mode);
    let mut compared = 0;
    for (at, gradient) in inputs.iter().enumerate() {
        let Some(gradient) = gradient else { continue };
        let Host::Floats(original) = &case.inputs[at] else { continue };
        let mut loss = |value: Array<f32>| {
            let mut moved = case.inputs.clone();
            moved[at] = value.into();
            loss(&mut network, &moved, &seeds, mode)
        };
        compared += differences(original, gradient, &mut loss)
            .map_err(|w| format!("{} input {at}: {w}", case.name))?;
    }
    for (name, gradient) in &parameters {
        let original = network.weight(name).expect("a gradient belongs to a parameter");
        let mut loss = |value: Array<f32>| {
            network.set_weight(name, &value).expect("the shape stays");
            loss(&mut network, &case.inputs, &seeds, mode)
        };
        let result = differences(&original, gradient, &mut loss);
        compared += result.map_err(|wrong| format!("{} weight {name}: {wrong}", case.name))?;
        network.set_weight(name, &original).expect("the shape stays");
    }
    Ok(compared)
}

fn differences(
    original: &Array<f32>,
    gradient: &Array<f32>,
    loss: &mut dyn FnMut(Array<f32>) -> f64,
) -> Result<usize, String> {
    let scale = gradient.data().iter().fold(1.0f64, |largest, g| largest.max(f64::from(g.abs())));
    for (at, &derivative) in gradient.data().iter().enumerate() {
        let mut moved = |by: f32| {
            let mut array = original.clone();
            array.data_mut()[at] += by;
            (f64::from(array.data()[at]), loss(array))
        };
        let ((right, above), (left, below)) = (moved(STEP), moved(-STEP));
        let expected = (above - below) / (right - left);
        let wrong = (f64::from(derivative) - expected).abs();
        if wrong.is_nan() || wrong > TOLERANCE * scale {
            return Err(format!("element {at} has derivative {derivative} instead of {expected}"));
        }
    }
    Ok(original.data().len())
}

fn run(network: &mut Network, inputs: &[Host], seeds: &[Array<f32>], mode: Mode) -> Gradients {
    network.gradients(inputs, seeds, mode).expect("a case that computes can be differentiated")
}

fn loss(network: &mut Network, inputs: &[Host], seeds: &[Array<f32>], mode: Mode) -> f64 {
    let outputs = match mode {
        Mode::Evaluate => network.predict(inputs).expect("the case computes"),
        Mode::Train => run(network, inputs, seeds, mode).outputs,
    };
    let weighted = |(output, seed): (&Host, &Array<f32>)| {
        let floats = output.floats().expect("only outputs of floats are differentiated");
        floats.data().iter().zip(seed.data()).map(|(y, w)| f64::from(*y) * f64::from(*w)).sum::<f64>()
    };
    outputs.iter().zip(seeds).map(weighted).sum()
}

/// Weights that differ from element to element, so that mistakes do not cancel.
fn seed(shape: &[usize]) -> Array<f32> {
    let count: usize = shape.iter().product();
    let data = (0..count).map(|at| ((at * 37 + 11) % 19) as f32 / 19.0 - 0.4).collect();
    Array::new(shape.to_vec(), data).expect("as many elements as the shape says")
}
