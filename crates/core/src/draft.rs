//! What people write: a job as texts, from flags or a job file, before anything is known to be right.
//!
//! A draft is read by [`Draft::from_json`] or filled field by field, laid over another one by
//! [`Draft::overlay`], and becomes a [`crate::JobSpec`] by [`crate::check::check`].

mod json;
mod layer;

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::diagnostic::Diagnostic;

pub use layer::{ATTRIBUTE_FIELDS, LayerDraft, LayerFields, LayerForm, LayerKind};
pub(crate) use layer::{kind_advice, read_text};

/// A job as people write it. In a job file the fields have these names; sizes, counts and lengths of
/// time are texts such as `512MiB`, `1.5` and `30s`, or bare numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema)]
#[schemars(
    deny_unknown_fields,
    title = "Tidemill job file",
    extend("anyOf" = [
        { "required": ["program"] }, { "required": ["entrypoint"] }, { "required": ["image"] }
    ])
)]
pub struct Draft {
    /// The version of the format: 1, which is also the default.
    #[schemars(with = "Option<u32>")]
    pub version: Option<String>,
    /// A name for people.
    pub name: Option<String>,
    /// Labels for finding it again.
    #[schemars(default)]
    pub labels: BTreeMap<String, String>,
    /// The program: a path in the sandbox, or a name to be found on the job's PATH.
    /// Only an OCI image with a command of its own can do without.
    pub program: Option<String>,
    /// Its arguments.
    #[schemars(default)]
    pub args: Vec<String>,
    /// What goes before program and arguments, instead of an OCI image's own entry point; an empty list
    /// for nothing.
    pub entrypoint: Option<Vec<String>>,
    /// `host` (default), `none`, `dir:PATH`, `tar:PATH` or `oci:REFERENCE`.
    pub image: Option<Located>,
    /// Which of an OCI image's platforms, `OS/ARCHITECTURE[/VARIANT]`; this machine's if absent.
    pub platform: Option<String>,
    /// Layers over the image, later ones over earlier ones: objects, or texts such as `dir:SRC[=DEST]`,
    /// `file:SRC=DEST`, `glob:PATTERN[=DEST]`, `tar:SRC[=DEST]`, `stubs:PATH`, `symlinks:TARGET=LINK`,
    /// `shared-libs:BINARY[=DEST]`, `command:SCRIPT` and `oci:REF[=DEST]`. Options stand before the colon:
    /// `dir,canonical:SRC=DEST`.
    #[schemars(default)]
    pub layers: Vec<LayerDraft>,
    /// The directory of the host that the job works in; the caller's if absent.
    pub workspace: Option<Located>,
    /// True for no such directory.
    #[schemars(default)]
    pub no_workspace: bool,
    /// True if the job writes the real directory instead of a private copy-on-write layer.
    #[schemars(default)]
    pub write: bool,
    /// Where the program starts. Relative to the workspace, unless absolute.
    pub workdir: Option<String>,
    /// Environment variables.
    #[schemars(default)]
    pub env: BTreeMap<String, String>,
    /// Names of variables that are taken from the caller's environment.
    #[schemars(default)]
    pub pass_env: Vec<String>,
    /// `none` (default: a loopback of its own) or `host`.
    pub network: Option<String>,
    /// What it gets beyond that, by name: `userns`, `ptrace`, `fuse`, `kvm`, `sys`, `device:PATH`,
    /// `net:host` or `bind:SRC:DEST[:rw]`.
    #[schemars(default)]
    pub grants: Vec<Located>,
    /// Bounds.
    #[schemars(default)]
    pub limits: LimitsDraft,
    /// What asks all its processes to end: the name or number of a signal, for example `INT`; SIGTERM
    /// if absent. The kill comes after the grace.
    #[schemars(default, schema_with = "quantity")]
    pub stop_signal: Option<String>,
    /// `UID` or `UID:GID` in the sandbox, or `NAME` or `NAME:GROUP` in an image that has them.
    #[schemars(default, schema_with = "quantity")]
    pub user: Option<String>,
    /// `empty` (default: end of file at once) or `inherit` (the caller's; the default with `tty`).
    pub stdin: Option<String>,
    /// True for a terminal as standard input, output and error.
    #[schemars(default)]
    pub tty: bool,
    /// True to wait for processes that outlive the main one, instead of killing them.
    #[schemars(default)]
    pub wait_children: bool,
    /// Higher goes first.
    #[schemars(with = "Option<i32>")]
    pub priority: Option<String>,
    /// How long it will take, if that is known, for example `90s`.
    #[schemars(default, schema_with = "quantity")]
    pub estimate: Option<String>,
    /// What was found wrong while the draft was read.
    #[schemars(skip)]
    pub found: Vec<Diagnostic>,
}

