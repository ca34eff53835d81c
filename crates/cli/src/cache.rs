//! `tidemill cache`: what the state directory keeps for jobs to come, and making room.
//!
//! Looking needs nothing but the directory. What changes trees is done where their owners are at hand: see
//! [`work`].

mod bounds;
mod du;
mod images;
mod ls;
mod named;
mod prune;
mod verify;
mod work;

use std::path::PathBuf;

use tidemill_hub::adapter;
use tidemill_image::TreeStoreError;

use crate::args::{CacheArgs, CacheCommand, GlobalArgs};
use crate::failure::{Failure, FailureKind};
use crate::output::Output;
use crate::state_dir::state_dir;
use crate::ui::Ui;

pub(crate) use bounds::bounds;
pub(crate) use named::{RemovedTrees, remove_named};
pub(crate) use work::if_asked;

use self::work::Place;

/// What of the state directory the command is about.
#[derive(Debug)]
struct Cache<'a> {
    state_dir: PathBuf,
    place: Place,
    global: &'a GlobalArgs,
}

pub(crate) fn cache(
    args: &CacheArgs,
    global: &GlobalArgs,
    output: &mut Output,
    ui: &Ui,
) -> Result<u8, Failure> {
    let state_dir = state_dir(global.state_dir.as_deref())?;
    if !state_dir.is_dir() {
        let message = format!("there is no state directory `{}`", state_dir.display());
        return Err(Failure::new(FailureKind::Usage, message)
            .hint("nothing has run yet, or --state-dir or TIDEMILL_STATE names another one"));
    }
    let cache = Cache {
        place: Place::new(&state_dir, bounds(global)?),
        state_dir,
        global,
    };
    match &args.command {
        CacheCommand::Ls => ls::ls(&cache, adapter::now(), output, ui),
        CacheCommand::Du => du::du(&cache, output, ui),
        CacheCommand::Prune(wish) => prune::prune(&cache, wish, adapter::now(), output, ui),
        CacheCommand::Verify => verify::verify(&cache, output, ui),
    }
}

/// What an error of the store means to the user.
fn failed(error: &TreeStoreError) -> Failure {
    Failure::new(
        FailureKind::State,
        "the store of unpacked layers cannot be used",
    )
    .because(error)
    .hint("look at the cause; the state directory must be yours and readable")
}

/// The part of a digest that lists show: enough to tell a few thousand apart.
fn short(digest: &tidemill_core::Digest) -> String {
    const DIGITS: usize = 12;
    let mut hex = digest.to_hex();
    hex.truncate(DIGITS);
    hex
}
