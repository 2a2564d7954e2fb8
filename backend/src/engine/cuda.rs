//! The device that runs models, as configured: `cpu`, `cuda:N`, or `cuda:N,cpu`, and the card that a number means.
//!
//! The driver describes each card in a file below `/proc`, so its UUID is known before any library is loaded. CUDA
//! numbers the cards that `CUDA_VISIBLE_DEVICES` lists; its entries are numbers, the beginnings of UUIDs, or parts of
//! a card (MIG). Without `CUDA_DEVICE_ORDER=PCI_BUS_ID` the fastest card comes first, so the numbers of different
//! cards are unknown: a wrong card would be worse than none.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::given;

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

/// The driver's folder of cards, one entry each, named by its bus address.
const FOLDER: &str = "/proc/driver/nvidia/gpus";

/// Largest part of a description that is read. The driver's have a few hundred bytes.
const LONGEST: u64 = 16 * 1024;

/// The cards of a machine, and the variables that number them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cards {
    folder: PathBuf,
    visible: Option<String>,
    by_bus: bool,
}

/// A CUDA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Card {
    /// Its name: a UUID.
    Named(String),
    /// It may exist, but its name is unknown, for this reason.
    Unnamed(String),
    /// It does not exist, for this reason.
    Missing(String),
}

struct Described {
    address: Vec<u32>,
    model: String,
    uuid: String,
}

impl Cards {
    /// The cards of this machine, as this process sees them.
    pub fn here() -> Self {
        let text = |name| given(name).map(|value| value.to_string_lossy().into_owned());
        Self {
            folder: FOLDER.into(),
            visible: text("CUDA_VISIBLE_DEVICES"),
            by_bus: text("CUDA_DEVICE_ORDER").is_some_and(|order| order == "PCI_BUS_ID"),
        }
    }

    /// The card with this number in CUDA.
    pub fn find(&self, device: usize) -> Card {
        let cards = described(&self.folder);
        if cards.is_empty() {
            return Card::Unnamed(format!("{} lists no card", self.folder.display()));
        }
        let is_ordered = self.by_bus || cards.windows(2).all(|pair| pair[0].model == pair[1].model);
        let mut names = Vec::new();
        match &self.visible {
            None => names.extend(cards.iter().map(|card| card.uuid.clone())),
            // CUDA ignores the entries after an invalid one.
            Some(visible) => names.extend(visible.split(',').map_while(|entry| entry_of(entry, &cards))),
        }
        // Numbers of different cards mean nothing here.
        let numbered = |entry: &str| entry.trim().parse::<usize>().is_ok();
        let by_number =
            self.visible.as_ref().is_none_or(|list| list.split(',').nth(device).is_some_and(numbered));
        match names.get(device) {
            None => {
                let limited = self.visible.as_ref().map(|list| format!(" of CUDA_VISIBLE_DEVICES={list}"));
                let (count, limited) = (names.len(), limited.unwrap_or_default());
                Card::Missing(format!("CUDA has {count} devices{limited}, numbered from 0"))
            }
            Some(_) if by_number && !is_ordered => {
                Card::Unnamed("its cards differ: set CUDA_DEVICE_ORDER=PCI_BUS_ID".into())
            }
            Some(name) if !name.contains('?') => Card::Named(name.clone()),
            Some(_) => Card::Unnamed("the driver has not read its UUID yet".into()),
        }
    }
}

/// The name that an entry of `CUDA_VISIBLE_DEVICES` stands for; `None` if it is invalid.
fn entry_of(entry: &str, cards: &[Described]) -> Option<String> {
    let entry = entry.trim();
    if let Ok(number) = entry.parse::<usize>() {
        return cards.get(number).map(|card| card.uuid.clone());
    }
    if let Some(part) = entry.strip_prefix("MIG-") {
        // Old drivers write `MIG-GPU-UUID/1/0`, which names the card; the names of new ones do not.
        let card = part.split('/').next().filter(|card| card.starts_with("GPU-"));
        return Some(card.unwrap_or(entry).to_owned());
    }
    let mut alike = cards.iter().filter(|card| entry.starts_with("GPU-") && card.uuid.starts_with(entry));
    match (alike.next(), alike.next()) {
        (Some(card), None) => Some(card.uuid.clone()),
        _ => None,
    }
}

/// The cards of a folder in the order of their bus addresses.
fn described(folder: &Path) -> Vec<Described> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut cards: Vec<Described> = entries.filter_map(|entry| describe(&entry.path())).collect();
    cards.sort_by(|one, other| one.address.cmp(&other.address));
    cards
}

