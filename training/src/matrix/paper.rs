//! The numbers of the SOSP 2019 paper on parity models, for comparison: percent, sum code, one parity.

/// The paper's results for one data set.
pub(super) struct Paper {
    pub(super) available: f64,
    /// A_d by k.
    pub(super) degraded: &'static [(usize, f64)],
    /// Network, and the data if they differ.
    pub(super) network: &'static str,
}

/// The paper's results for the data set of this name.
pub(super) fn of(data: &str) -> Option<Paper> {
    let network = "ResNet-18";
    Some(match data {
        "mnist" => Paper { available: 99.20, degraded: &[(2, 99.21), (3, 98.27), (4, 96.38)], network },
        "fashion-mnist" => {
            Paper { available: 92.90, degraded: &[(2, 91.11), (3, 87.85), (4, 84.20)], network }
        }
        "cifar-10" => Paper { available: 93.50, degraded: &[(2, 87.4), (3, 73.85), (4, 52.91)], network },
        "cifar-100" => {
            Paper { available: 92.50, degraded: &[(2, 86.10), (3, 69.92), (4, 43.93)], network: "ResNet-152" }
        }
        "spoken-digits" => Paper {
            available: 94.54,
            degraded: &[(2, 91.48), (3, 83.91), (4, 75.59)],
            network: "VGG-11 on 30 spoken words",
        },
        "blood-cells" => {
            Paper { available: 95.0, degraded: &[(2, 67.0)], network: "boxes of birds (CUB-200)" }
        }
        _ => return None,
    })
}
