//! Trees whose files an ordinary user cannot give to their owners: they are built by this binary again,
//! started by the launcher in the user namespace where the caller's sub-ids are at hand.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use tidemill_image::{ArchiveOwners, CacheBounds, TreeStore, build_order};
use tidemill_runner::{Cause, Unpacker, chain};
use tidemill_sandbox::Launcher;

/// The hidden first argument; the tree store's directory, the order and the store's bounds follow.
const ARGUMENT: &str = "build-tree";

/// What the helper writes to its standard output.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    result: Result<PathBuf, Trouble>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Trouble {
    message: String,
    hint: Option<String>,
}

/// Unpacks through a launcher.
#[derive(Debug)]
pub(crate) struct NamespaceUnpacker {
    launcher: Launcher,
    trees: PathBuf,
    bounds: Option<CacheBounds>,
}

impl NamespaceUnpacker {
    pub(crate) fn new(launcher: Launcher, trees: PathBuf, bounds: Option<CacheBounds>) -> Self {
        Self {
            launcher,
            trees,
            bounds,
        }
    }
}

impl Unpacker for NamespaceUnpacker {
    fn build(&self, order: &str) -> Result<PathBuf, Cause> {
        let trees = self.trees.to_string_lossy().into_owned();
        let bounds = serde_json::to_string(&self.bounds).unwrap_or_default();
        let arguments = [ARGUMENT.to_owned(), trees, order.to_owned(), bounds];
        let output = self.launcher.help(&arguments).map_err(|error| Cause {
            message: format!("the launcher could not be asked to build a layer: {error}"),
            hint: None,
        })?;
        let answer: Answer = serde_json::from_slice(&output).map_err(|error| Cause {
            message: format!("the process that built a layer gave no answer: {error}"),
            hint: Some("the state directory must be writable and have space left".to_owned()),
        })?;
        answer.result.map_err(|trouble| Cause {
            message: trouble.message,
            hint: trouble.hint,
        })
    }
}

/// Does the work of the helper, if that is what this process was started for.
pub(crate) fn if_asked(mut arguments: impl Iterator<Item = String>) -> Option<ExitCode> {
    if arguments.next().as_deref() != Some(ARGUMENT) {
        return None;
    }
    let (trees, order) = (arguments.next()?, arguments.next()?);
    let bounds = arguments.next().unwrap_or_default();
    let bounds: Option<CacheBounds> = serde_json::from_str(&bounds).ok().flatten();
    let answer = Answer {
        result: build(Path::new(&trees), &order, bounds),
    };
    Some(tell(&answer))
}

/// Writes a helper's answer to whoever started it.
pub(crate) fn tell(answer: &impl Serialize) -> ExitCode {
    let written = serde_json::to_vec(answer)
        .map_err(io::Error::from)
        .and_then(|bytes| io::stdout().write_all(&bytes));
    if written.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn build(trees: &Path, order: &str, bounds: Option<CacheBounds>) -> Result<PathBuf, Trouble> {
    let mut trees = TreeStore::open(trees)
        .map_err(|error| Trouble {
            message: chain(&error),
            hint: None,
        })?
        .with_owners(ArchiveOwners::SubIds);
    if let Some(bounds) = bounds {
        trees = trees.with_bounds(bounds);
    }
    build_order(order, &trees).map_err(|error| Trouble {
        message: chain(&error),
        hint: Some(error.hint()),
    })
}
