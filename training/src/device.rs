//! Devices for training: the processor and graphics cards.
//!
//! The processor is always available. A graphics card needs a build with its feature, and a driver at run time. Burn
//! panics without a driver, so cards are listed before one is opened.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// A device for training: `cpu`, `vulkan:0`, `cuda:1`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// The processor, with all its cores.
    #[default]
    Cpu,
    /// A graphics card through Vulkan, by its number; needs the feature `vulkan`.
    Vulkan(usize),
    /// An Nvidia card through CUDA, by its number; needs the feature `cuda`.
    Cuda(usize),
}

impl Device {
    /// Opens the device, if it exists.
    pub(crate) fn open(self) -> Result<burn::tensor::Device, Error> {
        let (number, found) = match self {
            Device::Cpu => return Ok(burn::tensor::Device::flex()),
            Device::Vulkan(number) => (number, vulkan()),
            Device::Cuda(number) => (number, cuda()),
        };
        let feature = self.kind();
        let mut found = found.ok_or(Error::DeviceFeature { device: self, feature })?;
        if number < found.len() {
            return Ok(found.swap_remove(number));
        }
        Err(Error::NoDevice { device: self, found: found.len() })
    }

    fn kind(self) -> &'static str {
        match self {
            Device::Cpu => "cpu",
            Device::Vulkan(_) => "vulkan",
            Device::Cuda(_) => "cuda",
        }
    }
}

/// The cards that Vulkan finds, software drivers last; `None` in a build without it.
fn vulkan() -> Option<Vec<burn::tensor::Device>> {
    #[cfg(feature = "vulkan")]
    return Some(burn::tensor::Device::enumerate(burn::tensor::DeviceType::Vulkan).into_vec());
    #[cfg(not(feature = "vulkan"))]
    None
}

/// The cards that CUDA finds; `None` in a build without it. Listing them panics without a driver.
fn cuda() -> Option<Vec<burn::tensor::Device>> {
    #[cfg(feature = "cuda")]
    return Some(
        std::panic::catch_unwind(|| {
            burn::tensor::Device::enumerate(burn::tensor::DeviceType::Cuda).into_vec()
        })
        .unwrap_or_default(),
    );
    #[cfg(not(feature = "cuda"))]
    None
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let unknown = || Error::UnknownDevice { given: text.into() };
        let (kind, number) = match text.split_once(':') {
            Some((kind, number)) => (kind, number.parse().map_err(|_| unknown())?),
            None => (text, 0),
        };
        match kind {
            "cpu" if text == kind => Ok(Device::Cpu),
            "vulkan" => Ok(Device::Vulkan(number)),
            "cuda" => Ok(Device::Cuda(number)),
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => write!(to, "cpu"),
            Device::Vulkan(number) | Device::Cuda(number) => write!(to, "{}:{number}", self.kind()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_parses_its_own_name() {
        for device in [Device::Cpu, Device::Vulkan(0), Device::Vulkan(2), Device::Cuda(1)] {
            assert_eq!(device.to_string().parse(), Ok(device));
        }
        assert_eq!("vulkan".parse(), Ok(Device::Vulkan(0)));
        for wrong in ["", "gpu", "cpu:0", "cuda:", "cuda:-1", "vulkan:x"] {
            assert_eq!(wrong.parse::<Device>(), Err(Error::UnknownDevice { given: wrong.into() }));
        }
    }

    #[test]
    fn missing_card_is_an_error_with_advice() {
        let message = |device: Device| device.open().err().map(|error| error.to_string()).unwrap_or_default();
        let (far, feature) = (Device::Vulkan(999), cfg!(feature = "vulkan"));
        let wanted = if feature { "vulkan:999 is missing" } else { "--features train,vulkan" };
        assert!(message(far).contains(wanted), "{}", message(far));
        assert!(Device::Cpu.open().is_ok());
    }
}
