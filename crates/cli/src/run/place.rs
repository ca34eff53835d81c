//! Everything that a local run needs, started side by side: the record, the launcher of sandboxes,
//! the view of this machine, the runner.

use std::env;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidemill_core::RunnerId;
use tidemill_core::job::Network;
use tidemill_hub::{Hub, HubError, StateDir};
use tidemill_image::{ArchiveOwners, CacheBounds, HostView, TreeStore};
use tidemill_registry::Resolved;
use tidemill_runner::{Capacity, LocalImages, LocalRunner, REPORT_WAITS, RunnerConfig};
use tidemill_sandbox::{Identity, Launcher, LauncherConfig, LauncherError};

use super::local_hub::LocalHub;
use crate::args::GlobalArgs;
use crate::cache::bounds;
use crate::failure::{Failure, FailureKind};
use crate::oci::{Preparing, StoredImages};
use crate::session;
use crate::state_dir::state_dir;
use crate::unpacker::NamespaceUnpacker;

/// A local run has one job.
const SLOTS: NonZeroU32 = NonZeroU32::MIN;

/// Where a job is recorded and run.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) hub: Hub,
    pub(crate) runner: LocalRunner,
}

/// Opens it, for a job whose images are still to be fetched in this time.
pub(crate) async fn open(
    host: HostView,
    network: Network,
    pending: Vec<Resolved>,
    preparing: Preparing,
    global: &GlobalArgs,
) -> Result<Place, Failure> {
    let state_dir = state_dir(global.state_dir.as_deref())?;
    let bounds = bounds(global)?;
    // First of all: what is no state directory is left alone, and one that is made is closed to others,
    // before the launcher puts its note there.
    StateDir::open(&state_dir)
        .map_err(HubError::StateDir)
        .map_err(session::failed)?;
    // The launcher needs a few milliseconds, and so does the database.
    let launching = {
        let state_dir = state_dir.clone();
        tokio::task::spawn_blocking(move || launch(state_dir, vec![network]))
    };
    let opened = session::open(global).await;
    let launched = launching.await.map_err(|error| {
        Failure::new(FailureKind::Internal, "the start of the launcher panicked").because(&error)
    })?;
    let hub = opened?;
    let runner = match launched.and_then(|launcher| {
        let host = host.with_state_dir(&state_dir);
        let images = StoredImages::new(&state_dir, pending).within(preparing);
        runner(&hub, launcher, (host, images), preparing, bounds)
    }) {
        Ok(runner) => runner,
        Err(failure) => {
            hub.close().await;
            return Err(failure);
        }
    };
    Ok(Place { hub, runner })
}

fn runner(
    hub: &Hub,
    launcher: Launcher,
    (host, images): (HostView, StoredImages),
    preparing: Preparing,
    bounds: Option<CacheBounds>,
) -> Result<LocalRunner, Failure> {
    let base = hub.state_dir().trees();
    let mut trees = tree_store(&base, bounds)?;
    let has_sub_ids = matches!(launcher.identity(), Identity::Ranged { .. });
    if has_sub_ids {
        trees = trees.with_owners(ArchiveOwners::SubIds);
    }
    let scratch = hub.state_dir().sandboxes();
    let mut images = LocalImages::new(host, trees)
        .with_oci(Arc::new(images))
        .with_commands(Arc::new(launcher.clone()), scratch.clone());
    if has_sub_ids {
        images = images.with_unpacker(Arc::new(NamespaceUnpacker::new(
            launcher.clone(),
            base,
            bounds,
        )));
    }
    Ok(LocalRunner::start(RunnerConfig {
        runner: RunnerId(machine()),
        capacity: Capacity::slots(SLOTS),
        prepare_timeout: Some(preparing.left()),
        report_waits: REPORT_WAITS.to_vec(),
        logs: hub.state_dir().logs(),
        scratch: Some(scratch),
        hub: Arc::new(LocalHub(hub.clone())),
        sandboxes: Arc::new(launcher),
        images: Arc::new(images),
    }))
}

/// Who builds trees among the caller's sub-ids, for those who run nothing; nobody where there are none.
pub(crate) fn namespace_unpacker(
    state_dir: &Path,
    bounds: Option<CacheBounds>,
) -> Option<NamespaceUnpacker> {
    if rustix::process::geteuid().is_root() {
        return None;
    }
    let opened = StateDir::open(state_dir).ok()?;
    let launcher = launch(state_dir.to_owned(), Vec::new()).ok()?;
    matches!(launcher.identity(), Identity::Ranged { .. })
        .then(|| NamespaceUnpacker::new(launcher, opened.trees(), bounds))
}

pub(crate) fn tree_store(path: &Path, bounds: Option<CacheBounds>) -> Result<TreeStore, Failure> {
    let store = TreeStore::open(path).map_err(|error| {
        Failure::new(
            FailureKind::State,
            "the store of unpacked layers cannot be used",
        )
        .because(&error)
        .hint("the state directory must be writable and have space left: `tidemill cache prune`")
    })?;
    Ok(match bounds {
        Some(bounds) => store.with_bounds(bounds),
        None => store,
    })
}

fn launch(state_dir: PathBuf, first: Vec<Network>) -> Result<Launcher, Failure> {
    let exe = env::current_exe().map_err(|error| {
        Failure::new(FailureKind::Unable, "cannot find this program's own file").because(&error)
    })?;
    let config = LauncherConfig {
        state_dir,
        exe,
        first,
    };
    Launcher::start(&config).map_err(|error| {
        let kind = match error {
            LauncherError::Unable { .. } => FailureKind::Unable,
            LauncherError::Start { .. } | LauncherError::NoAnswer { .. } => FailureKind::Internal,
        };
        let failure = Failure::new(kind, error.to_string());
        let failure = match std::error::Error::source(&error) {
            Some(source) => failure.because(source),
            None => failure,
        };
        failure.hint("`tidemill doctor` says what this machine lacks, and how to change it")
    })
}

/// The name of this machine.
fn machine() -> String {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    if name.is_empty() {
        "localhost".to_owned()
    } else {
        name
    }
}
