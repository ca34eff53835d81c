//! Forgetting finished executions, with their logs.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Duration;

use tidemill_core::ExecutionId;
use tidemill_ledger::retention::to_forget;

use crate::adapter;
use crate::hub::{Hub, HubError};

/// How often the bounds are looked at, over all processes.
const LOOK_EVERY: Duration = Duration::from_secs(10 * 60);
/// Executions that are forgotten in one transaction, so that nobody waits long for it.
const FORGET_AT_ONCE: usize = 200;

impl Hub {
    /// Forgets executions that are past the bounds. Gives those that were forgotten.
    ///
    /// # Errors
    /// If the record cannot be read or changed.
    pub async fn retain(&self) -> Result<Vec<ExecutionId>, HubError> {
        let inner = self.inner();
        let kept = inner.store.kept().await.map_err(HubError::Store)?;
        let ids = to_forget(&inner.retention, adapter::now(), &kept);
        let mut gone = Vec::new();
        for part in ids.chunks(FORGET_AT_ONCE) {
            let forgotten = inner.store.forget(part.to_vec()).await;
            let forgotten = forgotten.map_err(HubError::Store)?;
            for object in &forgotten.log_objects {
                inner.logs.remove_object(object);
            }
            for id in &forgotten.executions {
                inner.logs.discard(*id);
            }
            gone.extend(forgotten.executions);
        }
        Ok(gone)
    }

    /// The same, with a whole sweep before it, if no process has done so for a while.
    ///
    /// # Errors
    /// If the record cannot be read or changed.
    pub async fn retain_if_due(&self) -> Result<Vec<ExecutionId>, HubError> {
        let mark = self.state_dir().path().join("retained");
        if is_recent(&mark) {
            return Ok(Vec::new());
        }
        // Without the mark it is only done more often.
        File::create(&mark).ok();
        self.sweep().await?;
        self.retain().await
    }
}

fn is_recent(mark: &Path) -> bool {
    let age = |mark: &Path| -> io::Result<Duration> {
        let modified = fs::metadata(mark)?.modified()?;
        modified.elapsed().map_err(io::Error::other)
    };
    age(mark).is_ok_and(|age| age < LOOK_EVERY)
}
