//! The properties of codes, and the codes that have them.

use std::str::FromStr;

use parm_encoder::{Code, CodeSpec, Element, Error, Input, Kind, Learned, Nets};

#[derive(Debug)]
struct NoNets;

impl Nets for NoNets {
    fn encode(&self, _: &[f32], _: &mut [f32]) -> Result<(), String> {
        Err("no net".into())
    }

    fn decode(&self, _: &[f32], _: &mut [f32]) -> Result<(), String> {
        Err("no net".into())
    }
}

fn build(kind: Kind) -> Box<dyn Code> {
    let spec = CodeSpec::new(kind, 3, 1);
    match spec.build() {
        Err(Error::NeedsNets) => Box::new(Learned::new(&spec, Box::new(NoNets)).expect("valid")),
        code => code.expect("valid"),
    }
}

#[test]
fn code_is_stored_and_read_by_its_name() {
    for kind in Kind::ALL {
        let stored = toml::Value::try_from(kind).expect("is stored");
        assert_eq!(stored.as_str(), Some(kind.name()));
        assert_eq!(Kind::from_str(kind.name()), Ok(kind));
    }
    let unknown = Kind::from_str("parity").unwrap_err();
    assert!(unknown.to_string().contains("sum, weighted, tiles"), "{unknown}");
}

#[test]
fn properties_of_a_kind_hold_for_the_built_code() {
    for kind in Kind::ALL {
        let code = build(kind);
        let recovery = code.recovery();
        assert_eq!(recovery, code.spec().recovery());
        let bytes = code.parity_dims(Input { dims: &[4, 2], element: Element::Bytes(8) });
        assert_eq!(bytes.is_err(), kind.is_arithmetic(), "{kind}");
        let dims = code.parity_dims(Input::floats(&[1, 6, 6])).expect("an image");
        assert_eq!(dims.iter().product::<usize>(), 36 * code.query_scale(), "{kind}");
        assert_eq!(kind.has_parity_models(), code.spec().parity_head().is_some(), "{kind}");
        assert_eq!(kind == Kind::Berrut, !recovery.is_systematic(), "{kind}");
        assert_eq!(kind.needs_bundle(), !kind.needs_affine_model() && kind != Kind::Berrut, "{kind}");
    }
}