fn describe(folder: &Path) -> Option<Described> {
    let mut text = String::new();
    fs::File::open(folder.join("information")).ok()?.take(LONGEST).read_to_string(&mut text).ok()?;
    let field = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        lines.next().map(|value| value.trim().to_owned())
    };
    let address = folder.file_name()?.to_str()?.split([':', '.']);
    let address = address.map(|part| u32::from_str_radix(part, 16)).collect::<Result<_, _>>().ok()?;
    Some(Described { address, model: field("Model").unwrap_or_default(), uuid: field("GPU UUID")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder like the driver's, with a card for each address, model and UUID.
    fn driver(cards: &[(&str, &str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (address, model, uuid) in cards {
            let card = folder.path().join(address);
            fs::create_dir(&card).unwrap();
            let text =
                format!("Model: \t\t {model}\nIRQ:   \t\t 94\nGPU UUID: \t {uuid}\nDevice Minor: \t 0\n");
            fs::write(card.join("information"), text).unwrap();
        }
        folder
    }

    fn find(folder: &Path, visible: Option<&str>, by_bus: bool, device: usize) -> Card {
        Cards { folder: folder.into(), visible: visible.map(str::to_owned), by_bus }.find(device)
    }

    fn named(uuid: &str) -> Card {
        Card::Named(uuid.into())
    }

    const ALIKE: [(&str, &str, &str); 3] = [
        ("00000000:c1:00.0", "H100", "GPU-ccc"),
        ("00000000:04:00.0", "H100", "GPU-aaa"),
        ("00000000:3b:00.0", "H100", "GPU-abb"),
    ];

    #[test]
    fn equal_cards_are_numbered_by_bus_address() {
        let driver = driver(&ALIKE);
        for (device, uuid) in ["GPU-aaa", "GPU-abb", "GPU-ccc"].iter().enumerate() {
            assert_eq!(find(driver.path(), None, false, device), named(uuid));
        }
        assert!(
            matches!(find(driver.path(), None, false, 3), Card::Missing(reason) if reason.contains("3 devices"))
        );
    }

    #[test]
    fn visible_devices_renumber_the_cards() {
        let driver = driver(&ALIKE);
        for (visible, device, uuid) in [
            ("2", 0, "GPU-ccc"),
            ("2, 0", 1, "GPU-aaa"),
            ("GPU-ab,GPU-c", 0, "GPU-abb"),
            ("GPU-ab,GPU-c", 1, "GPU-ccc"),
            ("MIG-1f0c", 0, "MIG-1f0c"),
            ("MIG-GPU-abb/1/0", 0, "GPU-abb"),
        ] {
            assert_eq!(find(driver.path(), Some(visible), false, device), named(uuid), "{visible}");
        }
        // An invalid entry hides itself and the entries after it; "GPU-a" begins two UUIDs.
        for (visible, device) in [("", 0), ("-1", 0), ("0,7,1", 1), ("GPU-a", 0), ("x,0", 1), ("1", 1)] {
            let card = find(driver.path(), Some(visible), false, device);
            assert!(matches!(&card, Card::Missing(_)), "{visible}: {card:?}");
        }
    }

    #[test]
    fn different_cards_need_an_order_or_a_uuid() {
        let driver = driver(&[("0000:04:00.0", "T400", "GPU-slow"), ("0000:05:00.0", "H100", "GPU-fast")]);
        for visible in [None, Some("0")] {
            let card = find(driver.path(), visible, false, 0);
            assert!(matches!(&card, Card::Unnamed(reason) if reason.contains("PCI_BUS_ID")), "{card:?}");
            assert_eq!(find(driver.path(), visible, true, 0), named("GPU-slow"));
        }
        assert_eq!(find(driver.path(), Some("GPU-fast"), false, 0), named("GPU-fast"));
    }

    #[test]
    fn card_without_a_description_has_no_name() {
        let unread = driver(&[("0000:04:00.0", "H100", "GPU-????????-????-????-????-????????????")]);
        assert!(matches!(find(unread.path(), None, false, 0), Card::Unnamed(_)));
        let nothing = tempfile::tempdir().unwrap();
        for folder in [nothing.path(), Path::new("/nowhere/gpus")] {
            assert!(matches!(find(folder, None, false, 0), Card::Unnamed(_)));
        }
    }

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
