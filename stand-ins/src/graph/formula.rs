//! Computes operators that work value by value on single numbers.

use parm_parity_models::onnx::proto::NodeProto;

use super::NodeExt;

/// Operators of one value whose settings are attributes.
const UNARY: [&str; 22] = [
    "Identity",
    "Relu",
    "Neg",
    "Abs",
    "Sqrt",
    "Exp",
    "Log",
    "Tanh",
    "Sigmoid",
    "LeakyRelu",
    "Elu",
    "Softplus",
    "Reciprocal",
    "Erf",
    "HardSigmoid",
    "HardSwish",
    "Gelu",
    "Selu",
    "Celu",
    "Mish",
    "Softsign",
    "Clip",
];
/// Operators that combine values element by element.
const JOINTS: [&str; 8] = ["Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum"];

/// An operator that works value by value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Formula<'a>(&'a NodeProto);

impl<'a> Formula<'a> {
    /// `None` for other operators.
    pub(crate) fn of(node: &'a NodeProto) -> Option<Self> {
        (node.is(&UNARY) || node.is(&JOINTS)).then_some(Self(node))
    }

    /// Computes the operator for these inputs: one entry per input of the node, `None` for an omitted one.
    pub(crate) fn apply(self, inputs: &[Option<f64>]) -> Option<f64> {
        let node = self.0;
        let x = inputs.first().copied().flatten()?;
        if node.is(&JOINTS) {
            let others = inputs[1..].iter().map(|value| value.as_ref().copied());
            return others.into_iter().try_fold(x, |a, b| joint(&node.op_type, a, b?));
        }
        let number = |name: &str, otherwise: f32| f64::from(node.float(name).unwrap_or(otherwise));
        Some(match node.op_type.as_str() {
            "Identity" => x,
            "Relu" => x.max(0.0),
            "Neg" => -x,
            "Abs" => x.abs(),
            "Sqrt" => x.sqrt(),
            "Exp" => x.exp(),
            "Log" => x.ln(),
            "Tanh" => x.tanh(),
            "Sigmoid" => sigmoid(x),
            "LeakyRelu" if x < 0.0 => number("alpha", 0.01) * x,
            "LeakyRelu" => x,
            "Elu" => elu(x, number("alpha", 1.0), 1.0),
            "Celu" => {
                let alpha = number("alpha", 1.0);
                x.max(0.0) + (alpha * (x / alpha).exp_m1()).min(0.0)
            }
            "Selu" => number("gamma", 1.050_701) * elu(x, number("alpha", 1.673_263_2), 1.0),
            "Softplus" => softplus(x),
            "Reciprocal" => x.recip(),
            "Erf" => erf(x),
            "HardSigmoid" => (number("alpha", 0.2) * x + number("beta", 0.5)).clamp(0.0, 1.0),
            "HardSwish" => x * (x / 6.0 + 0.5).clamp(0.0, 1.0),
            "Gelu" => match node.text("approximate").as_deref() {
                Some("tanh") => {
                    0.5 * x
                        * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh())
                }
                _ => 0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2)),
            },
            "Mish" => x * softplus(x).tanh(),
            "Softsign" => x / (1.0 + x.abs()),
            "Clip" => {
                let bound = |place: usize, name: &str| {
                    inputs.get(place).copied().flatten().or_else(|| node.float(name).map(f64::from))
                };
                let x = bound(1, "min").map_or(x, |low| x.max(low));
                bound(2, "max").map_or(x, |high| x.min(high))
            }
            _ => return None,
        })
    }
}

fn joint(op: &str, a: f64, b: f64) -> Option<f64> {
    Some(match op {
        "Add" | "Sum" => a + b,
        "Sub" => a - b,
        "Mul" => a * b,
        "Div" => a / b,
        "Pow" => a.powf(b),
        "Max" => a.max(b),
        "Min" => a.min(b),
        _ => return None,
    })
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn elu(x: f64, alpha: f64, slope: f64) -> f64 {
    if x < 0.0 { alpha * x.exp_m1() } else { slope * x }
}

/// The error function: its series near zero, a continued fraction of the complement beyond.
fn erf(x: f64) -> f64 {
    let (size, scale) = (x.abs(), 2.0 / std::f64::consts::PI.sqrt());
    if size < 2.5 {
        let (mut term, mut sum) = (x, x);
        for n in 1..60 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        return scale * sum;
    }
    let fraction = (1..60).rev().fold(size, |below, n| size + f64::from(n) / 2.0 / below);
    x.signum() * (1.0 - (-size * size).exp() / (std::f64::consts::PI.sqrt() * fraction))
}

#[cfg(test)]
mod tests {
    use parm_parity_models::onnx::Attribute;

    use super::*;

    fn node(op: &str, attributes: &[(&str, Attribute)]) -> NodeProto {
        let attribute = attributes.iter().map(|(name, value)| value.to_proto(name)).collect();
        NodeProto { op_type: op.into(), attribute, ..NodeProto::default() }
    }

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-6, "{a} differs from {b}");
    }

    #[test]
    fn erf_matches_reference_values() {
        // Reference values from tables.
        for (x, y) in [
            (0.0, 0.0),
            (0.5, 0.520_499_878),
            (1.0, 0.842_700_793),
            (-2.4, -0.999_311_486),
            (3.0, 0.999_977_91),
        ] {
            close(erf(x), y);
        }
        close(erf(9.0), 1.0);
    }

    #[test]
    fn formulas_match_the_onnx_standard() {
        let check = |node: NodeProto, inputs: &[f64], expected: f64| {
            let inputs: Vec<Option<f64>> = inputs.iter().map(|value| Some(*value)).collect();
            close(Formula::of(&node).unwrap().apply(&inputs).unwrap(), expected);
        };
        check(node("Relu", &[]), &[-2.0], 0.0);
        check(node("LeakyRelu", &[("alpha", Attribute::Float(0.5))]), &[-2.0], -1.0);
        check(node("Clip", &[]), &[7.0, 0.0, 6.0], 6.0);
        check(node("Clip", &[("min", Attribute::Float(-1.0))]), &[-7.0], -1.0);
        check(node("Gelu", &[]), &[1.0], 0.841_344_746);
        check(node("HardSwish", &[]), &[1.0], 4.0 / 6.0);
        check(node("Sub", &[]), &[5.0, 3.0], 2.0);
        check(node("Max", &[]), &[5.0, 9.0, 3.0], 9.0);
        check(node("Elu", &[]), &[-1.0], -0.632_120_559);
    }

    #[test]
    fn operator_that_mixes_values_has_no_formula() {
        for op in ["MatMul", "Softmax", "ReduceMax", "Conv"] {
            assert!(Formula::of(&node(op, &[])).is_none(), "{op}");
        }
        let foreign = NodeProto { domain: "com.example".into(), ..node("Relu", &[]) };
        assert!(Formula::of(&foreign).is_none());
    }
}
