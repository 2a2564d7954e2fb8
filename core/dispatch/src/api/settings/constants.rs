//! Carries the constants of dispatch, which no file has, from settings to settings.
//!
//! Constants are fields because tests need other values. A change at run time goes through JSON, which leaves them out: without
//! this it would restore their defaults.

use super::{
    AgreementSettings, CodingSettings, DetectionSettings, EjectionSettings, GraceSettings, ParmPlusSettings,
    PoolSettings, StandInSettings, TokenSettings,
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
            tokens: TokenSettings { widen: of.tokens.widen, renew: of.tokens.renew, ..self.tokens },
            ejection: EjectionSettings {
                slow_factor: of.ejection.slow_factor,
                slow_answers: of.ejection.slow_answers,
                max_utilisation: of.ejection.max_utilisation,
                ..self.ejection
            },
            ..self
        }
    }
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
        ..own.detection
    };
    let grace = GraceSettings { cold: of.grace.cold, ..own.grace };
    CodingSettings { parm_plus, detection, grace, ..own }
}

fn stand_in(own: StandInSettings, of: &StandInSettings) -> StandInSettings {
    let agreement = AgreementSettings {
        recovery: of.agreement.recovery,
        window: of.agreement.window,
        significance: of.agreement.significance,
        wrong_share: of.agreement.wrong_share,
        min_samples: of.agreement.min_samples,
        ..own.agreement
    };
    let grace = GraceSettings { cold: of.grace.cold, ..own.grace };
    StandInSettings { spare_up_to: of.spare_up_to, max_rows: of.max_rows, agreement, grace, ..own }
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
        let CodingSettings { parm_plus, detection, grace, .. } = &mut own.coding;
        (parm_plus.partial_groups, parm_plus.shared_pool, parm_plus.parities_yield) = (false, false, false);
        (detection.significance, detection.wrong_share, detection.max_wait) = (some, some, time);
        grace.cold = time;
        let StandInSettings { agreement, grace, spare_up_to, max_rows, .. } = &mut own.stand_in;
        (agreement.recovery, agreement.significance, agreement.wrong_share) = (some, some, some);
        (agreement.window, agreement.min_samples) = (few, few);
        (grace.cold, *spare_up_to, *max_rows) = (time, some, NonZeroU8::MIN);
        (own.tokens.widen, own.tokens.renew) = (time, time);
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
