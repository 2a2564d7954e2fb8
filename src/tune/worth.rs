//! What answers are worth, from a bundle and from flags.

use parm_parity_models::bundle::Manifest;
use parm_tuner::{Coded, Quality};

use crate::cli::tune::Worth;

/// The bundle's accuracies, where flags do not say otherwise.
pub fn of(flags: &Worth) -> anyhow::Result<Quality> {
    let mut quality = match &flags.bundle {
        Some(path) => Quality::of(&Manifest::read(path)?)?,
        None => Quality::default(),
    };
    let parity_share = flags.parity_share;
    anyhow::ensure!(
        (0.0..=100.0).contains(&parity_share),
        "--parity-share {parity_share}: give a share from 0 to 100"
    );
    quality.parity_share = parity_share;
    quality.available = flags.available.unwrap_or(quality.available);
    if let Some(backup) = flags.backup {
        quality.backup = Some((backup.share, backup.accuracy));
    }
    for given in &flags.degraded {
        let known = quality.codes.iter_mut().find(|coded| (coded.k, coded.r) == (given.k, given.r));
        match known {
            Some(coded) => coded.degraded = given.accuracy,
            None => {
                quality.codes.push(Coded { k: given.k, r: given.r, code: None, degraded: given.accuracy })
            }
        }
    }
    quality.codes.sort_by_key(|coded| (coded.k, coded.r));
    quality.check()?;
    Ok(quality)
}