/// Bounds as people write them.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct LimitsDraft {
    /// Memory of all processes together, for example `512MiB`.
    #[schemars(default, schema_with = "quantity")]
    pub memory: Option<String>,
    /// CPU time per wall time, for example `1.5`.
    #[schemars(default, schema_with = "quantity")]
    pub cpus: Option<String>,
    /// Processes and threads at one time.
    #[schemars(default, schema_with = "quantity")]
    pub pids: Option<String>,
    /// Bytes that the job may write to disk, for example `1GiB`.
    #[schemars(default, schema_with = "quantity")]
    pub disk: Option<String>,
    /// Bytes in `/dev/shm`, for example `256MiB`; half of the memory if absent.
    #[schemars(default, schema_with = "quantity")]
    pub shm: Option<String>,
    /// Time from the program's start to its end, for example `10m`.
    #[schemars(default, schema_with = "quantity")]
    pub timeout: Option<String>,
    /// Time between the polite signal and the kill, for example `10s`.
    #[schemars(default, schema_with = "quantity")]
    pub grace: Option<String>,
    /// Bytes of log that are kept, for example `64MiB`.
    #[schemars(default, schema_with = "quantity")]
    pub log: Option<String>,
    /// Open files per process.
    #[schemars(default, schema_with = "quantity")]
    pub open_files: Option<String>,
}

/// A text that may name a path, with the directory that a relative one starts from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// What was written.
    pub text: String,
    /// An absolute path on the host.
    pub base: String,
}

impl Located {
    /// A text and the directory that it is relative to.
    pub fn new(text: impl Into<String>, base: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            base: base.into(),
        }
    }
}

impl JsonSchema for Located {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Located".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

/// A quantity is a text with a unit or a bare number; `null` is the same as absent.
fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["string", "number", "null"] })
}

impl Draft {
    /// This draft with everything that `upper` says laid over it. Layers, passed variables and grants
    /// are added to what is there, labels and variables replace those of the same name, and a program
    /// brings its own arguments.
    #[must_use]
    pub fn overlay(self, upper: Self) -> Self {
        let (program, args) = match upper.program {
            Some(program) => (Some(program), upper.args),
            None => (self.program, self.args),
        };
        let (workspace, no_workspace) = if upper.workspace.is_some() || upper.no_workspace {
            (upper.workspace, upper.no_workspace)
        } else {
            (self.workspace, self.no_workspace)
        };
        Self {
            version: upper.version.or(self.version),
            name: upper.name.or(self.name),
            labels: joined(self.labels, upper.labels),
            program,
            args,
            entrypoint: upper.entrypoint.or(self.entrypoint),
            image: upper.image.or(self.image),
            platform: upper.platform.or(self.platform),
            layers: [self.layers, upper.layers].concat(),
            workspace,
            no_workspace,
            write: self.write || upper.write,
            workdir: upper.workdir.or(self.workdir),
            env: joined(self.env, upper.env),
            pass_env: [self.pass_env, upper.pass_env].concat(),
            network: upper.network.or(self.network),
            grants: [self.grants, upper.grants].concat(),
            limits: self.limits.overlay(upper.limits),
            stop_signal: upper.stop_signal.or(self.stop_signal),
            user: upper.user.or(self.user),
            stdin: upper.stdin.or(self.stdin),
            tty: self.tty || upper.tty,
            wait_children: self.wait_children || upper.wait_children,
            priority: upper.priority.or(self.priority),
            estimate: upper.estimate.or(self.estimate),
            found: [self.found, upper.found].concat(),
        }
    }
}

impl LimitsDraft {
    fn overlay(self, upper: Self) -> Self {
        Self {
            memory: upper.memory.or(self.memory),
            cpus: upper.cpus.or(self.cpus),
            pids: upper.pids.or(self.pids),
            disk: upper.disk.or(self.disk),
            shm: upper.shm.or(self.shm),
            timeout: upper.timeout.or(self.timeout),
            grace: upper.grace.or(self.grace),
            log: upper.log.or(self.log),
            open_files: upper.open_files.or(self.open_files),
        }
    }
}

fn joined(
    mut lower: BTreeMap<String, String>,
    upper: BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    lower.extend(upper);
    lower
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_lie_over_the_file() {
        let file = Draft {
            program: Some("make".into()),
            args: vec!["all".into()],
            layers: vec![LayerDraft::new("dir:a", "/file")],
            env: BTreeMap::from([("A".into(), "1".into()), ("B".into(), "1".into())]),
            no_workspace: true,
            limits: LimitsDraft {
                memory: Some("1GiB".into()),
                pids: Some("10".into()),
                ..LimitsDraft::default()
            },
            ..Draft::default()
        };
        let flags = Draft {
            program: Some("true".into()),
            layers: vec![LayerDraft::new("dir:b", "/cwd")],
            env: BTreeMap::from([("B".into(), "2".into())]),
            workspace: Some(Located::new(".", "/cwd")),
            limits: LimitsDraft {
                memory: Some("2GiB".into()),
                ..LimitsDraft::default()
            },
            ..Draft::default()
        };
        let both = file.overlay(flags);
        assert_eq!(both.program.as_deref(), Some("true"));
        assert!(
            both.args.is_empty(),
            "the file's arguments belong to the file's program"
        );
        assert_eq!(both.layers.len(), 2);
        assert_eq!(both.layers[0].base, "/file");
        assert_eq!((both.env["A"].as_str(), both.env["B"].as_str()), ("1", "2"));
        assert!(
            !both.no_workspace,
            "a workspace on the command line beats none in the file"
        );
        assert_eq!(both.limits.memory.as_deref(), Some("2GiB"));
        assert_eq!(both.limits.pids.as_deref(), Some("10"));
    }
}
