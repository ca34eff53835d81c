//! The hub core of this process, opened on the state directory.

use std::path::PathBuf;
use std::sync::Arc;

use tidemill_core::ExecutionId;
use tidemill_hub::{Hub, HubConfig, HubError, Remnants, adapter};
use tidemill_ledger::{ListFilter, Snapshot};
use tidemill_store::{ListCursor, OpenError, Resolve, StoreError, WriteError};
use tokio::runtime::{Builder, Runtime};

use crate::args::GlobalArgs;
use crate::failure::{Failure, FailureKind};
use crate::retention::retention;
use crate::state_dir::state_dir;
use crate::text::table::{short_id, table};
use crate::ui::{Ui, plain};

/// The width that the executions that could be meant are cut to, where they are listed.
const CHOICES_WIDTH: usize = 100;
/// The word that means the newest execution.
const LAST: &str = "last";

/// The runtime that commands wait on. One thread: the work is done by the disk, the sandbox and the
/// pools of the libraries.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| {
            Failure::new(FailureKind::Unable, "cannot start the runtime").because(&error)
        })
}

/// Opens the record of executions.
pub(crate) async fn open(global: &GlobalArgs) -> Result<Hub, Failure> {
    let state_dir = state_dir(global.state_dir.as_deref())?;
    let config = HubConfig {
        remnants: Arc::new(SandboxRemnants {
            state_dir: state_dir.clone(),
        }),
        state_dir,
        retention: retention()?,
    };
    Hub::open(config).await.map_err(failed)
}

/// What sandboxes of dead processes left on this host.
#[derive(Debug)]
struct SandboxRemnants {
    state_dir: PathBuf,
}

impl Remnants for SandboxRemnants {
    fn remove(&self, sandbox: &str) {
        for note in tidemill_sandbox::sweep(&self.state_dir, sandbox) {
            tracing::info!(sandbox, ?note, "left-overs swept");
        }
    }
}

/// Finds the execution that the user means: a whole id, its beginning or end, the beginning of what `ps`
/// shows of it, `last`, or a name. An id goes before a name, and of several that have the name the newest
/// is meant, which is said.
pub(crate) async fn find(hub: &Hub, text: &str, ui: &Ui) -> Result<ExecutionId, Failure> {
    if text == LAST {
        let page = hub
            .list(&ListFilter::default(), 1, None)
            .await
            .map_err(failed)?;
        return page
            .executions
            .first()
            .map(|newest| newest.id)
            .ok_or_else(|| {
                Failure::new(FailureKind::Usage, "there is no execution yet")
                    .hint("run something: tidemill run -- true")
            });
    }
    let shown = text.escape_debug();
    let resolved = hub.resolve(text).await.map_err(failed)?;
    if !matches!(resolved, Resolve::Found(_))
        && let Some(id) = named(hub, text, ui).await?
    {
        return Ok(id);
    }
    match resolved {
        Resolve::Found(id) => Ok(id),
        Resolve::Unknown => Err(Failure::new(
            FailureKind::Usage,
            format!("there is no execution `{shown}`"),
        )
        .hint("`tidemill ps` lists them with their names; the newest one is `last`")),
        Resolve::Ambiguous(ids) => {
            let mut failure = Failure::new(
                FailureKind::Usage,
                format!("several executions are called `{shown}`"),
            )
            .hint("write more of it, or what stands below ID; the newest of them are:");
            let mut meant = Vec::new();
            for id in ids {
                meant.push(hub.snapshot(id).await.map_err(failed)?);
            }
            let table = table(&meant, adapter::now(), Some(CHOICES_WIDTH));
            failure.choices = table.lines().map(str::to_owned).collect();
            Err(failure)
        }
    }
}

/// The newest execution with exactly this name.
async fn named(hub: &Hub, name: &str, ui: &Ui) -> Result<Option<ExecutionId>, Failure> {
    let filter = ListFilter {
        name: Some(name.to_owned()),
        ..ListFilter::default()
    };
    let executions = newest(hub, &filter, 2, None).await?.0;
    let Some(first) = executions.first() else {
        return Ok(None);
    };
    if executions.len() > 1 {
        ui.note(&format!(
            "several executions have the name `{}`; this is the newest, {}",
            plain(name),
            short_id(first)
        ));
    }
    Ok(Some(first.id))
}

/// The newest executions behind a place, page by page; and whether there are more.
pub(crate) async fn newest(
    hub: &Hub,
    filter: &ListFilter,
    limit: usize,
    mut after: Option<ListCursor>,
) -> Result<(Vec<Snapshot>, bool), Failure> {
    let mut executions = Vec::new();
    loop {
        let page = hub
            .list(filter, limit - executions.len(), after)
            .await
            .map_err(failed)?;
        executions.extend(page.executions);
        after = page.next;
        if after.is_none() || executions.len() >= limit {
            return Ok((executions, after.is_some()));
        }
    }
}

/// What a failure of the hub means to the user.
pub(crate) fn failed(error: HubError) -> Failure {
    match &error {
        HubError::Unknown { id } => {
            Failure::new(FailureKind::Usage, format!("there is no execution {id}"))
                .hint("`tidemill ps` lists them; the newest one is `last`")
        }
        HubError::StateDir(cause) => state(&error).hint(cause.hint()),
        HubError::Open(cause) => state(&error).hint(open_hint(cause)),
        HubError::Store(cause)
        | HubError::Write {
            source: WriteError::Store(cause),
            ..
        } => state(&error).hint(store_hint(cause)),
        HubError::Owner(_) | HubError::Logs(_) => {
            state(&error).hint("the state directory must be writable and have space left")
        }
        HubError::Write {
            source: WriteError::Refused(_),
            ..
        }
        | HubError::Closed
        | HubError::Panicked(_) => chain(FailureKind::Internal, &error),
    }
}

fn state(error: &HubError) -> Failure {
    chain(FailureKind::State, error)
}

/// The error itself is the message, and its sources are the causes.
fn chain(kind: FailureKind, error: &HubError) -> Failure {
    let failure = Failure::new(kind, error.to_string());
    match std::error::Error::source(error) {
        Some(source) => failure.because(source),
        None => failure,
    }
}

const fn open_hint(error: &OpenError) -> &'static str {
    match error {
        OpenError::NoDirectory { .. } | OpenError::ReadOnly { .. } => {
            "name a directory that you may write with --state-dir or TIDEMILL_STATE"
        }
        OpenError::Full { .. } => "make room on that disk, or use another one with --state-dir",
        OpenError::Newer { .. } => {
            "use the newer tidemill, or another state directory with --state-dir"
        }
        OpenError::Foreign { .. } | OpenError::NotADatabase { .. } => {
            "name another directory with --state-dir"
        }
        OpenError::Damaged { .. } => {
            "move the state directory away and start with a new one; the old one is left as it is"
        }
        OpenError::Locked { .. } => "try again; if it lasts, look for a stopped tidemill process",
        OpenError::Database { .. } => "look at the cause above",
    }
}

const fn store_hint(error: &StoreError) -> &'static str {
    match error {
        StoreError::Full => "make room on that disk, or use another one with --state-dir",
        StoreError::ReadOnly => "make the state directory writable, or use another --state-dir",
        StoreError::Locked { .. } => "try again; if it lasts, look for a stopped tidemill process",
        StoreError::Damaged { .. } => {
            "move the state directory away and start with a new one; the old one is left as it is"
        }
        StoreError::Panicked | StoreError::Closed => "this is a defect in tidemill: report it",
        StoreError::Database { .. } => "look at the cause above",
    }
}
