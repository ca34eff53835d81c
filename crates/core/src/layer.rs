//! Layers: what is laid over a job's image, and as whose files with which modes and times.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::de::Deserializer;
use serde::{Deserialize, Serialize};

use crate::job::User;
use crate::oci::OciDigest;

/// One layer over the image. Destinations are absolute paths in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Layer {
    /// A directory, with all that is in it.
    Dir {
        /// An absolute path on the host.
        source: String,
        /// Where it appears.
        dest: String,
        /// Whose its files are, with which modes and times.
        #[serde(default, skip_serializing_if = "Attributes::are_kept")]
        attributes: Attributes,
    },
    /// One file.
    File {
        /// An absolute path on the host.
        source: String,
        /// Where it appears.
        dest: String,
        /// Whose it is, with which mode and time.
        #[serde(default, skip_serializing_if = "Attributes::are_kept")]
        attributes: Attributes,
    },
    /// The files that patterns match, under their paths relative to `base`.
    Glob {
        /// The directory that the patterns are relative to: absolute, on the host.
        base: String,
        /// Patterns in the syntax of the globset crate: a file is in if one of them matches.
        #[serde(alias = "pattern", deserialize_with = "one_or_many")]
        include: Vec<String>,
        /// Patterns of what is left out all the same; one that matches a directory leaves out all that
        /// is in it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        exclude: Vec<String>,
        /// Leading directories that are taken off the paths. Each file has to lie in them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        strip: Option<String>,
        /// The directory in the sandbox that they appear in.
        dest: String,
        /// Whose the files are, with which modes and times.
        #[serde(default, skip_serializing_if = "Attributes::are_kept")]
        attributes: Attributes,
    },
    /// The entries of a tar archive (plain, gzip, zstd, xz).
    Tar {
        /// An absolute path on the host.
        source: String,
        /// The directory in the archive whose content appears; what lies elsewhere is left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        strip: Option<String>,
        /// The directory in the sandbox that they appear in.
        dest: String,
        /// Whose they are, with which modes and times.
        #[serde(default, skip_serializing_if = "Attributes::are_kept")]
        attributes: Attributes,
    },
    /// Empty files and directories.
    Stubs {
        /// Absolute paths in the sandbox, those of directories with a `/` at the end. `{a,b}` stands
        /// for one path with `a` and one with `b`.
        paths: Vec<String>,
        /// Whose they are, with which modes and times.
        #[serde(default, skip_serializing_if = "Attributes::are_kept")]
        attributes: Attributes,
    },
    /// Symbolic links.
    Symlinks {
        /// What each absolute path in the sandbox points to.
        links: BTreeMap<String, String>,
    },
    /// The shared libraries that programs of the host load, and the loader that finds them, under their
    /// own paths. The programs are read and never run.
    SharedLibs {
        /// Absolute paths on the host.
        binaries: Vec<String>,
        /// The directory in the sandbox that takes the place of the host's `/`.
        dest: String,
        /// Whose the files are, with which modes and times.
        #[serde(default, skip_serializing_if = "Attributes::are_kept")]
        attributes: Attributes,
    },
    /// What a command leaves in the directory [`COMMAND_OUTPUT`], where it starts. It runs in a sandbox of
    /// its own over the image and the layers before it, without a network and without a workspace.
    Command {
        /// The program: a path in the sandbox, or a name to be found on its PATH.
        program: String,
        /// Its arguments.
        #[serde(default)]
        args: Vec<String>,
        /// Variables beside those that the sandbox sets by itself.
        #[serde(default)]
        env: BTreeMap<String, String>,
        /// The directory in the sandbox that it appears in.
        dest: String,
        /// Whose the files are, with which modes and times.
        #[serde(default, skip_serializing_if = "Attributes::are_kept")]
        attributes: Attributes,
    },
    /// The files of an OCI image. What the image says of a command, variables and a user does not count.
    Oci {
        /// `[HOST[:PORT]/]NAME[:TAG][@DIGEST]`, as it was written.
        reference: String,
        /// The digest of the manifest that it was resolved to; absent until then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<OciDigest>,
        /// Which of an index's images, `OS/ARCHITECTURE[/VARIANT]`; this machine's if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        platform: Option<String>,
        /// The directory in the image whose content appears; what lies elsewhere is left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        strip: Option<String>,
        /// The directory in the sandbox that it appears in.
        dest: String,
        /// Whose the files are, with which modes and times.
        #[serde(default, skip_serializing_if = "Attributes::are_kept")]
        attributes: Attributes,
    },
}

impl Layer {
    /// What its files become.
    pub fn attributes(&self) -> Attributes {
        match self {
            Self::Dir { attributes, .. }
            | Self::File { attributes, .. }
            | Self::Glob { attributes, .. }
            | Self::Tar { attributes, .. }
            | Self::Stubs { attributes, .. }
            | Self::SharedLibs { attributes, .. }
            | Self::Command { attributes, .. }
            | Self::Oci { attributes, .. } => *attributes,
            Self::Symlinks { .. } => Attributes::default(),
        }
    }
}

/// Where the command of a layer starts, and where it leaves what becomes the layer.
pub const COMMAND_OUTPUT: &str = "/layer";

