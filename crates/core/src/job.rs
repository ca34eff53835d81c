//! The job spec: what to run, immutable once accepted, named by the digest of its canonical form.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::grant::GrantRequest;
pub use crate::layer::Layer;
use crate::limits::Limits;
use crate::oci::OciDigest;
use crate::signal::StopSignal;
use crate::time::Millis;
use crate::{ByteSize, Digest};

/// The version of the spec format.
pub const SPEC_VERSION: u32 = 1;

/// A checked job spec. What people write (flags, `job.json`) is a draft; this is what came of it
/// when every mistake was ruled out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// The format's version, [`SPEC_VERSION`].
    pub version: u32,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Labels for finding it again.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The program: a path in the sandbox, or a name to be found on the job's PATH. Empty only as long
    /// as `entrypoint` is `image` and the image is not resolved.
    pub program: String,
    /// Its arguments.
    #[serde(default)]
    pub args: Vec<String>,
    /// What of an OCI image's own command goes before them: nothing, once the image is resolved.
    #[serde(default, skip_serializing_if = "Entrypoint::is_none")]
    pub entrypoint: Entrypoint,
    /// What the root file system is made of.
    pub image: Image,
    /// Layers over the image, later ones over earlier ones.
    #[serde(default)]
    pub layers: Vec<Layer>,
    /// The directory of the host that the job works in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Workspace>,
    /// Where the program starts; the workspace if absent, else `/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// The environment, beside what the sandbox sets by itself.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Names of variables that are taken from the caller's environment.
    #[serde(default)]
    pub pass_env: Vec<String>,
    /// The network.
    pub network: Network,
    /// What it gets beyond that, by name: sorted, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<GrantRequest>,
    /// Bounds.
    pub limits: Limits,
    /// What asks all its processes to end; SIGTERM if absent.
    #[serde(default, skip_serializing_if = "StopSignal::is_default")]
    pub stop_signal: StopSignal,
    /// The user in the sandbox; the image's or the caller's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<User>,
    /// The same by name, `NAME[:GROUP]`, looked up in the root's own user database; never together with
    /// `user`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_name: Option<String>,
    /// Where standard input comes from.
    pub stdin: Stdin,
    /// True for a terminal as standard input, output and error.
    #[serde(default)]
    pub tty: bool,
    /// True to wait for processes that outlive the main one, instead of killing them.
    #[serde(default)]
    pub wait_children: bool,
    /// Higher goes first.
    #[serde(default)]
    pub priority: i32,
    /// How long it will take, if that is known: the longest goes first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Millis>,
}

impl JobSpec {
    /// A job that runs one program with every default, in the `host` image and no workspace.
    pub fn new(program: impl Into<String>, args: impl IntoIterator<Item = String>) -> Self {
        Self {
            version: SPEC_VERSION,
            name: None,
            labels: BTreeMap::new(),
            program: program.into(),
            args: args.into_iter().collect(),
            entrypoint: Entrypoint::None,
            image: Image::Host,
            layers: Vec::new(),
            workspace: None,
            workdir: None,
            env: BTreeMap::new(),
            pass_env: Vec::new(),
            network: Network::None,
            grants: Vec::new(),
            limits: Limits::default(),
            stop_signal: StopSignal::default(),
            user: None,
            user_name: None,
            stdin: Stdin::Empty,
            tty: false,
            wait_children: false,
            priority: 0,
            estimate: None,
        }
    }

    /// The canonical form: JSON with fields in the order of this declaration, maps sorted by key,
    /// no white space.
    pub fn to_canonical(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a spec has only string keys and no fallible serialiser")
    }

    /// The digest of the canonical form.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.to_canonical())
    }

    /// Program and arguments as one list, which is empty if only the image knows them.
    pub fn command(&self) -> Vec<String> {
        std::iter::once(self.program.clone())
            .filter(|program| !program.is_empty())
            .chain(self.args.iter().cloned())
            .collect()
    }
}

/// What the root file system is made of.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Image {
    /// The host's own programs and libraries, read-only, without its secrets.
    Host,
    /// Nothing but what the layers bring.
    None,
    /// A directory of the host as the root, read-only below the private layer.
    Dir {
        /// An absolute path on the host.
        path: String,
    },
    /// A tar archive (plain, gzip, zstd, xz) of a root file system.
    Tar {
        /// An absolute path on the host.
        path: String,
    },
    /// An OCI image of a registry, or one that was imported.
    Oci {
        /// `[HOST[:PORT]/]NAME[:TAG][@DIGEST]`, as it was written.
        reference: String,
        /// The digest of the manifest that it was resolved to; absent until then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<OciDigest>,
        /// Which of an index's images, `OS/ARCHITECTURE[/VARIANT]`; this machine's if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        platform: Option<String>,
    },
}

/// What of an OCI image's own command a job runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Entrypoint {
    /// Nothing: the job's program and arguments are the whole command.
    #[default]
    None,
    /// Its entry point goes before the job's program and arguments; if there are neither, its command
    /// follows.
    Image,
}

impl Entrypoint {
    /// True for the default.
    pub const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

/// The directory of the host that the job works in. It has the same path in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Workspace {
    /// An absolute path on the host.
    pub path: String,
    /// True if the job writes the real directory; else it writes a private copy-on-write layer.
    pub write: bool,
}

/// What network a job has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// A loopback of its own, nothing else.
    None,
    /// The host's.
    Host,
}

/// A user and group by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// User id in the sandbox.
    pub uid: u32,
    /// Group id in the sandbox.
    pub gid: u32,
}

/// Where standard input comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stdin {
    /// Nowhere: end of file at once.
    Empty,
    /// From the caller.
    Inherit,
}

/// Bytes of a spec's canonical form at most.
pub const SPEC_BYTES_MAX: ByteSize = ByteSize::mib(4);
