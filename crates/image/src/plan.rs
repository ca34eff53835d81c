//! From a job spec and a view of the caller to everything that the sandbox builds.

use std::io;
use std::path::{Path, PathBuf};

use tidemill_core::check::USER_ID_MAX;
use tidemill_core::job::{Image, JobSpec, Network, Stdin, User};
use tidemill_core::layer::COMMAND_OUTPUT;
use tidemill_core::root::{GeneratedFile, Node, Owners};
use tidemill_core::{Allow, Grant, GrantRequest, Reason, ReasonCode, RootPlan};

use crate::account::{self, Identity, UserDatabase};
use crate::beneath;
use crate::bind::{self, BindError, Binds};
use crate::command_layer;
use crate::device::{self, DeviceError};
use crate::environment;
use crate::fit;
use crate::host_image;
use crate::host_view::HostView;
use crate::layer::{self, LayerError};
use crate::layer_fault::LayerFault;
use crate::overlay::Found;
use crate::own_image;
use crate::root_links;
use crate::source::{self, canonical_dir};
use crate::stack::{Source, Stack};
use crate::toolchain;
use crate::tree_store::{TreeStore, TreeStoreError};
use crate::unpack::ArchiveOwners;
use crate::workdir;
use crate::workspace;

/// The name that the sandbox has in the generated `/etc/hosts` and `/etc/hostname`.
pub const HOSTNAME: &str = "tidemill";

/// Everything about a job's root that follows from its spec and its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// The root file system.
    pub root: RootPlan,
    /// The whole environment, sorted by name.
    pub env: Vec<(String, String)>,
    /// What of the host the job gets, and why.
    pub grants: Vec<Grant>,
    /// Where the program starts.
    pub workdir: String,
}

/// Plans the root of a job. Everything that [`layer_keys`](crate::layer_keys) names has to be built
/// before. Reads the host, writes at most tiny trees below the tree store; blocks, so not for async
/// code.
pub fn plan(spec: &JobSpec, host: &HostView, trees: &TreeStore) -> Result<Planned, PlanError> {
    plan_with(spec, host, trees, None)
}

/// Plans the root of a command that starts in a directory for its output, and writes that directory for
/// real.
pub(crate) fn plan_command(
    spec: &JobSpec,
    host: &HostView,
    trees: &TreeStore,
    output: &Path,
) -> Result<Planned, PlanError> {
    plan_with(spec, host, trees, Some(output))
}

fn plan_with(
    spec: &JobSpec,
    host: &HostView,
    trees: &TreeStore,
    output: Option<&Path>,
) -> Result<Planned, PlanError> {
    let mut stack = Stack::new(spec.image != Image::Host);
    let tools = add_image(spec, host, trees, &mut stack)?;
    let workspace = workspace::add(spec, host, &mut stack)?;
    layer::add_all(spec, host, trees, &mut stack)?;
    if let Some(output) = output {
        stack.add_output(command_layer::output_mount(output)?)?;
    }
    root_links::restore(&mut stack, trees)?;
    let binds = bind::add(spec, host, workspace.as_ref(), trees, &mut stack)?;
    let devices = device::find(spec, host)?;
    fit::check(&stack)?;
    let identity = identify(spec, host, &stack, &binds)?;
    check_root_grant(spec, identity.account.user, trees)?;
    if identity.account.home != "/" {
        fit::check_home(&stack, &identity.account.home)?;
        stack.open_home(&identity.account.home, trees)?;
    }
    let mut files = generated_files(spec, host, &identity, &stack);
    files.extend(tools.files.iter().cloned());
    // Nothing is written into what was asked for as it is on the host.
    files.retain(|file| !binds.cover(&file.path, &stack));
    // A file that is a layer by itself is mounted in its place, and is what was asked for.
    files.retain(|file| stack.mounts.iter().all(|mount| mount.dest != file.path));
    for file in &files {
        fit::check_file(&stack, &file.path)?;
    }
    let workdir = match output {
        Some(_) => COMMAND_OUTPUT.to_owned(),
        None => workdir::find(spec, workspace.as_ref(), &mut stack)?,
    };
    let variables = environment::build(spec, host, &identity.account, &stack, &tools, &workdir)?;
    let mut grants = std::mem::take(&mut stack.grants);
    grants.extend(tools.notes);
    grants.extend(variables.grants);
    grants.extend(binds.grants(&stack));
    grants.extend(named(spec));
    if spec.network == Network::Host {
        grants.push(Grant::HostNetwork);
    }
    if spec.stdin == Stdin::Inherit {
        grants.push(Grant::Stdin);
    }
    Ok(Planned {
        root: RootPlan {
            trees: stack.trees,
            nodes: stack.nodes,
            mounts: stack.mounts,
            files,
            account: identity.account,
            root_writable: stack.root_writable,
            devices,
            sys: spec.grants.contains(&GrantRequest::Sys),
            allow: allowed(spec),
        },
        env: variables.list,
        grants,
        workdir,
    })
}

