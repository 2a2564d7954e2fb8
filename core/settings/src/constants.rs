//! Carries the constants of dispatch, which no file has, from settings to settings.
//!
//! Constants are fields because tests need other values. A change at run time goes through JSON, which leaves them out: without
//! this it would restore their defaults.

use super::{
    AgreementSettings, BudgetSettings, CodingSettings, DetectionSettings, EjectionSettings, GraceSettings,
    HedgeSettings, ParmPlusSettings, PoolSettings, StandInSettings,
};

impl PoolSettings {
    /// These settings with the constants of others.
    #[must_use]
    pub fn with_constants_of(self, of: &Self) -> Self {
        Self {
            retry_elsewhere: of.retry_elsewhere,
            spare_limit: of.spare_limit,
            coding: coding(self.coding, &of.coding),
            stand_in: stand_in(self.stand_in, &of.stand_in),
            tokens: of.tokens.clone(),
            retry: budget(self.retry, &of.retry),
            hedge: HedgeSettings { budget: budget(self.hedge.budget, &of.hedge.budget), ..self.hedge },
            ejection: EjectionSettings {
                slow_factor: of.ejection.slow_factor,
                slow_answers: of.ejection.slow_answers,
                max_utilisation: of.ejection.max_utilisation,
                backoff_max: of.ejection.backoff_max,
                ..self.ejection
            },
            ..self
        }
    }
}

fn budget(own: BudgetSettings, of: &BudgetSettings) -> BudgetSettings {
    BudgetSettings { burst: of.burst, ..own }
}

fn coding(own: CodingSettings, of: &CodingSettings) -> CodingSettings {
    let parm_plus = ParmPlusSettings {
        partial_groups: of.parm_plus.partial_groups,
        shared_pool: of.parm_plus.shared_pool,
        parities_yield: of.parm_plus.parities_yield,
        ..own.parm_plus
    };
    let detection = DetectionSettings {
        significance: of.detection.significance,
        wrong_share: of.detection.wrong_share,
        max_wait: of.detection.max_wait,
        quarantine: of.detection.quarantine,
        ..own.detection
    };
    let grace = GraceSettings { cold: of.grace.cold, ..own.grace };
    CodingSettings { parm_plus, detection, grace, headroom: of.headroom, ..own }
}

fn stand_in(own: StandInSettings, of: &StandInSettings) -> StandInSettings {
    let agreement = AgreementSettings {
        recovery: of.agreement.recovery,
        window: of.agreement.window,
        significance: of.agreement.significance,
        wrong_share: of.agreement.wrong_share,
        min_samples: of.agreement.min_samples,
        quarantine: of.agreement.quarantine,
        ..own.agreement
    };
    let grace = GraceSettings { cold: of.grace.cold, ..own.grace };
    let late_budget = budget(own.late_budget, &of.late_budget);
    StandInSettings {
        spare_up_to: of.spare_up_to,
        max_rows: of.max_rows,
        agreement,
        grace,
        late_budget,
        ..own
    }
}

#[cfg(test)]
mod tests {
    use std::num::{NonZeroU8, NonZeroU32};
    use std::time::Duration;

    use super::*;
    use crate::{Factor, Fraction};

    /// Settings in which every constant has another value than by default.
    fn unusual() -> PoolSettings {
        let (some, time, few) = (Fraction::percent(33), Duration::from_millis(7), NonZeroU32::MIN);
        let mut own = PoolSettings { retry_elsewhere: time, spare_limit: few, ..PoolSettings::default() };
        (own.retry.burst, own.hedge.budget.burst) = (7, 7);
        own.ejection.backoff_max = time;
        let CodingSettings { parm_plus, detection, grace, headroom, .. } = &mut own.coding;
        (*headroom, detection.quarantine) = (some, time);
        (parm_plus.partial_groups, parm_plus.shared_pool, parm_plus.parities_yield) = (false, false, false);
        (detection.significance, detection.wrong_share, detection.max_wait) = (some, some, time);
        grace.cold = time;
        let StandInSettings { agreement, grace, spare_up_to, max_rows, late_budget, .. } = &mut own.stand_in;
        (agreement.quarantine, late_budget.burst) = (time, 7);
        (agreement.recovery, agreement.significance, agreement.wrong_share) = (some, some, some);
        (agreement.window, agreement.min_samples) = (few, few);
        (grace.cold, *spare_up_to, *max_rows) = (time, some, NonZeroU8::MIN);
        (own.tokens.widen, own.tokens.renew, own.tokens.reservations) = (time, time, NonZeroU8::MIN);
        own.ejection.slow_factor = Factor::percent(700);
        (own.ejection.slow_answers, own.ejection.max_utilisation) = (NonZeroU8::MIN, some);
        own
    }

    #[test]
    fn constants_are_left_out_of_json_and_carried() {
        let own = unusual();
        let written = serde_json::to_value(&own).unwrap();
        assert_eq!(written, serde_json::to_value(PoolSettings::default()).unwrap(), "no constant is written");
        let read: PoolSettings = serde_json::from_value(written).unwrap();
        assert_eq!(read, PoolSettings::default());
        assert_eq!(read.with_constants_of(&own), own);
    }
}
