//! Reads the accuracies and costs of answers from a bundle and from flags.

use parm_lab::tuner::{Quality, StandInFacts};
use parm_parity_models::bundle::Manifest;
use parm_settings::Cost;

use crate::cli::tune::Worth;

/// Returns the bundle's accuracies, overridden by flags. The recorded cost of a stand-in has precedence over the bundle's,
/// which may be from another machine.
pub fn of(flags: &Worth, recorded: Option<Cost>) -> anyhow::Result<Quality> {
    let (mut quality, mut stand_in) = match &flags.bundle {
        Some(path) => {
            let manifest = Manifest::read(path)?;
            (Quality::of(&manifest)?, StandInFacts::of(&manifest))
        }
        None => (Quality::default(), StandInFacts::default()),
    };
    stand_in.cost = recorded.or(stand_in.cost);
    if let Some(given) = flags.stand_in {
        stand_in.cost = given.cost.or(stand_in.cost);
        stand_in.accuracy = given.accuracy;
        anyhow::ensure!(
            stand_in.cost.is_some(),
            "--stand-in: unknown cost: give SHARE=ACCURACY, or a recording made with the stand-in"
        );
    }
    quality.available = flags.available.unwrap_or(quality.available);
    quality.backup = flags.backup.or(quality.backup);
    for given in &flags.degraded {
        let known = quality.codes.iter_mut().find(|coded| (coded.k, coded.r) == (given.k, given.r));
        match known {
            Some(coded) => coded.degraded = given.degraded,
            None => quality.codes.push(*given),
        }
    }
    quality.stand_in = stand_in.worth(quality.available);
    quality.codes.sort_by_key(|coded| (coded.k, coded.r));
    quality.check()?;
    Ok(quality)
}
