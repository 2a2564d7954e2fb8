//! Profiles: scenarios that replay samples of public traces, which are part of the program.
//!
//! `profiles/README.md` states the sources, their licences, and how the samples were taken.

use std::time::Duration;

use crate::distribution::Distribution;
use crate::scenario::recorded;
use crate::{By, Error, Fault, Faults, Scenario, Targets, numbers};

/// The built-in profiles and their descriptions. They are scenarios, which `+` combines.
pub const PROFILES: &[(&str, &str)] = &[
    ("azure-vm", "each instance is a virtual machine of Azure: a fifth of them take 1.5 to 2 times as long"),
    ("sick-gpu", "GPUs of a training job of ByteDance: one of 16 takes 2.5 times as long"),
    ("shared-gpu", "workers of Alibaba that share GPUs: 5 of 10 take 3 to 5 times as long"),
    ("long-inputs", "inputs of a training job of ByteDance: run times follow the input on each instance"),
    ("azure-chat", "arrivals of chats at Azure, with run times that are proportional to the input"),
    ("azure-code", "arrivals of code completions at Azure, in bursts, with run times as above"),
    ("mooncake-chat", "arrivals of long chats at Moonshot AI, with run times as above"),
];

/// Returns the profile of this name.
pub(crate) fn named(name: &str) -> Option<Scenario> {
    let profile = match name {
        "azure-vm" => machines(include_str!("../profiles/azure-vm.txt")),
        "sick-gpu" => pace(include_str!("../profiles/sick-gpu.txt"), Duration::from_millis(1400)),
        "shared-gpu" => pace(include_str!("../profiles/shared-gpu.txt"), Duration::from_millis(1000)),
        "long-inputs" => inputs(include_str!("../profiles/long-inputs.txt")),
        "azure-chat" => arrivals(include_str!("../profiles/azure-chat.txt")),
        "azure-code" => arrivals(include_str!("../profiles/azure-code.txt")),
        "mooncake-chat" => arrivals(include_str!("../profiles/mooncake-chat.txt")),
        _ => return None,
    };
    Some(profile.unwrap_or_else(|error| unreachable!("a test reads the profile {name}: {error}")))
}

/// Each instance is one of the measured machines for the whole run.
fn machines(text: &str) -> Result<Scenario, Error> {
    let factor = Distribution::Sample { values: numbers::numbers(text)? };
    Ok(of(vec![Fault::Straggle { share: 1.0, factor, by: By::Instance, on: Targets::Each }]))
}

/// Each instance repeats the series of a measured one.
fn pace(text: &str, step: Duration) -> Result<Scenario, Error> {
    Ok(of(vec![Fault::Pace { step, series: numbers::columns(text)?, file: None, on: Targets::Each }]))
}

/// Each query takes as long as a measured one.
fn inputs(text: &str) -> Result<Scenario, Error> {
    Ok(of(vec![Fault::Sizes { factors: numbers::numbers(text)?, file: None, on: Targets::Each }]))
}

fn arrivals(text: &str) -> Result<Scenario, Error> {
    let (trace, sizes) = recorded(text)?;
    let faults = Faults(sizes.into_iter().collect());
    Ok(Scenario { faults, trace, again: true, ..Scenario::default() })
}

fn of(faults: Vec<Fault>) -> Scenario {
    Scenario { faults: Faults(faults), ..Scenario::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Schedule;
    use crate::clock::Moment;

    fn schedule(name: &str, seed: u64, instances: u32) -> Schedule {
        Schedule::new(&named(name).unwrap().faults, seed, instances).unwrap()
    }

    fn second(number: u64) -> Moment {
        Moment::after(Duration::from_secs(number))
    }

    #[test]
    fn every_listed_profile_exists_and_is_valid() {
        for (name, _) in PROFILES {
            let profile = named(name).unwrap_or_else(|| panic!("{name} is missing"));
            assert_eq!(profile.faults.check(3), Ok(()), "{name}");
            assert_eq!(Scenario::named(name), Some(profile), "{name} is a scenario");
        }
        assert_eq!(named("mayhem"), None);
    }

    #[test]
    fn fifth_of_the_machines_is_slow_for_the_whole_run() {
        let schedule = schedule("azure-vm", 1, 2000);
        let slow = |at| (0..2000).filter(|i| schedule.straggling(*i, second(at)) > 1.5).collect::<Vec<_>>();
        let first = slow(0);
        assert!((340..460).contains(&first.len()), "{} of 2000", first.len());
        assert_eq!(first, slow(1000));
    }

    #[test]
    fn one_gpu_of_sixteen_is_sick_in_pools_of_any_size() {
        for (instances, sick) in [(3, 1), (12, 1), (16, 1), (32, 2)] {
            let mut schedule = schedule("sick-gpu", 9, instances);
            for at in [0, 30, 77, 500] {
                let slow = (0..instances).filter(|i| schedule.condition(*i, second(at)).slowdown > 2.0);
                assert_eq!(slow.count(), sick, "of {instances} at {at} s");
            }
        }
    }

    #[test]
    fn half_of_the_workers_that_share_gpus_are_slow() {
        let mut schedule = schedule("shared-gpu", 4, 10);
        let mean = |schedule: &mut Schedule, i| {
            (0..180).map(|at| schedule.condition(i, second(at)).slowdown).sum::<f64>() / 180.0
        };
        let means: Vec<f64> = (0..10).map(|i| mean(&mut schedule, i)).collect();
        assert_eq!(means.iter().filter(|mean| (3.0..5.0).contains(*mean)).count(), 5, "{means:?}");
        assert_eq!(means.iter().filter(|mean| (0.9..1.1).contains(*mean)).count(), 5, "{means:?}");
    }

    #[test]
    fn arrivals_have_their_sizes_in_order() {
        let chat = named("azure-chat").unwrap();
        let schedule = Schedule::new(&chat.faults, 1, 4).unwrap();
        let mean = (0..800).map(|query| schedule.length(0, query)).sum::<f64>() / 800.0;
        assert!((mean - 1.0).abs() < 1e-9, "so the load stays the same: {mean}");
        let sizes = [schedule.length(0, 0), schedule.length(3, 1)];
        assert!((sizes[0] / sizes[1] - 958.0 / 1031.0).abs() < 1e-9, "{sizes:?}");
        let variation = |name| {
            let trace = named(name).unwrap().trace;
            let gaps: Vec<f64> = trace.windows(2).map(|pair| pair[1] - pair[0]).collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt() / mean
        };
        assert!((0.9..1.1).contains(&variation("azure-chat")) && variation("azure-code") > 10.0);
    }
}
