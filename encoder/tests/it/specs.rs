//! Code specs: validation, storage and the errors of misuse.

use parm_encoder::{CodeSpec, Error, Head, Input, Kind, Members, Workspace};

#[test]
fn invalid_spec_is_rejected_with_its_numbers() {
    let base = |kind: Kind, k: usize, r: usize| CodeSpec::new(kind, k, r);
    let check = |spec: CodeSpec, expect: Error| assert_eq!(spec.build().err(), Some(expect), "{spec:?}");
    check(base(Kind::Sum, 0, 1), Error::Queries { kind: Kind::Sum, k: 0, min: 1, max: 16 });
    check(base(Kind::Sum, 2, 2), Error::Parities { kind: Kind::Sum, k: 2, r: 2, min: 1, max: 1 });
    check(base(Kind::Weighted, 9, 2), Error::NotDesigned { k: 9, r: 2 });
    check(base(Kind::Mds, 9, 1), Error::Queries { kind: Kind::Mds, k: 9, min: 1, max: 8 });
    check(base(Kind::Berrut, 1, 1), Error::Queries { kind: Kind::Berrut, k: 1, min: 2, max: 32 });
    check(base(Kind::Learned, 2, 1), Error::NeedsNets);
    check(
        CodeSpec { head: Some(Head::Slots), ..base(Kind::Sum, 2, 1) },
        Error::UnusedHead { kind: Kind::Sum },
    );
}

#[test]
fn spec_without_options_is_short_when_stored() {
    let text = "kind = \"slots\"\nk = 4\n";
    let spec: CodeSpec = toml::from_str(text).expect("parses");
    assert_eq!(spec, CodeSpec::new(Kind::Slots, 4, 1));
    let full = CodeSpec { head: Some(Head::Sum), ..CodeSpec::new(Kind::Tiles, 2, 2) };
    let stored = toml::to_string(&full).expect("is stored");
    assert_eq!(toml::from_str::<CodeSpec>(&stored).expect("is read"), full);
    assert!(toml::from_str::<CodeSpec>("kind = \"slots\"\nk = 4\ncolour = 1\n").is_err());
}

#[test]
fn misuse_is_an_error_with_its_numbers() {
    let code = CodeSpec::new(Kind::Sum, 2, 1).build().expect("valid");
    let encode = |queries: &[Option<&[f32]>], parity: &mut [f32]| {
        let members = Members { input: Input::floats(&[2]), queries };
        code.encode(members, &mut [parity], &mut Workspace::new())
    };
    let (query, short) = ([1.0_f32, 2.0], [1.0_f32]);
    let count = Error::Count { what: "query", expected: 2, actual: 1 };
    assert_eq!(encode(&[Some(&query)], &mut [0.0; 2]), Err(count));
    let length = Error::Length { what: "query", index: 1, expected: 2, actual: 1 };
    assert_eq!(encode(&[Some(&query), Some(&short)], &mut [0.0; 2]), Err(length));
    let parity = Error::Length { what: "parity query", index: 0, expected: 2, actual: 3 };
    assert_eq!(encode(&[Some(&query), Some(&query)], &mut [0.0; 3]), Err(parity));
    assert_eq!(encode(&[None, None], &mut [0.0; 2]), Err(Error::EmptyGroup));
    let berrut = CodeSpec::new(Kind::Berrut, 2, 1).build().expect("valid");
    let partial = Members { input: Input::floats(&[2]), queries: &[Some(&query[..]), None] };
    let mut coded = [[0.0; 2]; 3];
    let [a, b, c] = &mut coded;
    let refused = berrut.encode(partial, &mut [a, b, c], &mut Workspace::new());
    assert_eq!(refused, Err(Error::PartialGroup { kind: Kind::Berrut, members: 1, k: 2 }));
    let tiles = CodeSpec::new(Kind::Tiles, 4, 1).build().expect("valid");
    for dims in [vec![10], vec![3, 1, 5], vec![1, 2, 3, 4]] {
        let expect = Error::NotAnImage { dims: dims.clone(), rows: 2, columns: 2 };
        assert_eq!(tiles.parity_dims(Input::floats(&dims)), Err(expect));
    }
    let slots = CodeSpec::new(Kind::Slots, 4, 1).build().expect("valid");
    assert_eq!(slots.parity_dims(Input::floats(&[])), Err(Error::NoChannels));
    assert_eq!(slots.parity_dims(Input::floats(&[3, 8, 8])), Ok(vec![12, 8, 8]));
}
