//! Where the work on trees is done. Root does it itself. Of an ordinary user with sub-ids it is done by this
//! binary again, started by a launcher in the user namespace where the sub-ids are at hand: elsewhere trees
//! can neither be read nor removed. Looking around needs no such thing.

use std::collections::HashSet;
use std::env;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use tidemill_core::Digest;
use tidemill_image::{
    ArchiveOwners, CacheBounds, Inventory, PruneWish, Pruned, TreeStore, TreeStoreError, Verified,
};
use tidemill_runner::chain;
use tidemill_sandbox::{Identity, Launcher, LauncherConfig};

use super::failed;
use crate::failure::{Failure, FailureKind};
use crate::unpacker::tell;

/// The hidden first argument; the store's directory and the order follow.
const ARGUMENT: &str = "work-on-trees";

/// What is to be done.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Order {
    Prune(PruneWish),
    Verify,
    /// Remove these trees.
    Remove(HashSet<Digest>),
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Pruned(Pruned),
    Verified(Verified),
    /// It could not be done.
    Failed(String),
}

/// Where the trees are, and how large they may grow.
#[derive(Debug)]
pub(super) struct Place {
    state_dir: PathBuf,
    bounds: Option<CacheBounds>,
}

impl Place {
    pub(super) fn new(state_dir: &Path, bounds: Option<CacheBounds>) -> Self {
        Self {
            state_dir: state_dir.to_owned(),
            bounds,
        }
    }

    fn trees(&self) -> PathBuf {
        self.state_dir.join("trees")
    }

    /// True if anything was ever unpacked.
    pub(super) fn is_there(&self) -> bool {
        self.trees().is_dir()
    }

    pub(super) fn store(&self) -> Result<TreeStore, Failure> {
        let store = TreeStore::open(self.trees()).map_err(|error| failed(&error))?;
        Ok(match self.bounds {
            Some(bounds) => store.with_bounds(bounds),
            None => store,
        })
    }

    /// The bounds that hold.
    pub(super) fn bounds(&self) -> CacheBounds {
        self.bounds
            .unwrap_or_else(|| CacheBounds::of_disk(&self.state_dir))
    }

    /// What is there. Nothing if nothing was ever unpacked.
    pub(super) fn inventory(&self) -> Result<Inventory, Failure> {
        if !self.is_there() {
            return Ok(Inventory::default());
        }
        self.store()?.inventory().map_err(|error| failed(&error))
    }

    /// Does it where it can be done. `progress` is called with the trees that are done and those that there
    /// are, where that is known.
    pub(super) fn work(
        &self,
        order: &Order,
        progress: impl FnMut(u64, u64),
    ) -> Result<Answer, Failure> {
        let answer = if rustix::process::geteuid().is_root() {
            None
        } else {
            self.launcher()
                .and_then(|launcher| self.ask(&launcher, order))
        };
        let answer = match answer {
            Some(answer) => answer,
            None => act(&self.store()?, order, progress).map_err(|error| failed(&error))?,
        };
        match answer {
            Answer::Failed(message) => Err(Failure::new(FailureKind::State, message)
                .hint("look at the cause; the state directory must be yours")),
            done => Ok(done),
        }
    }

    /// A launcher that has sub-ids, if this user has some. Its own directory lies somewhere else where the
    /// disk of the state directory is full.
    fn launcher(&self) -> Option<Launcher> {
        let exe = env::current_exe().ok()?;
        let places = [
            Some(self.state_dir.clone()),
            env::var_os("XDG_RUNTIME_DIR").map(|path| PathBuf::from(path).join("tidemill-cache")),
            Some(PathBuf::from(format!(
                "/dev/shm/tidemill-cache-{}",
                rustix::process::geteuid().as_raw()
            ))),
        ];
        for place in places.into_iter().flatten() {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(&place);
            let config = LauncherConfig {
                state_dir: place.clone(),
                exe: exe.clone(),
                first: Vec::new(),
            };
            match made.is_ok().then(|| Launcher::start(&config)) {
                Some(Ok(launcher)) => {
                    let has_sub_ids = matches!(launcher.identity(), Identity::Ranged { .. });
                    return has_sub_ids.then_some(launcher);
                }
                Some(Err(error)) => {
                    tracing::debug!(place = %place.display(), error = chain(&error), "no launcher");
                }
                None => {}
            }
        }
        None
    }

    fn ask(&self, launcher: &Launcher, order: &Order) -> Option<Answer> {
        let order = serde_json::to_string(&(order, self.bounds)).ok()?;
        let trees = self.trees().to_string_lossy().into_owned();
        let output = launcher.help(&[ARGUMENT.to_owned(), trees, order]);
        let answer = output
            .map_err(|error| error.to_string())
            .and_then(|output| serde_json::from_slice(&output).map_err(|error| error.to_string()));
        Some(answer.unwrap_or_else(|error| {
            Answer::Failed(format!(
                "the process among the sub-ids gave no answer: {error}"
            ))
        }))
    }
}

fn act(
    store: &TreeStore,
    order: &Order,
    progress: impl FnMut(u64, u64),
) -> Result<Answer, TreeStoreError> {
    match order {
        Order::Prune(wish) => store.prune(wish).map(Answer::Pruned),
        Order::Verify => store.verify(progress).map(Answer::Verified),
        Order::Remove(trees) => store.remove_trees(trees).map(Answer::Pruned),
    }
}

/// Does the work of the helper, if that is what this process was started for.
pub(crate) fn if_asked(mut arguments: impl Iterator<Item = String>) -> Option<ExitCode> {
    if arguments.next().as_deref() != Some(ARGUMENT) {
        return None;
    }
    let (trees, order) = (arguments.next()?, arguments.next()?);
    let answer = help(Path::new(&trees), &order).unwrap_or_else(Answer::Failed);
    Some(tell(&answer))
}

fn help(trees: &Path, order: &str) -> Result<Answer, String> {
    let (order, bounds): (Order, Option<CacheBounds>) =
        serde_json::from_str(order).map_err(|error| error.to_string())?;
    let store = TreeStore::open(trees).map_err(|error| chain(&error))?;
    let mut store = store.with_owners(ArchiveOwners::SubIds);
    if let Some(bounds) = bounds {
        store = store.with_bounds(bounds);
    }
    act(&store, &order, |_, _| ()).map_err(|error| chain(&error))
}
