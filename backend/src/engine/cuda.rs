//! The device that runs models, as configured: `cpu`, `cuda:N`, or `cuda:N,cpu`.

/// A device, and whether the CPU may replace it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// The number of the CUDA device; `None` for the CPU.
    pub cuda: Option<usize>,
    /// Whether models run on the CPU if the CUDA device cannot be used.
    pub or_cpu: bool,
}

/// Largest number of a device: far more than a machine has, and small enough for every library.
const MOST_NUMBER: usize = 1024;

impl Device {
    /// The CPU.
    pub const CPU: Self = Self { cuda: None, or_cpu: false };

    /// Reads the configured text; `None` if it has another form.
    pub fn read(text: &str) -> Option<Self> {
        if text == "cpu" {
            return Some(Self::CPU);
        }
        let (device, or_cpu) = match text.split_once(',') {
            Some((device, rest)) => (device, (rest.trim() == "cpu").then_some(true)?),
            None => (text, false),
        };
        let number = match device.trim_end() {
            "cuda" => 0,
            device => device.strip_prefix("cuda:")?.parse().ok().filter(|&number| number <= MOST_NUMBER)?,
        };
        Some(Self { cuda: Some(number), or_cpu })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_is_cpu_or_cuda_with_a_number_and_a_fallback() {
        let cuda = |number, or_cpu| Some(Device { cuda: Some(number), or_cpu });
        for (text, device) in [
            ("cpu", Some(Device::CPU)),
            ("cuda", cuda(0, false)),
            ("cuda:3", cuda(3, false)),
            ("cuda:3,cpu", cuda(3, true)),
            ("cuda, cpu", cuda(0, true)),
        ] {
            assert_eq!(Device::read(text), device, "{text}");
        }
        for text in
            ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "cpu,cuda:0", "cuda:0,cuda:1", "cuda:5000", "cpu,"]
        {
            assert_eq!(Device::read(text), None, "{text}");
        }
    }
}
