//! The trees of a job's image and layers, where the job is the caller itself.
//!
//! Root's jobs have mounts whose ids are mapped, and a job among sub-ids that has nothing of the caller's has
//! sub-ids alone: both see the owners in a tree as they are. A job among sub-ids that works on files of the
//! caller is the caller, who has one id and cannot have mounts of his disk mapped; there the files of a
//! tree that belong to a user with the job's number have to be the caller's on the disk too. So such a job gets
//! trees that were made for this user; docs/design/008 has the alternatives.

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
use crate::source::canonical_dir;
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
    let Some(key) = image_key(spec, trees)? else {
        return Ok(None);
    };
    Ok(Some(match OwnTrees::of_job(spec, host, trees)? {
        Some(own) => ImageTree {
            key: own.tree(key),
            owners: own.owners,
        },
        None => ImageTree {
            key,
            owners: layer::whole(host),
        },
    }))
}

/// The plain tree of a job's image.
fn image_key(spec: &JobSpec, trees: &TreeStore) -> Result<Option<LayerKey>, PlanError> {
    match &spec.image {
        Image::Tar { path } => layer::archive_key(path, trees).map(Some),
        Image::Oci {
            reference,
            digest,
            platform,
        } => layer::image_key(reference, *digest, platform.as_deref(), trees).map(Some),
        Image::Host | Image::None | Image::Dir { .. } => Ok(None),
    }
}

/// How a job sees trees among sub-ids that is the caller itself.
#[derive(Debug, Clone)]
pub(crate) struct OwnTrees {
    /// The job's user: a name, or two numbers.
    user: String,
    /// The tree whose user database has the name.
    accounts: Option<LayerKey>,
    /// How the owners in those trees appear.
    pub(crate) owners: Owners,
}

impl OwnTrees {
    /// `None` for a job that sees the owners in trees as they are.
    ///
    /// # Errors
    /// If what the spec names cannot be read.
    pub(crate) fn of_job(
        spec: &JobSpec,
        host: &HostView,
        trees: &TreeStore,
    ) -> Result<Option<Self>, PlanError> {
        let is_among_sub_ids = trees.owners() == ArchiveOwners::SubIds && !host.is_root();
        if !is_among_sub_ids || !works_on_the_callers_files(spec) {
            return Ok(None);
        }
        let (user, accounts) = user(spec, host, trees)?;
        let owners = Owners::Job {
            uid: host.uid,
            gid: host.gid,
        };
        Ok(Some(Self {
            user,
            accounts,
            owners,
        }))
    }

    /// The tree that such a job gets for another one.
    pub(crate) fn tree(&self, key: LayerKey) -> LayerKey {
        if key.has_owners() {
            key.for_user(&self.user, self.accounts.as_ref())
        } else {
            key
        }
    }
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

/// Whom the job runs as, and for a name the tree that says who that is.
fn user(
    spec: &JobSpec,
    host: &HostView,
    trees: &TreeStore,
) -> Result<(String, Option<LayerKey>), PlanError> {
    let numbers = |user: User| format!("{}:{}", user.uid, user.gid);
    let Some(name) = &spec.user_name else {
        let caller = User {
            uid: host.uid,
            gid: host.gid,
        };
        return Ok((numbers(spec.user.unwrap_or(caller)), None));
    };
    let database = match &spec.image {
        Image::Tar { .. } | Image::Oci { .. } => {
            return Ok((name.clone(), image_key(spec, trees)?));
        }
        Image::None => return Ok((name.clone(), lowest_root(spec, host, trees)?)),
        Image::Host => UserDatabase::read_host(&host.root),
        Image::Dir { path } => {
            let (path, _) = canonical_dir(path, "image")?;
            read_database(Path::new(&path)).map_err(PlanError::Trees)?
        }
    };
    let user = database.look_up(name).map(|found| numbers(found.user));
    // Whoever plans the job says that there is no such user.
    Ok((user.unwrap_or_else(|_| name.clone()), None))
}

/// The tree of the first layer that is a whole root.
fn lowest_root(
    spec: &JobSpec,
    host: &HostView,
    trees: &TreeStore,
) -> Result<Option<LayerKey>, PlanError> {
    let is_root = |layer: &Layer| match layer {
        Layer::Tar { dest, .. } | Layer::Oci { dest, .. } | Layer::Dir { dest, .. } => dest == "/",
        _ => false,
    };
    match spec.layers.iter().position(is_root) {
        Some(index) => layer::key_at(spec, index, host, trees),
        None => Ok(None),
    }
}

/// The name of the tree that is made of another one for a user, whom a third tree's database may name.
pub(crate) fn tree_name(tree: &Digest, user: &str, accounts: Option<&Digest>) -> Digest {
    let name = match accounts {
        None => format!("own 1 {tree} {user}"),
        Some(accounts) => format!("own 1 {tree} {user} of {accounts}"),
    };
    Digest::of(name.as_bytes())
}

/// Whose tree is made of which one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnRecipe<'a> {
    pub(crate) tree: &'a Digest,
    pub(crate) user: &'a str,
    /// The tree whose user database counts; its own if there is none.
    pub(crate) accounts: Option<&'a Digest>,
}

/// Builds the tree, or finds it. `None` if one that it is made of is not there.
///
/// # Errors
/// If the store fails, or the user database cannot be read.
pub(crate) fn build(
    name: &Digest,
    recipe: &OwnRecipe<'_>,
    trees: &TreeStore,
) -> Result<Option<std::path::PathBuf>, TreeStoreError> {
    if let Some(root) = trees.find(name) {
        return Ok(Some(root));
    }
    trees.doubt(recipe.tree);
    let Some(accounts) = trees.find(recipe.accounts.unwrap_or(recipe.tree)) else {
        return Ok(None);
    };
    let database = read_database(&accounts)?;
    // Whoever plans the job says that there is no such user.
    let nobody = User {
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let found = database.look_up(recipe.user);
    let own = found.map_or(nobody, |found| found.user);
    trees.get_or_shift(name, recipe.tree, own)
}

fn read_database(root: &Path) -> Result<UserDatabase, TreeStoreError> {
    let read = |path: &str| {
        beneath::read_text(root, Path::new(path), DATABASE_BYTES_MAX).map_err(|source| {
            TreeStoreError::Store {
                step: "read the user database in",
                path: root.join(path.trim_start_matches('/')),
                source,
            }
        })
    };
    let passwd = read("/etc/passwd")?.unwrap_or_default();
    let group = read("/etc/group")?.unwrap_or_default();
    Ok(UserDatabase::parse(&passwd, &group))
}