/// What was asked for by name and is no path and no network.
fn named(spec: &JobSpec) -> impl Iterator<Item = Grant> {
    let is_path = |grant: &&GrantRequest| matches!(grant, GrantRequest::Bind { .. });
    let others = spec.grants.iter().filter(move |grant| !is_path(grant));
    others.map(|grant| Grant::Named {
        name: grant.to_string(),
        widens: grant.widens(),
    })
}

fn allowed(spec: &JobSpec) -> Vec<Allow> {
    let allows = spec.grants.iter().flat_map(GrantRequest::allows);
    let mut allowed: Vec<Allow> = allows.copied().collect();
    allowed.sort();
    allowed.dedup();
    allowed
}

fn add_image(
    spec: &JobSpec,
    host: &HostView,
    trees: &TreeStore,
    stack: &mut Stack,
) -> Result<toolchain::Tools, PlanError> {
    let whole = if host.is_root() {
        Owners::Range
    } else {
        Owners::AsIs
    };
    match &spec.image {
        Image::Host => {
            host_image::add(host, stack)?;
            return toolchain::add(spec, host, stack);
        }
        Image::None => {}
        Image::Dir { path } => {
            let (path, _) = canonical_dir(path, "image")?;
            if path == "/" {
                return Err(PlanError::ImageIsHost);
            }
            source::refuse_state(&path, host.state_dir.as_deref(), "the image")?;
            stack.add_image_tree(&Source {
                known_as: path.clone(),
                path,
                owners: whole,
                why: "the image".to_owned(),
            });
        }
        Image::Tar { path: known_as }
        | Image::Oci {
            reference: known_as,
            ..
        } => {
            let image = own_image::find(spec, host, trees)?.expect("it is built of something");
            stack.add_image_tree(&Source {
                path: image.key.find(trees)?,
                owners: image.owners,
                known_as: known_as.clone(),
                why: "the image, unpacked".to_owned(),
            });
        }
    }
    Ok(toolchain::Tools::default())
}

/// Root's rights are for user 0, and need ids to be root over.
fn check_root_grant(spec: &JobSpec, user: User, trees: &TreeStore) -> Result<(), PlanError> {
    if !spec.grants.contains(&GrantRequest::Root) {
        return Ok(());
    }
    if user.uid != 0 {
        return Err(PlanError::RootGrant {
            why: format!("the job's user is {}", user.uid),
            hint: "add `--user 0`, or leave the grant out",
        });
    }
    if trees.owners() == ArchiveOwners::Lost {
        return Err(PlanError::RootGrant {
            why: "the sandbox has one user id alone here, because the user that runs Tidemill has no sub-ids"
                .to_owned(),
            hint: "`tidemill doctor` says how to get sub-ids",
        });
    }
    Ok(())
}

