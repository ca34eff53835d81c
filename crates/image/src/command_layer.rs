//! Layers that a command makes: what it leaves in a directory of its own.
//!
//! The command runs over the image and the layers before it, without a network and without a workspace. Its
//! output is kept under a name that is a digest of all of these, so it runs once for equal inputs. Of what
//! is used where it is, the state of the files counts (sizes, times and the like); of the host's own image,
//! the state of its package manager and of its directories of programs and libraries.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use tidemill_core::grant::PathAccess;
use tidemill_core::job::{Image, JobSpec};
use tidemill_core::layer::COMMAND_OUTPUT;
use tidemill_core::root::{Owners, RootMount};
use tidemill_core::{Attributes, Digest, Layer, Reason, ReasonCode};
use tidemill_tree::remove_tree;

use crate::copies::Copies;
use crate::glob::identity;
use crate::host_view::HostView;
use crate::layer::{LayerError, LayerKey, Surroundings, find_matches, key_at, unpack_name};
use crate::output_limit::OutputLimit;
use crate::plan::{PlanError, Planned, plan_command};
use crate::source::{canonical_dir, canonical_file};
use crate::tree_store::{TreeStore, TreeStoreError};

/// Files and directories of the host that change when its programs do.
const HOST_STATE: &[&str] = &[
    "/etc/os-release",
    "/etc/ld.so.cache",
    "/var/lib/dpkg/status",
    "/var/lib/rpm/rpmdb.sqlite",
    "/usr/lib/sysimage/rpm/rpmdb.sqlite",
    "/var/lib/pacman/local",
    "/lib/apk/db/installed",
    "/run/current-system",
    "/usr/bin",
    "/usr/sbin",
    "/usr/lib",
    "/usr/local/bin",
    "/usr/local/lib",
];

/// A command whose output becomes a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLayer {
    spec: JobSpec,
}

impl CommandLayer {
    /// The job that the command is: its image and layers are what it runs over.
    pub const fn spec(&self) -> &JobSpec {
        &self.spec
    }

    /// The command of a layer, over the image and the layers before it.
    pub(crate) fn of(spec: &JobSpec, index: usize) -> Option<Self> {
        let Layer::Command {
            program, args, env, ..
        } = spec.layers.get(index)?
        else {
            return None;
        };
        let mut job = JobSpec::new(program.clone(), args.iter().cloned());
        job.image = spec.image.clone();
        job.layers = spec.layers[..index].to_vec();
        job.env.clone_from(env);
        // It is bounded as its job is; nothing of what it makes depends on that.
        job.limits = spec.limits;
        job.limits.timeout = None;
        Some(Self { spec: job })
    }

    /// A digest of all that its output depends on.
    pub(crate) fn tree_name(
        &self,
        host: &HostView,
        trees: &TreeStore,
    ) -> Result<Digest, PlanError> {
        let mut hasher = blake3::Hasher::new();
        let mut add = |text: &str| {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        };
        add("command 1");
        add(&format!("{:?}", trees.owners()));
        add(&image_state(&self.spec.image, host, trees)?);
        for index in 0..self.spec.layers.len() {
            add(&layer_state(&self.spec, index, host, trees)?);
        }
        add(&format!("{:?}", self.spec.command()));
        add(&format!("{:?}", self.spec.env));
        Ok(Digest::from_bytes(*hasher.finalize().as_bytes()))
    }
}

/// What tells one state of an image from another.
fn image_state(image: &Image, host: &HostView, trees: &TreeStore) -> Result<String, PlanError> {
    Ok(match image {
        Image::None => "none".to_owned(),
        Image::Host => {
            let state = HOST_STATE.iter().map(|path| {
                let metadata = fs::metadata(host.system(path)).ok();
                format!("{path} {:?}", metadata.as_ref().map(identity))
            });
            state.collect::<Vec<_>>().join("\n")
        }
        Image::Dir { path } => {
            let (path, _) = canonical_dir(path, "image")?;
            files_state(&path, host, trees)?.to_string()
        }
        Image::Tar { path } => unpack_name(path, trees)?.to_string(),
        Image::Oci {
            reference, digest, ..
        } => match digest {
            Some(digest) => digest.to_string(),
            None => {
                return Err(PlanError::Unresolved {
                    reference: reference.clone(),
                });
            }
        },
    })
}

