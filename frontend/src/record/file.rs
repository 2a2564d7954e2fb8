//! Recording to a file for as long as the frontend serves.

use std::path::{Path, PathBuf};
use std::time::Duration;

use parm_protocol::StableCode;
use parm_transport::FileFault;
use tokio::fs;
use tokio::io::{AsyncWriteExt, BufWriter};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use super::Recording;
use crate::error::Error;
use crate::serve::Frontend;

/// Interval at which the file gets the lines so far: a process that is killed loses no more.
const FLUSH: Duration = Duration::from_secs(1);

/// A recording that is being written to a file.
pub struct Writing {
    path: PathBuf,
    stop: oneshot::Sender<()>,
    written: JoinHandle<std::io::Result<()>>,
}

impl Frontend {
    /// Records to the configured file; `None` if there is none. Must be called inside a runtime.
    pub async fn record_to_file(&self) -> Result<Option<Writing>, Error> {
        let config = &self.core.config.recording;
        let Some(path) = &config.file else { return Ok(None) };
        let failed =
            |error: std::io::Error| Error::Recording { path: path.clone(), reason: error.to_string() };
        let file = open(path).await.map_err(failed)?;
        let (stop, stopped) = oneshot::channel();
        let sheet = Sheet { file: BufWriter::new(file), left: config.max_mb.get().saturating_mul(1 << 20) };
        let (recording, core) = (self.record()?, self.core.clone());
        let written = tokio::spawn(async move {
            let _line = core.driver.lifelines.hold("the recording");
            let written = sheet.fill(recording, stopped).await;
            if let Err(error) = &written {
                *core.driver.recording_stopped.lock() = Some(error.to_string());
                // Logged now, so that the operator does not learn of it only at shutdown.
                tracing::error!(code = %parm_protocol::StableCode::RecordingStopped, %error, "recording stopped: free disk space, and restart to record again");
            }
            written
        });
        Ok(Some(Writing { path: path.clone(), stop, written }))
    }
}

impl Frontend {
    /// Returns the faults of the files that it writes.
    pub(crate) fn unwritten(&self) -> Vec<FileFault> {
        let fault = |code, text| FileFault { code, text, fails: true };
        let stopped = self.core.driver.recording_stopped.lock().clone();
        let stopped =
            stopped.map(|error| fault(StableCode::RecordingStopped, format!("recording stopped: {error}")));
        let captures = self.core.sampler.as_ref().is_some_and(|sampler| sampler.has_stopped());
        let captures =
            captures.then(|| fault(StableCode::CaptureStopped, "query capture stopped".to_owned()));
        stopped.into_iter().chain(captures).collect()
    }
}

impl Writing {
    /// Ends the recording and completes the file.
    pub async fn end(self) -> Result<(), Error> {
        let Self { path, stop, written } = self;
        // The recording may have ended by itself at its limit.
        let _ = stop.send(());
        let written = written.await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        written.map_err(|error| Error::Recording { path, reason: error.to_string() })
    }
}

/// Keeps the previous recording: a restart must not overwrite it.
async fn open(path: &Path) -> std::io::Result<fs::File> {
    if fs::try_exists(path).await? {
        let mut old = path.as_os_str().to_owned();
        old.push(".old");
        fs::rename(path, old).await?;
    }
    fs::File::create_new(path).await
}

/// A file with a bound on its size.
struct Sheet {
    file: BufWriter<fs::File>,
    left: u64,
}

impl Sheet {
    async fn fill(
        mut self,
        mut recording: Recording,
        mut stopped: oneshot::Receiver<()>,
    ) -> std::io::Result<()> {
        let mut text = Vec::new();
        let mut flushes = tokio::time::interval(FLUSH);
        flushes.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let mut is_due = false;
            tokio::select! {
                biased;
                _ = &mut stopped => break,
                _ = flushes.tick() => is_due = true,
                () = recording.next(&mut text) => {}
            }
            if text.len() as u64 > self.left {
                tracing::warn!(code = %parm_protocol::StableCode::RecordingStopped, "recording stopped: it reached recording.max_mb");
                return self.close().await;
            }
            self.left -= text.len() as u64;
            self.file.write_all(&text).await?;
            text.clear();
            if is_due {
                self.file.flush().await?;
            }
        }
        recording.end(&mut text);
        self.file.write_all(&text).await?;
        self.close().await
    }

    async fn close(mut self) -> std::io::Result<()> {
        self.file.flush().await?;
        self.file.into_inner().sync_all().await
    }
}