fn identify(
    spec: &JobSpec,
    host: &HostView,
    stack: &Stack,
    binds: &Binds,
) -> Result<Identity, PlanError> {
    let is_replaced = |path: &str| stack.is_layered(path) || binds.cover(path, stack);
    let found = if spec.image == Image::Host && !is_replaced("/etc/passwd") {
        UserDatabase::read_host(&host.root)
    } else {
        for path in ["/etc/passwd", "/etc/group"] {
            fit::check_read(stack, path)?;
        }
        let passwd = read_in_stack(stack, "/etc/passwd")?.unwrap_or_default();
        let group = read_in_stack(stack, "/etc/group")?.unwrap_or_default();
        UserDatabase::parse(&passwd, &group)
    };
    let Some(name) = &spec.user_name else {
        return Ok(account::identify(spec, host, &found));
    };
    let unknown = |part: &str| PlanError::UnknownUser {
        name: name.clone(),
        part: part.to_owned(),
    };
    let account::LookedUp { user, groups } = found.look_up(name).map_err(unknown)?;
    if user.uid.max(user.gid) > USER_ID_MAX {
        return Err(unknown(&format!("{}:{}", user.uid, user.gid)));
    }
    let mut numbered = spec.clone();
    numbered.user = Some(user);
    let mut identity = account::identify(&numbered, host, &found);
    identity.account.groups = groups;
    Ok(identity)
}

/// Reads a small text file of the root. The trees may be hostile: the file is opened without
/// following anything out of the directory that it was found in.
fn read_in_stack(stack: &Stack, path: &str) -> Result<Option<String>, PlanError> {
    let Found::File(file) = stack.resolve(path)?.found else {
        return Ok(None);
    };
    let failed = |source| PlanError::Read {
        path: file.clone(),
        source,
    };
    let (Some(dir), Some(name)) = (file.parent(), file.file_name()) else {
        return Ok(None);
    };
    beneath::read_text(dir, Path::new(name), account::DATABASE_BYTES_MAX).map_err(failed)
}

fn generated_files(
    spec: &JobSpec,
    host: &HostView,
    identity: &Identity,
    stack: &Stack,
) -> Vec<GeneratedFile> {
    let mut files = Vec::new();
    let mut add = |path: &str, content: String| {
        files.push(GeneratedFile {
            path: path.to_owned(),
            content,
        });
    };
    if identity.changed {
        add("/etc/passwd", identity.database.passwd().to_owned());
        add("/etc/group", identity.database.group().to_owned());
    }
    for (path, content) in host_image::network_files(spec, host) {
        if !stack.is_layered(path) {
            add(path, content);
        }
    }
    if spec.image == Image::Host && !stack.is_layered("/etc/machine-id") {
        // The file is there and says nothing, as in images for containers: the host's own id would tell
        // which machine it is, and one that was made up would be taken for a machine's.
        add("/etc/machine-id", String::new());
    }
    files
}

