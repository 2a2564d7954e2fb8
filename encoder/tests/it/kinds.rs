//! The properties of codes, and the interface for nets, with a pair of nets that compute the sum code.

use std::str::FromStr;

use parm_encoder::{
    Code, CodeSpec, Element, Error, Input, Kind, Learned, Members, Nets, Received, Set, Workspace,
};

#[derive(Debug)]
struct SumNets {
    k: usize,
}

impl Nets for SumNets {
    fn encode(&self, queries: &[f32], parities: &mut [f32]) -> Result<(), String> {
        let len = parities.len();
        parities.fill(0.0);
        for query in queries.chunks(len) {
            parities.iter_mut().zip(query).for_each(|(sum, value)| *sum += value);
        }
        Ok(())
    }

    fn decode(&self, outputs: &[f32], predictions: &mut [f32]) -> Result<(), String> {
        let len = outputs.len() / (self.k + 1);
        let (exact, parity) = outputs.split_at(self.k * len);
        if parity.iter().all(|value| *value == 0.0) {
            return Err("the parity is blank".into());
        }
        for slot in 0..self.k {
            for at in 0..len {
                let others: f32 =
                    (0..self.k).filter(|other| *other != slot).map(|other| exact[other * len + at]).sum();
                predictions[slot * len + at] = parity[at] - others;
            }
        }
        Ok(())
    }
}

fn build(kind: Kind) -> Box<dyn Code> {
    let spec = CodeSpec::new(kind, 3, 1);
    match spec.build() {
        Err(Error::NeedsNets) => Box::new(Learned::new(&spec, Box::new(SumNets { k: 3 })).expect("valid")),
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
        let bytes = code.parity_dims(Input { dims: &[4, 2], element: Element::Bytes(8) });
        assert_eq!(bytes.is_err(), kind.is_arithmetic(), "{kind}");
        let dims = code.parity_dims(Input::floats(&[1, 6, 6])).expect("an image");
        assert_eq!(dims.iter().product::<usize>(), 36 * code.query_scale(), "{kind}");
        assert_eq!(kind.has_parity_models(), code.spec().parity_head().is_some(), "{kind}");
        assert_eq!(kind == Kind::Berrut, !recovery.is_systematic(), "{kind}");
        assert_eq!(kind.needs_bundle(), !kind.needs_affine_model() && kind != Kind::Berrut, "{kind}");
    }
}

#[test]
fn nets_read_zeros_for_lost_outputs_and_failures_are_reported() {
    let spec = CodeSpec::new(Kind::Learned, 3, 1);
    let code = Learned::new(&spec, Box::new(SumNets { k: 3 })).expect("valid");
    let queries = [[1.0_f32, 2.0], [3.0, 4.0], [5.0, 6.0]];
    let slices: Vec<Option<&[f32]>> = queries.iter().map(|query| Some(query.as_slice())).collect();
    let mut parity = [f32::NAN; 2];
    let mut workspace = Workspace::new();
    let members = Members { input: Input::floats(&[2]), queries: &slices };
    code.encode(members, &mut [&mut parity], &mut workspace).expect("encodes");
    assert_eq!(parity, [9.0, 12.0]);
    let mut decode = |predictions: &[Option<&[f32]>], parity: Option<&[f32]>, slot: usize| {
        let received = Received { members: Set::first(3), predictions, parities: &[parity] };
        let mut out = [f32::NAN; 2];
        code.decode(received, slot, &mut out, &mut workspace).map(|()| out)
    };
    assert_eq!(decode(&[slices[0], None, slices[2]], Some(&parity), 1), Ok([3.0, 4.0]));
    assert_eq!(
        decode(&slices, Some(&parity), 2),
        Ok([5.0, 6.0]),
        "the slot's own prediction must be ignored"
    );
    let missing = Error::Unrecoverable { slot: 1, missing: 2, parities: 1 };
    assert_eq!(decode(&[slices[0], None, None], Some(&parity), 1), Err(missing));
    let failure = Error::Nets { reason: "the parity is blank".into() };
    assert_eq!(decode(&[slices[0], None, slices[2]], Some(&[0.0, 0.0]), 1), Err(failure));
}
