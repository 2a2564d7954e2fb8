//! Whole networks: rejection, training, and equal results of the written file in another engine.

use parm_parity_models::onnx::proto::{AttributeProto, AttributeType, ModelProto, NodeProto};
use parm_parity_models::onnx::{Limits, Model};
use parm_training::{Array, Device, Error, Host, Mode, Network, Problem};
use prost::Message;
use tract_onnx::prelude::*;

use crate::support::{agree, case};

#[test]
fn operator_without_gradients_is_rejected_with_its_node() {
    let model = changed("relu", |node| node.op_type = "NonZero".into());
    let problem = Problem::Operator { op: "NonZero".into(), opset: 17 };
    assert_eq!(refusal(model), Error::Node { node: "NonZero 'n0'".into(), problem });
}

#[test]
fn unread_attribute_is_rejected() {
    let model = changed("conv", |node| {
        let kind = AttributeType::Int as i32;
        node.attribute.push(AttributeProto {
            name: "speed".into(),
            i: Some(3),
            r#type: kind,
            ..Default::default()
        });
    });
    let problem = Problem::Attribute { name: "speed".into() };
    assert_eq!(refusal(model), Error::Node { node: "Conv 'n0'".into(), problem });
}

#[test]
fn batch_of_another_shape_is_rejected_with_both_shapes() {
    let network = Network::new(case("conv").model(), Device::Cpu).unwrap();
    let error = network.predict(&[Array::full(vec![2, 3, 6, 5], 0.0).into()]).unwrap_err();
    let Error::InputShape { given, .. } = error else { panic!("{error}") };
    assert_eq!(given, [2, 3, 6, 5]);
}

#[test]
fn weights_are_parameters_and_statistics_are_buffers() {
    let network = Network::new(case("small_network").model(), Device::Cpu).unwrap();
    assert_eq!(network.parameters().collect::<Vec<_>>(), ["w0", "w1", "w2", "w3", "w6", "w7"]);
    assert_eq!(network.buffers().collect::<Vec<_>>(), ["w4", "w5"]);
}

#[test]
fn an_exponent_is_not_a_parameter() {
    let network = Network::new(case("pow_cube").model(), Device::Cpu).unwrap();
    assert_eq!(network.parameters().count(), 0);
}

#[test]
fn running_statistics_take_a_step_towards_the_batch() {
    let case = case("batch_norm_2d");
    let mut network = Network::new(case.model(), Device::Cpu).unwrap();
    let before = network.weight("w2").unwrap();
    let seed = Array::full(vec![5, 4], 1.0);
    network.gradients(&case.inputs, &[seed], Mode::Train).unwrap();
    let x = case.inputs[0].floats().unwrap().data();
    for (channel, (old, new)) in before.data().iter().zip(network.weight("w2").unwrap().data()).enumerate() {
        let mean = (0..5).map(|row| x[row * 4 + channel]).sum::<f32>() / 5.0;
        assert!(
            (new - (0.9 * old + 0.1 * mean)).abs() < 1e-6,
            "channel {channel}: {old} -> {new}, batch {mean}"
        );
    }
}

#[test]
fn trained_file_gives_the_same_results_in_tract() {
    let case = case("small_network");
    let mut network = Network::new(case.model(), Device::Cpu).unwrap();
    let targets = Array::new(vec![2, 5], (0..10).map(|at| at as f32 / 10.0).collect()).unwrap();
    let losses: Vec<f32> = (0..20).map(|_| step(&mut network, &case.inputs, &targets)).collect();
    assert!(losses[19] < 0.5 * losses[0], "{losses:?}");

    let expected = network.predict(&case.inputs).unwrap();
    assert!(!agree(&expected[0], &case.outputs[0], 1e-2), "training changed nothing");
    let file = network.export().unwrap();
    let read =
        Network::new(Model::from_bytes(file.clone(), &Limits::default()).unwrap(), Device::Cpu).unwrap();
    assert!(agree(&read.predict(&case.inputs).unwrap()[0], &expected[0], 1e-6));
    assert!(agree(&tract(&file, &case.inputs[0]), &expected[0], 1e-4));
}