/// Why a job cannot be planned.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A directory or file that the spec names cannot be used.
    #[error("the {what} `{path}` cannot be used")]
    Source {
        /// What the spec calls it.
        what: &'static str,
        /// The path on the host.
        path: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A directory is named where a file is wanted, or the other way round.
    #[error("the {what} `{path}` is not a {wanted}")]
    WrongKind {
        /// What the spec calls it.
        what: &'static str,
        /// The path on the host.
        path: String,
        /// What it should be.
        wanted: &'static str,
    },
    /// A path on the host is not absolute.
    #[error("the {what} `{path}` is not an absolute path")]
    NotAbsolute {
        /// What the spec calls it.
        what: &'static str,
        /// The path.
        path: String,
    },
    /// A path cannot be written in a plan.
    #[error("the path `{path}` is not UTF-8")]
    NotUtf8 {
        /// The path, with replacement characters.
        path: String,
    },
    /// The image is the host's root directory.
    #[error("the host's own root directory cannot be the image")]
    ImageIsHost,
    /// Nobody has looked up which image a reference stands for.
    #[error("it was not looked up which image `{reference}` is")]
    Unresolved {
        /// The image.
        reference: String,
    },
    /// An image, or a layer over the whole root, has something in a place that the sandbox needs.
    #[error("`{place}` in `{known_as}` {what}")]
    Image {
        /// The path in the image.
        place: String,
        /// The image.
        known_as: String,
        /// What is wrong with it.
        what: String,
    },
    /// Something would show the state directory to the job.
    #[error("{what} `{path}` contains Tidemill's state directory `{state_dir}`")]
    HoldsState {
        /// What would show it.
        what: &'static str,
        /// The path on the host.
        path: String,
        /// The state directory.
        state_dir: String,
    },
    /// The workspace lies in the state directory.
    #[error("the workspace `{path}` lies in Tidemill's state directory `{state_dir}`")]
    InState {
        /// The path on the host.
        path: String,
        /// The state directory.
        state_dir: String,
    },
    /// A directory cannot be a workspace.
    #[error("`{path}` cannot be the workspace: it is {why}")]
    Workspace {
        /// The path on the host.
        path: String,
        /// What it is.
        why: &'static str,
    },
    /// The path of a workspace leads through a link to what is no project.
    #[error(
        "the workspace `{path}` leads through the symbolic link `{link}` to `{leads_to}`, which is \
         {what}"
    )]
    WorkspaceLink {
        /// The path as it was named.
        path: String,
        /// The first link on the way.
        link: String,
        /// Where it leads.
        leads_to: String,
        /// What that is.
        what: &'static str,
    },
    /// What would be written for real is reached through a link.
    #[error(
        "the {what} `{path}` would be written for real, and the symbolic link `{link}` makes it \
         `{leads_to}`"
    )]
    WrittenLink {
        /// What the spec calls it.
        what: &'static str,
        /// The path as it was named.
        path: String,
        /// The first link on the way.
        link: String,
        /// Where it leads.
        leads_to: String,
        /// How to name that itself.
        hint: String,
    },
    /// A pattern cannot be read.
    #[error("`{pattern}` is not a pattern")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong.
        #[source]
        source: globset::Error,
    },
    /// A pattern matches nothing.
    #[error("the pattern `{pattern}` matches no file below `{base}`")]
    NoMatch {
        /// The pattern.
        pattern: String,
        /// Where it was looked for.
        base: String,
    },
    /// A pattern looks at too much.
    #[error("more than {max} files lie below `{base}`, where `{pattern}` was looked for")]
    TooManyFiles {
        /// The pattern.
        pattern: String,
        /// Where it was looked for.
        base: String,
        /// The limit.
        max: usize,
    },
    /// A directory goes where a file is.
    #[error("`{source_path}` is a directory, and `{dest}` in the sandbox is a file")]
    DestIsFile {
        /// The layer's source.
        source_path: String,
        /// The destination.
        dest: String,
    },
    /// A file goes where a directory is.
    #[error("`{source_path}` is a file, and `{dest}` in the sandbox is a directory")]
    DestIsDir {
        /// The layer's source.
        source_path: String,
        /// The destination.
        dest: String,
    },
    /// A destination belongs to the sandbox itself.
    #[error("`{dest}` is made by the sandbox itself, and nothing else goes there")]
    DestIsSandbox {
        /// The destination.
        dest: String,
    },
    /// A layer would put a file over a directory that has to be there.
    #[error("`{source_path}` has a file where `{dest}` has to be a directory")]
    CoversMount {
        /// The layer's source.
        source_path: String,
        /// What it would cover.
        dest: String,
    },
    /// A layer would change the real workspace.
    #[error("a layer cannot be laid over `{dest}`, which the job writes for real")]
    LayerInWritableWorkspace {
        /// The layer's source.
        source_path: String,
        /// The workspace.
        dest: String,
    },
    /// A path of the sandbox leads through a file.
    #[error("`{path}` in the sandbox is not a directory, so `{rest}` cannot lie in it")]
    NotADirectory {
        /// The file.
        path: String,
        /// The next name.
        rest: String,
    },
    /// A path of the sandbox runs in circles.
    #[error("`{path}` leads through too many symbolic links in the sandbox")]
    TooManyLinks {
        /// The path.
        path: String,
    },
    /// Something of the host cannot be shown as it is.
    #[error("`{source_path}` cannot be bound at `{dest}`")]
    Bind {
        /// The path on the host.
        source_path: String,
        /// The path in the sandbox.
        dest: String,
        /// Why not.
        #[source]
        source: BindError,
    },
    /// A device of the host cannot be given to a job.
    #[error("the device `{path}` cannot be granted")]
    Device {
        /// The path on the host.
        path: String,
        /// Why not.
        #[source]
        source: DeviceError,
    },
    /// The working directory cannot be used.
    #[error("the working directory `{path}` cannot be used: {why}")]
    Workdir {
        /// The path in the sandbox.
        path: String,
        /// Why not.
        why: String,
    },
    /// The working directory is asked for in the workspace, and is none of it.
    #[error("the working directory `{path}` leads out of the workspace, to `{leads_to}`")]
    WorkdirOutside {
        /// The path in the sandbox.
        path: String,
        /// Where its links lead in the sandbox.
        leads_to: String,
    },
    /// The user that the job or its image names is none of the root's.
    #[error("there is no user `{name}` in the sandbox: its user database has no `{part}`")]
    UnknownUser {
        /// As it was named.
        name: String,
        /// What nobody has.
        part: String,
    },
    /// Root's rights cannot be granted to this job.
    #[error("the grant `root` cannot be had: {why}")]
    RootGrant {
        /// Why not.
        why: String,
        /// What to do next.
        hint: &'static str,
    },
    /// A variable of the caller cannot be passed on.
    #[error("the variable `{name}` of the caller cannot be passed on: {why}")]
    Variable {
        /// Its name.
        name: String,
        /// Why not.
        why: String,
    },
    /// A file of the root cannot be read.
    #[error("failed to read `{path}` of the root file system")]
    Read {
        /// The path on the host.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A layer that should be built is not there.
    #[error("`{what}` is not unpacked: it changed while the job waited")]
    NotBuilt {
        /// The layer.
        what: String,
    },
    /// A layer cannot be made.
    #[error(transparent)]
    Layer(#[from] LayerFault),
    /// An archive cannot be read.
    #[error("the archive `{path}` cannot be used")]
    Archive {
        /// The path on the host.
        path: String,
        /// Why it failed.
        #[source]
        source: LayerError,
    },
    /// The store of trees does not work.
    #[error("the store of unpacked layers does not work")]
    Trees(#[source] TreeStoreError),
}

impl PlanError {
    /// The path as text.
    pub(crate) fn utf8(path: &Path) -> Result<String, Self> {
        path.to_str()
            .map(str::to_owned)
            .ok_or_else(|| Self::NotUtf8 {
                path: path.to_string_lossy().into_owned(),
            })
    }

    /// The stable code of what happened.
    pub const fn code(&self) -> ReasonCode {
        match self {
            Self::Workdir { .. } | Self::WorkdirOutside { .. } => ReasonCode::BadWorkdir,
            Self::NotBuilt { .. }
            | Self::Image { .. }
            | Self::Archive { .. }
            | Self::Trees(_)
            | Self::Read { .. } => ReasonCode::Layer,
            Self::Layer(fault) => fault.code(),
            _ => ReasonCode::BadSpec,
        }
    }

    /// What to do next.
    pub fn hint(&self) -> String {
        match self {
            Self::Source { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "check the spelling; paths are relative to the directory that you stand in".into()
            }
            Self::Source { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "make it readable for the user that runs Tidemill".into()
            }
            Self::Read { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "make it readable for the user that runs Tidemill".into()
            }
            Self::Source { .. } | Self::Read { .. } => "look at the cause above".into(),
            Self::WrongKind { wanted, .. } => format!("name a {wanted}"),
            Self::NotAbsolute { .. } => "write the path from `/` on".into(),
            Self::NotUtf8 { .. } => "rename it, or move the files elsewhere".into(),
            Self::ImageIsHost => "use `--image host`, which leaves the host's secrets out".into(),
            Self::Unresolved { reference } => {
                format!("pull it, and run the job again: tidemill image pull {reference}")
            }
            Self::Image { place, .. } => {
                format!("mend `{place}` in the image, or use another one")
            }
            Self::HoldsState { what: "the workspace", .. } => {
                "name a smaller directory with `--workspace DIR`, or set TIDEMILL_STATE to a \
                 directory outside of it"
                    .into()
            }
            Self::HoldsState { .. } => {
                "name a smaller directory, or set TIDEMILL_STATE to a directory outside of it".into()
            }
            Self::InState { .. } => "work outside of the state directory".into(),
            Self::Workspace { .. } => {
                "name a project directory with `--workspace DIR`, or use `--no-workspace`".into()
            }
            Self::WorkspaceLink { leads_to, .. } => {
                format!("if that directory is meant, name it itself: --workspace {leads_to}")
            }
            Self::WrittenLink { hint, .. } => hint.clone(),
            Self::Pattern { .. } => {
                "`*` and `?` stay within a name, `**` crosses directories, `[ab]` and `{a,b}` choose; \
                 a backslash makes a character plain"
                    .into()
            }
            Self::NoMatch { .. } => {
                "check the pattern; `*` does not cross directories, `**/` does".into()
            }
            Self::TooManyFiles { .. } => "begin the pattern with the directory you mean".into(),
            Self::DestIsFile { .. } | Self::DestIsDir { .. } => {
                "choose another destination; a file's destination is its whole new name".into()
            }
            Self::DestIsSandbox { .. } => {
                "choose a destination outside of /proc, /dev and /sys, or below /tmp".into()
            }
            Self::CoversMount { .. } => "leave that path out of the layer".into(),
            Self::LayerInWritableWorkspace { .. } => {
                "leave out `--write`, or put the layer outside of the workspace".into()
            }
            Self::NotADirectory { .. } | Self::TooManyLinks { .. } => {
                "choose another destination, or mend that path in the image".into()
            }
            Self::Bind { source, .. } => source.hint(),
            Self::Device { source, .. } => source.hint(),
            Self::Workdir { .. } => {
                "name a directory of the sandbox with an absolute path; `tidemill explain` shows \
                 what is there"
                    .into()
            }
            Self::WorkdirOutside { leads_to, .. } => {
                format!("if that directory is meant, name it itself: --workdir {leads_to}")
            }
            Self::UnknownUser { .. } => "name one by numbers: `--user UID:GID`".into(),
            Self::RootGrant { hint, .. } => (*hint).into(),
            Self::Variable { .. } => "set it with `--env NAME=VALUE` instead".into(),
            Self::NotBuilt { .. } => "run the job again".into(),
            Self::Layer(fault) => fault.hint(),
            Self::Archive { source, .. } => source.hint(),
            Self::Trees(_) => {
                "check that the state directory is writable and its disk is not full".into()
            }
        }
    }

    /// The error with its causes as one reason.
    pub fn reason(&self) -> Reason {
        let mut message = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            message = format!("{message}: {error}");
            cause = error.source();
        }
        Reason::new(self.code(), message).with_hint(self.hint())
    }
}

/// A directory node that belongs to root.
pub(crate) fn dir_node(path: &str, mode: u32) -> Node {
    Node::Dir {
        path: path.to_owned(),
        mode,
        job_owned: false,
    }
}

#[cfg(test)]
mod tests;
