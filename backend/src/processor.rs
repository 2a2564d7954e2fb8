//! Name of the processor, by which measured costs of one machine are recognised as those of another.

use std::fs;
use std::num::NonZeroUsize;
use std::sync::OnceLock;

/// The processor's model and architecture, and the instructions on which the cost of 8 bits depends, for runs with this
/// many threads.
pub fn processor(threads: NonZeroUsize) -> String {
    static NAME: OnceLock<String> = OnceLock::new();
    let name = NAME.get_or_init(|| {
        let model = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| model_of(&text));
        let parts = [model, Some(std::env::consts::ARCH.into()), vnni().then(|| "VNNI".into())];
        parts.into_iter().flatten().collect::<Vec<String>>().join(", ")
    });
    if threads.get() == 1 { name.clone() } else { format!("{name}, {threads} threads") }
}

/// The first model in the kernel's list of processors.
fn model_of(list: &str) -> Option<String> {
    let line = list.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, model)| model.trim().to_owned())
}

#[cfg(target_arch = "x86_64")]
fn vnni() -> bool {
    std::arch::is_x86_feature_detected!("avx512vnni")
}

#[cfg(not(target_arch = "x86_64"))]
fn vnni() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_has_its_model_and_threads() {
        let list = "processor\t: 0\nmodel name\t: Maker X7\nflags\t\t: fpu\n";
        assert_eq!(model_of(list).as_deref(), Some("Maker X7"));
        assert_eq!(model_of("processor: 0"), None);
        let (one, two) = (processor(NonZeroUsize::MIN), processor(NonZeroUsize::new(2).unwrap()));
        assert!(one.contains(std::env::consts::ARCH) && two == format!("{one}, 2 threads"), "{one}, {two}");
    }
}