/// What tells one state of a layer from another.
fn layer_state(
    spec: &JobSpec,
    index: usize,
    host: &HostView,
    trees: &TreeStore,
) -> Result<String, PlanError> {
    let layer = &spec.layers[index];
    let form = serde_json::to_string(layer).expect("a layer has only text and numbers");
    let state = match (key_at(spec, index, host, trees)?, layer) {
        (Some(key), _) => Some(*key.name()),
        (None, Layer::Dir { source, .. }) => {
            let (path, _) = canonical_dir(source, "layer")?;
            Some(files_state(&path, host, trees)?)
        }
        (None, Layer::File { source, .. }) => {
            let (path, _) = canonical_file(source, "layer")?;
            let file = [(PathBuf::from(&path), PathBuf::from("file"))];
            let copies = Copies::of_files("file", path, file, Attributes::default())?;
            Some(copies.tree_name(trees.owners()))
        }
        (None, Layer::Glob { .. }) => {
            let matches = find_matches(layer, &Surroundings::of(host))?;
            let copies = Copies::of_matches(&matches, Attributes::default())?;
            Some(copies.tree_name(trees.owners()))
        }
        (None, _) => None,
    };
    Ok(format!("{form} {state:?}"))
}

fn files_state(path: &str, host: &HostView, trees: &TreeStore) -> Result<Digest, PlanError> {
    let state_dir = host.state_dir.as_deref();
    let copies = Copies::of_dir(Path::new(path), Attributes::default(), state_dir)?;
    Ok(copies.tree_name(trees.owners()))
}

/// Builds the tree of a command's output, or finds the one that was built before. What the command runs
/// over has to be built already. `run` runs it in a sandbox, and says why it failed. Blocks.
///
/// # Errors
/// Why there is no tree.
///
/// # Panics
/// If the key is not that of a command.
pub fn build_command(
    key: &LayerKey,
    host: &HostView,
    trees: &TreeStore,
    run: impl FnOnce(&JobSpec, &Planned) -> Result<(), Reason>,
) -> Result<PathBuf, LayerError> {
    let command = key.command().expect("the caller has looked");
    trees.get_or_build_with(key.name(), |building| {
        let root = building.root();
        let output = root.with_file_name("output");
        let failed = |step, source| TreeStoreError::Store {
            step,
            path: output.clone(),
            source,
        };
        let made = fs::DirBuilder::new().mode(0o755).create(&output);
        made.map_err(|source| failed("create", source))?;
        let look = |error| LayerError::Look(Box::new(error));
        let planned = plan_command(&command.spec, host, trees, &output).map_err(look)?;
        run(&command.spec, &planned).map_err(LayerError::Command)?;
        let limit = OutputLimit::of(&command.spec.limits);
        let mut copies = Copies::of_dir(&output, Attributes::default(), None).map_err(look)?;
        if let Some(outgrown) = limit.judge(copies.bytes(), copies.entries()) {
            let of = command.spec.command().join(" ");
            let message = format!(
                "the layer's command `{of}` failed: {}",
                limit.message(outgrown)
            );
            let reason = Reason::new(ReasonCode::Disk, message).with_hint(limit.hint(outgrown));
            return Err(LayerError::Command(reason));
        }
        copies.forget_privileges();
        copies.spend();
        let mut note = copies.build(building, trees.owners())?;
        note.from = format!("command {}", command.spec.command().join(" "));
        remove_tree(&output).map_err(|source| failed("remove", source))?;
        Ok(note)
    })
}

/// The directory that a command leaves its output in, as it appears in its sandbox.
pub(crate) fn output_mount(output: &Path) -> Result<RootMount, PlanError> {
    let metadata = fs::metadata(output).map_err(|source| PlanError::Read {
        path: output.to_owned(),
        source,
    })?;
    Ok(RootMount {
        source: PlanError::utf8(output)?,
        dest: COMMAND_OUTPUT.to_owned(),
        over: Vec::new(),
        access: PathAccess::Write,
        owners: Owners::Job {
            uid: metadata.uid(),
            gid: metadata.gid(),
        },
        hidden: Vec::new(),
        why: "what the command leaves here is the layer".to_owned(),
    })
}
