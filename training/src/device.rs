//! Where tensors live and are computed.

/// A device to train on, chosen at run time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// The processor, all its cores.
    #[default]
    Cpu,
}

impl Device {
    pub(crate) fn open(self) -> burn::tensor::Device {
        match self {
            Device::Cpu => burn::tensor::Device::flex(),
        }
    }
}
