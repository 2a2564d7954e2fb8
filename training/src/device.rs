//! Where tensors live and are computed.
//!
//! The processor is always there. A graphics card needs a build with its feature and a driver at run time; Burn panics
//! where the driver is missing, so the cards are listed before one is opened.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// A device to train on, chosen at run time: `cpu`, `vulkan:0`, `cuda:1`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// The processor, all its cores.
    #[default]
    Cpu,
    /// A graphics card through Vulkan, by its number; needs the feature `vulkan`.
    Vulkan(usize),
    /// A graphics card of Nvidia's, by its number; needs the feature `cuda`.
    Cuda(usize),
}

impl Device {
    /// Makes sure that the device is there.
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

/// The cards that Vulkan finds, drivers in software last; `None` in a build without it.
fn vulkan() -> Option<Vec<burn::tensor::Device>> {
    #[cfg(feature = "vulkan")]
    return Some(burn::tensor::Device::enumerate(burn::tensor::DeviceType::Vulkan).into_vec());
    #[cfg(not(feature = "vulkan"))]
    None
}

/// The cards that CUDA finds; `None` in a build without it. Listing them panics where there is no driver.
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
    fn a_device_is_read_as_it_is_written() {
        for device in [Device::Cpu, Device::Vulkan(0), Device::Vulkan(2), Device::Cuda(1)] {
            assert_eq!(device.to_string().parse(), Ok(device));
        }
        assert_eq!("vulkan".parse(), Ok(Device::Vulkan(0)));
        for wrong in ["", "gpu", "cpu:0", "cuda:", "cuda:-1", "vulkan:x"] {
            assert_eq!(wrong.parse::<Device>(), Err(Error::UnknownDevice { given: wrong.into() }));
        }
    }

    #[test]
    fn a_card_that_is_not_there_is_an_error_that_says_what_to_do() {
        let message = |device: Device| device.open().err().map(|error| error.to_string()).unwrap_or_default();
        let (far, feature) = (Device::Vulkan(999), cfg!(feature = "vulkan"));
        let wanted = if feature { "vulkan:999 is not there" } else { "--features train,vulkan" };
        assert!(message(far).contains(wanted), "{}", message(far));
        assert!(Device::Cpu.open().is_ok());
    }
}