/// Whose the files of a layer are, with which modes and times, where they are not as they were found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Attributes {
    /// The owner of everything, by its numbers in the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<User>,
    /// The modes of files and directories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Modes>,
    /// The time of the last change of everything, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime: Option<i64>,
}

impl Attributes {
    /// The same on every machine: user and group 0, [`Modes::Normal`], one second after the beginning
    /// of 1970 (many programs take 0 for no time at all).
    pub const CANONICAL: Self = Self {
        owner: Some(User { uid: 0, gid: 0 }),
        mode: Some(Modes::Normal),
        mtime: Some(1),
    };

    /// True if nothing of it stays as it was found.
    pub const fn are_all_given(&self) -> bool {
        self.owner.is_some() && self.mode.is_some() && self.mtime.is_some()
    }

    /// True if everything stays as it was found.
    pub fn are_kept(&self) -> bool {
        *self == Self::default()
    }
}

/// The modes of a layer's files and directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Modes {
    /// 0755 for directories and for files that somebody may execute, 0644 for other files.
    Normal,
    /// These permission bits for files; directories may also be searched by whoever may read them.
    Exact(u32),
}

impl Modes {
    /// The mode of a file that had another one.
    pub const fn of_file(self, found: u32) -> u32 {
        match self {
            Self::Normal if found & 0o111 != 0 => 0o755,
            Self::Normal => 0o644,
            Self::Exact(mode) => mode,
        }
    }

    /// The mode of a directory.
    pub const fn of_dir(self) -> u32 {
        match self {
            Self::Normal => 0o755,
            Self::Exact(mode) => mode | (mode & 0o444) >> 2,
        }
    }
}

impl fmt::Display for Modes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Normal => f.write_str("normal"),
            Self::Exact(mode) => write!(f, "{mode:04o}"),
        }
    }
}

/// Says that a text is no rule for modes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither `normal` nor permission bits such as 0755")]
pub struct ParseModesError(String);

impl FromStr for Modes {
    type Err = ParseModesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "normal" {
            return Ok(Self::Normal);
        }
        let is_octal =
            (3..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        u32::from_str_radix(text, 8)
            .ok()
            .filter(|mode| is_octal && *mode <= 0o777)
            .map(Self::Exact)
            .ok_or_else(|| ParseModesError(text.to_owned()))
    }
}

impl TryFrom<String> for Modes {
    type Error = ParseModesError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Modes> for String {
    fn from(modes: Modes) -> Self {
        modes.to_string()
    }
}

impl JsonSchema for Modes {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Modes".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^(normal|0?[0-7]{3})$" })
    }
}

/// Specs had one pattern before they had lists of them.
fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    struct Visitor;

    impl<'de> serde::de::Visitor<'de> for Visitor {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a pattern or a list of patterns")
        }

        fn visit_str<E>(self, one: &str) -> Result<Self::Value, E> {
            Ok(vec![one.to_owned()])
        }

        fn visit_seq<A: serde::de::SeqAccess<'de>>(
            self,
            mut many: A,
        ) -> Result<Self::Value, A::Error> {
            let mut patterns = Vec::new();
            while let Some(pattern) = many.next_element()? {
                patterns.push(pattern);
            }
            Ok(patterns)
        }
    }

    deserializer.deserialize_any(Visitor)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_layer_of_an_older_spec_is_still_read() {
        let old = json!({ "kind": "glob", "base": "/a", "pattern": "*.rs", "dest": "/b" });
        let layer: Layer = serde_json::from_value(old).unwrap();
        let new = json!({ "kind": "glob", "base": "/a", "include": ["*.rs"], "dest": "/b" });
        assert_eq!(serde_json::to_value(&layer).unwrap(), new);
        assert_eq!(serde_json::from_value::<Layer>(new).unwrap(), layer);
        let old = json!({ "kind": "dir", "source": "/a", "dest": "/b" });
        let layer: Layer = serde_json::from_value(old.clone()).unwrap();
        assert_eq!(serde_json::to_value(&layer).unwrap(), old);
    }

    #[test]
    fn attributes_are_left_out_where_nothing_is_changed() {
        let layer = Layer::Dir {
            source: "/a".into(),
            dest: "/b".into(),
            attributes: Attributes::CANONICAL,
        };
        let json = serde_json::to_value(&layer).unwrap();
        let canonical = json!({ "owner": { "uid": 0, "gid": 0 }, "mode": "normal", "mtime": 1 });
        assert_eq!(json["attributes"], canonical);
        assert_eq!(serde_json::from_value::<Layer>(json).unwrap(), layer);
    }

    #[test]
    fn modes_are_normal_or_octal() {
        for (text, file, dir) in [
            ("normal", 0o644, 0o755),
            ("0640", 0o640, 0o750),
            ("755", 0o755, 0o755),
            ("0600", 0o600, 0o700),
        ] {
            let modes: Modes = text.parse().unwrap();
            assert_eq!(
                (modes.of_file(0o664), modes.of_dir()),
                (file, dir),
                "{text}"
            );
            assert_eq!(modes.to_string().parse(), Ok(modes));
        }
        assert_eq!(Modes::Normal.of_file(0o4750), 0o755);
        for wrong in ["", "64", "0888", "4755", "rwx", "-644", "+644", "00644"] {
            assert!(wrong.parse::<Modes>().is_err(), "{wrong}");
        }
    }
}
