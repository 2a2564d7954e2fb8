//! Convolutions over one, two or three spatial axes.

use burn::tensor::module;
use burn::tensor::ops::{ConvOptions, PadMode};

use super::window::Window;
use crate::graph::kernel::{Kernel, one};
use crate::graph::real::map;
use crate::graph::{Problem, Real, native, spec::Spec};

pub(super) fn conv(spec: &Spec) -> Result<Kernel, Problem> {
    let window = Window::read(spec)?;
    let groups = spec.int("group", 1)?;
    let groups = usize::try_from(groups).ok().filter(|&groups| groups > 0);
    let groups = groups.ok_or_else(|| spec.value("group", format!("{groups:?}"), "a positive number"))?;
    Ok(Box::new(move |mut inputs, _| {
        let (x, weight, bias) = (inputs.real(0)?, inputs.real(1)?, inputs.optional_real(2)?);
        one(run(&window, groups, Operands { x, weight, bias })?)
    }))
}

struct Operands {
    x: Real,
    weight: Real,
    bias: Option<Real>,
}

fn run(window: &Window, groups: usize, operands: Operands) -> Result<Real, Problem> {
    let Operands { x, weight, bias } = operands;
    let (input, filters) = (x.shape(), weight.shape());
    let fits = input.len() == filters.len()
        && input.len() >= 3
        && Some(input[1]) == filters[1].checked_mul(groups)
        && filters[0] % groups == 0;
    if !fits {
        return Err(Problem::Broadcast { left: input, right: filters });
    }
    let bias = bias.map(Real::rank1).transpose()?;
    if let Some(bias) = bias.as_ref().filter(|bias| bias.dims()[0] != filters[0]) {
        return Err(Problem::Broadcast { left: bias.dims().to_vec(), right: filters });
    }
    let (spatial, kernel) = (&input[2..], Some(&filters[2..]));
    match input.len() {
        3 => {
            let window = window.resolve::<1>(spatial, kernel)?;
            let options =
                ConvOptions::new_with_padding(window.strides, window.pads, window.dilations, groups);
            Ok(Real::R3(module::conv1d(x.rank3()?, weight.rank3()?, bias, options)))
        }
        4 => {
            let window = window.resolve::<2>(spatial, kernel)?;
            let (x, weight) = (x.rank4()?, weight.rank4()?);
            if let Some(sliding) = window.sliding(spatial).filter(|_| native::is_here(&x)) {
                let output = native::conv2d(x, weight, groups, sliding);
                return Ok(Real::R4(match bias {
                    Some(bias) => output.add(bias.reshape([1, filters[0], 1, 1])),
                    None => output,
                }));
            }
            let options =
                ConvOptions::new_with_padding(window.strides, window.pads, window.dilations, groups);
            Ok(Real::R4(module::conv2d(x, weight, bias, options)))
        }
        5 => {
            // Burn pads three axes only evenly: pad beforehand.
            let window = window.resolve::<3>(spatial, kernel)?;
            let x = map!(x, tensor => tensor.pad(&window.pads[..], PadMode::Constant(0.0)));
            let options = ConvOptions::new(window.strides, [0; 3], window.dilations, groups);
            Ok(Real::R5(module::conv3d(x.rank5()?, weight.rank5()?, bias, options)))
        }
        _ => Err(Problem::Rank { expected: 4, shape: input }),
    }
}
