//! The tree of a job's image, where the job is the caller itself.
//!
//! Root's jobs have mounts whose ids are mapped, and a job among sub-ids that has nothing of the caller's has
//! sub-ids alone: both see the image's owners as they are. A job among sub-ids that works on files of the
//! caller is the caller, who has one id and cannot have mounts of his disk mapped; there the files of the
//! image that belong to a user with the job's number have to be the caller's on the disk too. So such a job gets
//! a tree of its image that was made for this user; docs/design/008 has the alternatives.

use std::path::Path;

use tidemill_core::Digest;
use tidemill_core::grant::GrantRequest;
use tidemill_core::job::{Image, JobSpec, Layer, User};
use tidemill_core::root::Owners;

use crate::account::{DATABASE_BYTES_MAX, UserDatabase};
use crate::beneath;
use crate::host_view::HostView;
use crate::layer::{self, LayerKey};
use crate::plan::PlanError;
use crate::tree_store::{TreeStore, TreeStoreError};
use crate::unpack::ArchiveOwners;

/// The tree of an image, and how its owners appear.
pub(crate) struct ImageTree {
    pub(crate) key: LayerKey,
    pub(crate) owners: Owners,
}

/// The tree of a job's image, if that is one that has to be built.
///
/// # Errors
/// If what the spec names cannot be read.
pub(crate) fn find(
    spec: &JobSpec,
    host: &HostView,
    trees: &TreeStore,
) -> Result<Option<ImageTree>, PlanError> {
    let key = match &spec.image {
        Image::Tar { path } => layer::archive_key(path, trees)?,
        Image::Oci {
            reference,
            digest,
            platform,
        } => layer::image_key(reference, *digest, platform.as_deref(), trees)?,
        Image::Host | Image::None | Image::Dir { .. } => return Ok(None),
    };
    let is_among_sub_ids = trees.owners() == ArchiveOwners::SubIds && !host.is_root();
    if is_among_sub_ids && works_on_the_callers_files(spec) {
        let owners = Owners::Job {
            uid: host.uid,
            gid: host.gid,
        };
        let key = key.for_user(&user(spec, host));
        return Ok(Some(ImageTree { key, owners }));
    }
    let owners = if host.is_root() {
        Owners::Range
    } else {
        Owners::AsIs
    };
    Ok(Some(ImageTree { key, owners }))
}

/// True if the job gets anything that belongs to the caller and shall appear as its own.
fn works_on_the_callers_files(spec: &JobSpec) -> bool {
    let is_bound = |grant: &GrantRequest| matches!(grant, GrantRequest::Bind { .. });
    let is_shown = |layer: &Layer| match layer {
        Layer::Dir { attributes, .. }
        | Layer::File { attributes, .. }
        | Layer::Glob { attributes, .. } => attributes.owner.is_none(),
        _ => false,
    };
    spec.workspace.is_some() || spec.grants.iter().any(is_bound) || spec.layers.iter().any(is_shown)
}

/// Whom the job runs as, as the spec has it: a name, or two numbers.
fn user(spec: &JobSpec, host: &HostView) -> String {
    match (&spec.user_name, spec.user) {
        (Some(name), _) => name.clone(),
        (None, Some(user)) => format!("{}:{}", user.uid, user.gid),
        (None, None) => format!("{}:{}", host.uid, host.gid),
    }
}

/// The name of the tree that is made of another one for a user.
pub(crate) fn tree_name(tree: &Digest, user: &str) -> Digest {
    Digest::of(format!("own 1 {tree} {user}").as_bytes())
}

/// Builds the tree, or finds it. `None` if the one that it is made of is not there.
///
/// # Errors
/// If the store fails, or the image's user database cannot be read.
pub(crate) fn build(
    name: &Digest,
    tree: &Digest,
    user: &str,
    trees: &TreeStore,
) -> Result<Option<std::path::PathBuf>, TreeStoreError> {
    if let Some(root) = trees.find(name) {
        return Ok(Some(root));
    }
    trees.doubt(tree);
    let Some(root) = trees.find(tree) else {
        return Ok(None);
    };
    let read = |path: &str| {
        beneath::read_text(&root, Path::new(path), DATABASE_BYTES_MAX).map_err(|source| {
            TreeStoreError::Store {
                step: "read the user database in",
                path: root.join(path.trim_start_matches('/')),
                source,
            }
        })
    };
    let passwd = read("/etc/passwd")?.unwrap_or_default();
    let group = read("/etc/group")?.unwrap_or_default();
    let database = UserDatabase::parse(&passwd, &group);
    // Whoever plans the job says that there is no such user.
    let nobody = User {
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let own = database.look_up(user).map_or(nobody, |found| found.user);
    trees.get_or_shift(name, tree, own)
}
