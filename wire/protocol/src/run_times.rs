//! Measured run times of a model, a parameter of its configuration.
//!
//! The server measures them when it loads the model. They are in Triton's form, so they travel wherever configurations
//! do.

use std::time::Duration;

use crate::{ModelConfig, ModelParameter};

/// The parameter: microseconds of a run of 1, 2, 4 and 8 rows, separated by commas; fewer if larger runs took too long.
const NAME: &str = "parm_run_us";

/// The parameter: the processor on which the times were measured.
const PROCESSOR: &str = "parm_processor";

/// Rows of the measured runs.
pub const MEASURED_ROWS: [usize; 4] = [1, 2, 4, 8];

impl ModelConfig {
    /// Sets the run times of [`MEASURED_ROWS`].
    pub fn set_run_times(&mut self, times: &[Duration]) {
        if times.is_empty() {
            self.parameters.remove(NAME);
            return;
        }
        let micros: Vec<String> = times.iter().map(|time| time.as_micros().max(1).to_string()).collect();
        self.parameters.insert(NAME.into(), ModelParameter { string_value: micros.join(",") });
    }

    /// Sets the processor on which the run times were measured.
    pub fn set_processor(&mut self, processor: &str) {
        self.parameters.insert(PROCESSOR.into(), ModelParameter { string_value: processor.into() });
    }

    /// The processor on which the server measured the run times.
    pub fn processor(&self) -> Option<&str> {
        self.parameters.get(PROCESSOR).map(|parameter| &*parameter.string_value)
    }

    /// The run times of [`MEASURED_ROWS`] that the server reports; invalid values are ignored.
    pub fn run_times(&self) -> Vec<Duration> {
        let Some(said) = self.parameters.get(NAME) else { return Vec::new() };
        let times = said.string_value.split(',').take(MEASURED_ROWS.len());
        let times = times.map(|micros| micros.trim().parse().ok().filter(|micros| *micros > 0));
        let times: Option<Vec<u64>> = times.collect();
        times.unwrap_or_default().into_iter().map(Duration::from_micros).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_times_are_read_as_they_were_set() {
        let mut config = ModelConfig::default();
        assert_eq!(config.run_times(), []);
        let times = [900, 1500, 2800, 5600].map(Duration::from_micros);
        config.set_run_times(&times);
        assert_eq!(config.run_times(), times);
        config.set_run_times(&times[..1]);
        assert_eq!(config.run_times(), times[..1]);
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<ModelConfig>(&text).unwrap(), config);
    }

    #[test]
    fn invalid_run_times_are_ignored_and_the_model_is_kept() {
        for parameters in [
            r#"{"parm_run_us": {"string_value": "fast"}}"#,
            r#"{"parm_run_us": {"string_value": "5,0"}}"#,
            r#"{"parm_run_us": 7, "other": [1]}"#,
            "null",
        ] {
            let text = format!(
                r#"{{"name": "m", "platform": "p", "max_batch_size": 8, "input": [], "output": [], "parameters": {parameters}}}"#
            );
            let config: ModelConfig = serde_json::from_str(&text).unwrap();
            assert_eq!(config.run_times(), [], "{parameters}");
        }
    }
}