#[test]
fn untrained_network_exports_the_original_file() {
    let model = case("small_network").model();
    let original = ModelProto::decode(model.bytes().clone()).unwrap();
    // Lists of numbers and fields that are empty have several encodings.
    let exported = Network::new(model, Device::Cpu).unwrap().export().unwrap();
    assert_eq!(ModelProto::decode(exported).unwrap(), original);
}

#[test]
fn readers_of_one_shared_weight_are_trained_apart() {
    // One initialiser serves the bias in both places, as exporters write equal weights.
    let mut proto = ModelProto::decode(case("small_network").model().bytes().clone()).unwrap();
    let graph = proto.graph.as_mut().unwrap();
    graph.node[1].input[2] = "w1".into();
    let model = Model::from_bytes(proto.encode_to_vec(), &Limits::default()).unwrap();
    let mut network = Network::new(model, Device::Cpu).unwrap();
    assert_eq!(network.parameters().count(), 6);
    let seeds = [Array::full(vec![2, 5], 1.0)];
    let gradients = network.gradients(&case("small_network").inputs, &seeds, Mode::Evaluate).unwrap();
    assert_eq!(gradients.parameters.len(), 6);
}

/// One step down the gradient of the squared error; returns the error before it.
fn step(network: &mut Network, inputs: &[Host], targets: &Array<f32>) -> f32 {
    let zeros = [Array::full(vec![2, 5], 0.0)];
    let outputs = network.gradients(inputs, &zeros, Mode::Train).unwrap().outputs;
    let outputs = outputs[0].floats().unwrap();
    let difference: Vec<f32> = outputs.data().iter().zip(targets.data()).map(|(y, t)| y - t).collect();
    let loss = difference.iter().map(|d| d * d).sum();
    descend(network, inputs, &Array::new(vec![2, 5], difference).unwrap(), 0.01);
    loss
}

/// One step of this size down the gradient of the outputs' weighted sum; returns the number of changed weights.
pub(crate) fn descend(network: &mut Network, inputs: &[Host], seed: &Array<f32>, size: f32) -> usize {
    let gradients = network.gradients(inputs, std::slice::from_ref(seed), Mode::Train).unwrap().parameters;
    for (name, gradient) in &gradients {
        let mut weight = network.weight(name).unwrap();
        weight.data_mut().iter_mut().zip(gradient.data()).for_each(|(w, g)| *w -= size * g);
        network.set_weight(name, &weight).unwrap();
    }
    gradients.len()
}

pub(crate) fn tract(file: &[u8], input: &Host) -> Host {
    let (fact, input) = match input {
        Host::Ints(ints) => {
            let ints = ints.map(|&value| value as i32);
            (i32::fact(ints.shape()), Tensor::from_shape(ints.shape(), ints.data()).unwrap())
        }
        floats => {
            let floats = floats.floats().unwrap();
            (f32::fact(floats.shape()), Tensor::from_shape(floats.shape(), floats.data()).unwrap())
        }
    };
    let model =
        tract_onnx::onnx().model_for_read(&mut &*file).unwrap().with_input_fact(0, fact.into()).unwrap();
    let model = model.into_runnable().unwrap();
    let output = model.run(tvec!(input.into())).unwrap().remove(0);
    let view = output.to_plain_array_view::<f32>().unwrap();
    Array::new(view.shape().to_vec(), view.iter().copied().collect()).unwrap().into()
}

fn changed(name: &str, change: impl Fn(&mut NodeProto)) -> Model {
    let mut proto = ModelProto::decode(case(name).model().bytes().clone()).unwrap();
    change(&mut proto.graph.as_mut().unwrap().node[0]);
    Model::from_bytes(proto.encode_to_vec(), &Limits::default()).unwrap()
}

fn refusal(model: Model) -> Error {
    match Network::new(model, Device::Cpu) {
        Ok(_) => panic!("the model must be rejected"),
        Err(error) => error,
    }
}
