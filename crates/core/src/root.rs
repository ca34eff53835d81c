//! The plan of a job's root file system: which trees are stacked, what is mounted over them, which
//! files are made. The image crate writes it, the sandbox builds it, `explain` shows it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::grant::PathAccess;
use crate::job::User;

/// What the sandbox builds as the root of a job. Steps are taken in the order of the fields, and in
/// each field in the order of the list.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct RootPlan {
    /// Read-only trees that are stacked into `/`, the lowest first. Over them lies the private layer.
    pub trees: Vec<Tree>,
    /// Empty directories and symbolic links that are made before anything is mounted.
    pub nodes: Vec<Node>,
    /// What is mounted over the stack.
    pub mounts: Vec<RootMount>,
    /// Small files that are written last (user database, host name, resolver).
    pub files: Vec<GeneratedFile>,
    /// Who the job is.
    pub account: Account,
    /// True if the root itself may be written (where its owners allow); false for the `host` image,
    /// where only the listed mounts, the home and the temporary directories may.
    pub root_writable: bool,
    /// Character devices of the host beside [`DEVICES`], absolute paths below `/dev` there without
    /// symbolic links, that appear under the same paths inside and may be read and written. Sorted,
    /// each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// True for a read-only `/sys`, masked where it says more than the job needs; else there is none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sys: bool,
    /// What the job may ask of the kernel beyond what every job may. Sorted, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<Allow>,
}

/// The devices that every job has.
pub const DEVICES: [&str; 6] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
];

/// Something that a job may ask of the kernel because it was granted by name.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Allow {
    /// To make user namespaces, and to be root with all capabilities inside of them.
    UserNamespaces,
    /// To trace its own processes. Every job may, so this widens nothing.
    Ptrace,
    /// To mount file systems that a process of the job serves through `/dev/fuse`, in a user namespace
    /// that the job made: [`Allow::UserNamespaces`] comes with it.
    Fuse,
    /// What root may do with files, ids and processes of the job: the capabilities CHOWN, DAC_OVERRIDE,
    /// FOWNER, FSETID, KILL, SETGID and SETUID of capabilities(7), over the ids of its user namespace.
    RootRights,
}

/// Who the job is inside.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Account {
    /// User and group number inside.
    pub user: User,
    /// The user's name.
    pub name: String,
    /// The home directory, which exists and is writable.
    pub home: String,
    /// Further groups that it is in, where the sandbox has them. Sorted, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<u32>,
}

/// One read-only tree of the host.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Tree {
    /// An absolute path on the host.
    pub path: String,
    /// How its owners appear.
    pub owners: Owners,
}

/// How the owners of files on the host's disk appear inside. The first needs nothing; the others
/// need an id-mapped mount where the runner is root, and are what they are where it is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Owners {
    /// Ids that the job's user namespace does not map appear as `nobody`.
    AsIs,
    /// Files of this one owner appear as the job's own, and what the job writes through a writable
    /// mount belongs to this owner.
    Job {
        /// The owner's user id on the host.
        uid: u32,
        /// The owner's group id on the host.
        gid: u32,
    },
    /// Ids 0 to 65535 on disk appear as the same ids inside.
    Range,
}

/// An empty directory or a symbolic link in the root.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Node {
    /// A directory (its parents are made too).
    Dir {
        /// An absolute path inside.
        path: String,
        /// Permission bits.
        mode: u32,
        /// True if it belongs to the job's user, false if to root.
        job_owned: bool,
    },
    /// A symbolic link.
    Symlink {
        /// An absolute path inside.
        path: String,
        /// What it points to.
        target: String,
    },
}

/// A directory or file of the host that appears inside.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct RootMount {
    /// An absolute path on the host, without symbolic links.
    pub source: String,
    /// An absolute path inside; missing directories on the way are made.
    pub dest: String,
    /// Read-only trees that are stacked over the source, the lowest first: `dest` shows the overlay
    /// of all. Empty for most mounts. If not, the source is a directory, and so is each tree.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub over: Vec<Tree>,
    /// What the job may do.
    pub access: PathAccess,
    /// How owners appear.
    pub owners: Owners,
    /// Paths relative to `dest` that are hidden (an empty file or directory is in their place).
    /// Those that do not exist are passed over.
    pub hidden: Vec<String>,
    /// Why it is there, for people.
    pub why: String,
}

/// A small file, readable by all.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct GeneratedFile {
    /// An absolute path inside; the directory is made if missing.
    pub path: String,
    /// What is in it.
    pub content: String,
}
