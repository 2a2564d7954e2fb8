//! Training of learned codes.

use parm_training::code::{CodeLoss, CodeRecipe, Encoder, train};
use parm_training::{Array, Device, Error, Host, Network};

use crate::task::{CLASSES, SIDE, alone, deployed, model, run, samples};

#[test]
fn encoder_and_decoder_learn_through_the_deployed_model() {
    let deployed = model(&deployed());
    let (rows, fresh) = (samples(600, 2), samples(300, 3));
    let cases = [
        (Encoder::Mlp, CodeLoss::Kl, (2, 1), 15),
        (Encoder::Conv, CodeLoss::Xent, (2, 1), 4),
        (Encoder::Mlp, CodeLoss::Mse, (3, 2), 15),
    ];
    for (encoder, loss, (k, r), epochs) in cases {
        let recipe =
            CodeRecipe { encoder, loss, k, r, held_out: 100, run: run(epochs), ..CodeRecipe::default() };
        let trained = alone(|around| train(&rows, Some(&fresh), &deployed, &recipe, Device::Cpu, around))
            .expect("it trains");
        let marks = trained.tested.expect("there were rows for it");
        // Guessing is right in one of three cases.
        assert!(marks.degraded > 0.5, "{recipe:?}: {marks:?}");

        let net = |bytes| Network::new(model(bytes), Device::Cpu).unwrap();
        let queries = Host::Floats(Array::full(vec![4, k, SIDE, SIDE], 0.5));
        let coded = net(&trained.encoder).predict(&[queries]).expect("coded queries");
        assert_eq!(coded[0].shape(), [4, r, SIDE, SIDE]);
        let outputs = Host::Floats(Array::full(vec![4, k + r, CLASSES], 0.5));
        let decoded = net(&trained.decoder).predict(&[outputs]).expect("predictions");
        assert_eq!(decoded[0].shape(), [4, k, CLASSES]);
    }
}

#[test]
fn training_requires_labels_for_the_loss_xent() {
    let deployed = model(&deployed());
    let mut rows = samples(600, 2);
    rows.labels = None;
    let recipe = CodeRecipe { loss: CodeLoss::Xent, ..CodeRecipe::default() };
    let refused = alone(|around| train(&rows, None, &deployed, &recipe, Device::Cpu, around)).map(|_| ());
    assert_eq!(refused, Err(Error::NoLabels));
}
