//! Names settings that were removed, so that an error says why instead of "unknown field".
//!
//! A setting that is gone from the structs is rejected wherever it is read. Its reader asks [`removed`] for the text.

/// Paths of the removed settings within a model's settings, and why each is gone.
const REMOVED: &[(&str, &str)] = &[
    ("hedge.median_factor", "measured run times decide when a job is late"),
    ("ejection.slow_factor", "slow instances get less work, by their measured speed"),
    ("ejection.slow_start_ms", "workers warm up before they join"),
    ("retry", "a fifth of the jobs may be retries"),
    ("hedge.budget.burst", "the ratio alone bounds the cost"),
    ("ejection.failures", "three failures in a row eject an instance"),
    ("ejection.least_in_service", "three of ten instances stay in service"),
    ("ejection.backoff_max_ms", "a try every 2 s costs nothing"),
    ("ejection.backoff_min_ms", "the first try follows after 250 ms"),
    ("batch.max_delay_us", "waiting for a fuller batch gained nothing"),
    ("ahead_us", "an instance gets its next job when it has room; give one of very fast models two slots"),
    ("coding.max_age_ms", "a group is coded after 20 ms"),
    ("coding.headroom", "one in twenty instances stays idle"),
    ("coding.detection", "stand-ins find wrong answers at no extra work"),
    ("coding.grace.of", "measured run times decide when a query is late"),
    ("coding.unsure", "a copy starts when it pays"),
    ("default_priority", "queries without one have 128: send parm-priority or the parameter priority"),
    ("replicate", "each batch runs on two instances"),
    ("weight", "only shares have weights: list the model in one"),
    ("stand_in.cost", "it is measured"),
    ("stand_in.spare", "early stand-ins were a quarter more work"),
    ("stand_in.hedge", "a copy starts where no stand-in can answer sooner"),
    ("stand_in.late", "without stand-ins of late queries, policy hedge does the same"),
    ("stand_in.late_budget", "stand_in.bound limits the answers, and so the runs"),
    ("stand_in.grace", "stand_in.late_factor says when an answer is given"),
    ("stand_in.unsure", "a copy starts when it pays"),
    ("stand_in.bound_window", "the bound holds in any minute"),
    ("stand_in.agreement.quarantine_ms", "suspects return after a minute"),
    ("tokens", "workers that several frontends share say themselves who is next"),
];

/// The error about a setting of a model that was removed, given its whole path; `None` for other settings.
pub fn removed(path: &str) -> Option<String> {
    let ends_with =
        |name: &str| path.strip_suffix(name).is_some_and(|left| left.is_empty() || left.ends_with('.'));
    let (_, why) = REMOVED.iter().find(|(name, _)| ends_with(name))?;
    Some(was_removed(why))
}

/// The error about a removed setting, given the reason.
pub fn was_removed(why: &str) -> String {
    format!("was removed: {why}: delete it, nothing replaces it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PoolSettings;

    #[test]
    fn removed_setting_is_found_by_the_end_of_its_path() {
        for path in
            ["hedge.median_factor", "frontend.dispatch.hedge.median_factor", "ejection.slow_factor", "tokens"]
        {
            assert!(removed(path).is_some(), "{path}");
        }
        for path in
            ["median_factor", "other_hedge.median_factor", "hedge.median_factor.x", "hedge.min_delay_us"]
        {
            assert_eq!(removed(path), None, "{path}");
        }
    }

    #[test]
    fn struct_has_no_field_of_a_removed_name() {
        for (path, _) in REMOVED {
            let mut settings = serde_json::json!({});
            path.split('.').fold(&mut settings, |part, name| &mut part[name]);
            let error = serde_json::from_value::<PoolSettings>(settings).unwrap_err().to_string();
            assert!(error.contains("unknown field"), "{path}: {error}");
        }
    }
}
