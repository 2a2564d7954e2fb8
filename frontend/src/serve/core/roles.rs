//! Models that stand in for others, and the models that they serve.

use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::sync::Arc;

use parm_protocol::ModelRef;

use super::Core;
use crate::serve::coding::{Codes, StandInStanding};
use crate::serve::pool::{Description, Pool};

impl Core {
    /// Describes the role of a model that only serves others, such as a stand-in.
    pub(crate) fn serves_others(&self, model: &str) -> Option<String> {
        if let Some(part) = self.library.part_of(model) {
            return Some(part);
        }
        let serves = |pool: &Arc<Pool>| {
            let codes = pool.codes();
            let stand_in = codes.stand_in.as_ref().map(|stand_in| (&stand_in.model, "stand-in"));
            let backup = codes.backup.as_ref().map(|backup| (backup, "backup model"));
            let (_, what) = stand_in.into_iter().chain(backup).find(|(known, _)| known.name == model)?;
            Some(format!("{what} of '{}'", pool.model.name))
        };
        self.catalog.all().iter().find_map(serves)
    }

    /// The pool's stand-in as it is served; a server without versions has the expected one.
    pub(super) fn stand_in_of(&self, codes: &Codes) -> Option<Description> {
        let wanted = &codes.stand_in.as_ref()?.model;
        let unnamed = || ModelRef { version: Some(String::new()), ..wanted.clone() };
        let served = self.catalog.find(wanted).or_else(|_| self.catalog.find(&unnamed()));
        served.ok().map(|pool| pool.description())
    }

    /// Digests of the files of a pool's stand-in, or its versions if no instance states a digest.
    pub(super) fn stand_in_files(&self, codes: &Codes) -> BTreeSet<String> {
        let Some(own) = codes.stand_in.as_ref() else { return BTreeSet::new() };
        if let Some(digest) = own.digest() {
            return BTreeSet::from([digest.to_ascii_lowercase()]);
        }
        let pools = self.catalog.versions(&own.model.name);
        let files: BTreeSet<String> = pools.iter().flat_map(|pool| pool.members.statements().files).collect();
        if !files.is_empty() {
            return files;
        }
        pools.iter().map(|pool| pool.version.clone()).filter(|version| !version.is_empty()).collect()
    }

    /// The largest batch that a stand-in accepts.
    pub(super) fn stand_in_rows(&self, pool: &Pool) -> NonZeroU16 {
        let own = self.stand_in_of(&pool.codes());
        let takes = own.and_then(|served| served.config).map(|config| config.max_batch_size);
        let most = match takes {
            _ if !pool.batched => 1,
            Some(most) if most > 0 => u16::try_from(most).unwrap_or(u16::MAX),
            _ => u16::MAX,
        };
        NonZeroU16::new(most).unwrap_or(NonZeroU16::MIN)
    }

    pub(super) fn stand_in_standing(&self, pool: &Pool) -> Option<StandInStanding> {
        let codes = pool.codes();
        let model = codes.stand_in.as_ref()?.model.name.clone();
        let reading = self.driver.reading(pool.id)?;
        let served = self.stand_in_of(&codes).is_some();
        Some(StandInStanding {
            model,
            served,
            cost: reading.stand_in_cost.filter(|_| served),
            agreement: reading.agreement,
            withheld: reading.withheld,
        })
    }

    /// The name of the pool's stand-in, and whether an instance serves it.
    pub(super) fn stand_in_presence(&self, pool: &Pool) -> Option<(String, bool)> {
        let codes = pool.codes();
        let name = codes.stand_in.as_ref()?.model.name.clone();
        Some((name, self.stand_in_of(&codes).is_some()))
    }

    /// Checks a new model against the models that it stands in for.
    pub(super) fn stand_in_came(&self, newcomer: &Pool) {
        for pool in self.catalog.all() {
            let named = self.settings.lock().of(&pool.model.name).stand_in.model.clone();
            let stands_in = |codes: &Codes| {
                codes.stand_in.as_ref().is_some_and(|known| known.model.name == newcomer.model.name)
            };
            if named.is_some_and(|name| name == newcomer.model.name) || stands_in(&pool.codes()) {
                self.apply_settings(&pool);
            }
        }
    }
}
