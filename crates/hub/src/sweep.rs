//! Cleaning up after processes that died: their executions are recorded as lost, what their
//! sandboxes left is removed, and their logs are sealed as far as they go.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use tidemill_core::{ExecutionId, Reason, ReasonCode};
use tidemill_ledger::loss::{Retry, runner_lost};
use tidemill_ledger::{Decision, Snapshot};
use tidemill_log::spool;
use tidemill_store::Unfinished;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::adapter;
use crate::hub::{Hub, HubError};
use crate::owner::{self, Life, OwnerFile};

/// A log of this size is sealed in a fraction of a second.
const QUICK_BYTES_MAX: u64 = 16 << 20;
/// How soon somebody who waits learns that a process is dead.
const SWEEP_AGAIN: Duration = Duration::from_secs(1);

/// Removes what attempts left on the host: scratch directories, control groups.
pub trait Remnants: Send + Sync + fmt::Debug {
    /// Removes what the sandbox with this name left, if anything. Blocks.
    fn remove(&self, sandbox: &str);
}

/// For hubs on whose host no sandbox runs.
#[derive(Debug, Clone, Copy)]
pub struct NoRemnants;

impl Remnants for NoRemnants {
    fn remove(&self, _sandbox: &str) {}
}

/// What a sweep did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swept {
    /// Executions whose process was dead.
    pub lost: Vec<ExecutionId>,
    /// Executions that had ended and whose log was sealed now.
    pub sealed: Vec<ExecutionId>,
}

impl Hub {
    /// Cleans up after dead processes. Any number of processes may do so at once.
    ///
    /// # Errors
    /// If the record cannot be read or written.
    pub async fn sweep(&self) -> Result<Swept, HubError> {
        self.sweep_logs_of(u64::MAX).await
    }

    /// The same, for when somebody waits: larger logs stay as they are, readable, until a sweep that
    /// has time.
    pub(crate) async fn sweep_quickly(&self) -> Result<Swept, HubError> {
        self.sweep_logs_of(QUICK_BYTES_MAX).await
    }

    /// Cleans up again and again until the other end of the channel is gone, for whoever waits for what
    /// another process runs: if that was killed, nobody else may come and say so. Ends what it has
    /// begun. Cancel safe.
    pub async fn sweep_until(&self, mut over: oneshot::Receiver<Infallible>) {
        while timeout(SWEEP_AGAIN, &mut over).await.is_err() {
            if let Err(error) = self.sweep_quickly().await {
                // Whoever waits meets it too, and tells it.
                tracing::debug!(%error, "not cleaned up after dead processes");
            }
        }
    }

    async fn sweep_logs_of(&self, bytes_max: u64) -> Result<Swept, HubError> {
        let mut swept = Swept::default();
        let unfinished = self.inner().store.unfinished().await;
        let unfinished = unfinished.map_err(HubError::Store)?;
        let mut by_owner: BTreeMap<String, Vec<Unfinished>> = BTreeMap::new();
        for name in owner::names(&self.state_dir().owners()).map_err(HubError::Owner)? {
            by_owner.entry(name).or_default();
        }
        for execution in unfinished {
            if let Some(owner) = execution.owner.clone() {
                by_owner.entry(owner).or_default().push(execution);
            }
        }
        for (name, executions) in by_owner {
            if self.is_own(&name) {
                continue;
            }
            let probed = OwnerFile::probe(&self.state_dir().owners(), &name);
            let Life::Dead(dead) = probed.map_err(HubError::Owner)? else {
                continue;
            };
            for execution in executions {
                if self.lose(execution.id).await? {
                    swept.lost.push(execution.id);
                }
            }
            dead.remove();
        }
        self.remove_leavings().await?;
        for id in self.spooled() {
            let is_small = self.inner().logs.spooled_bytes(id) <= bytes_max;
            if is_small && self.seal_if_final(id).await? {
                swept.sealed.push(id);
            }
        }
        Ok(swept)
    }

    /// Records that the process of an execution is gone. The caller holds the dead owner's lock.
    async fn lose(&self, id: ExecutionId) -> Result<bool, HubError> {
        if let Some(attempt) = self.snapshot(id).await?.attempt {
            // The record follows the fact: nothing of the attempt is left when it says so.
            self.remove_remnant(id.sandbox_name(attempt)).await?;
        }
        let written = self
            .inner()
            .store
            .transact(id, adapter::now(), lose_decision)
            .await
            .map_err(|source| HubError::Write { id, source })?;
        if written.answer {
            tracing::info!(execution = %id, "execution lost");
        }
        Ok(written.answer)
    }

    async fn remove_remnant(&self, sandbox: String) -> Result<(), HubError> {
        let remnants = self.inner().remnants.clone();
        tokio::task::spawn_blocking(move || remnants.remove(&sandbox))
            .await
            .map_err(HubError::Panicked)
    }

    /// Removes sandboxes on disk whose execution has ended or is forgotten: their process died
    /// between recording the end and removing them.
    async fn remove_leavings(&self) -> Result<(), HubError> {
        for name in names_in(&self.state_dir().sandboxes()) {
            let Some((id, _)) = ExecutionId::from_sandbox_name(&name) else {
                continue;
            };
            let snapshot = self.inner().store.snapshot(id).await;
            let snapshot = snapshot.map_err(HubError::Store)?;
            if snapshot.is_none_or(|snapshot| snapshot.is_final()) {
                self.remove_remnant(name).await?;
            }
        }
        Ok(())
    }

    /// Executions whose log is not sealed. What was left in the middle of removing goes.
    fn spooled(&self) -> Vec<ExecutionId> {
        let logs = self.state_dir().logs();
        let names = names_in(&logs);
        for name in &names {
            if Path::new(name)
                .extension()
                .is_some_and(|it| it == spool::GONE)
            {
                // Somebody else may be removing it, too.
                fs::remove_dir_all(logs.join(name)).ok();
            }
        }
        names.iter().filter_map(|name| name.parse().ok()).collect()
    }

    async fn seal_if_final(&self, id: ExecutionId) -> Result<bool, HubError> {
        let snapshot = self.inner().store.snapshot(id).await;
        match snapshot.map_err(HubError::Store)? {
            Some(snapshot) if !snapshot.is_final() => Ok(false),
            // A log that cannot be sealed stays as it is, and readable.
            Some(_) => Ok(self.seal_log(id).await.unwrap_or_else(|error| {
                tracing::warn!(execution = %id, %error, "log not sealed");
                false
            })),
            None => {
                self.inner().logs.discard(id);
                Ok(false)
            }
        }
    }
}

fn lose_decision(snapshot: Option<&Snapshot>) -> Decision<bool> {
    let reason = Reason::new(
        ReasonCode::Lost,
        "the process that ran it is gone, and nothing is known of its end",
    )
    .with_hint("run it again; its log is kept as far as it was written");
    let event = snapshot.and_then(|snapshot| runner_lost(snapshot, reason, Retry::Exhausted));
    let lost = event.is_some();
    Decision::events(event.into_iter().collect(), lost)
}

/// The names in a directory; none if it is not there.
fn names_in(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    entries
        .filter_map(Result::ok)
        .filter_map(|entry: fs::DirEntry| entry.file_name().into_string().ok())
        .collect()
}
