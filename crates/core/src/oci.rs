//! OCI images as a spec names them, and what an image itself says about the program to run.
//!
//! A spec with such an image is written without knowing what the reference stands for today. Whoever
//! reads the image's manifest and config calls [`JobSpec::resolve`]; the spec that comes of it says
//! everything by itself, and is the one that is recorded.

use std::fmt::{self, Write};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::check::USER_ID_MAX;
use crate::job::{Entrypoint, Image, JobSpec, Layer, User};
use crate::limits::ARGUMENT_BYTES_MAX;

/// A SHA-256 digest as OCI writes it: `sha256:` and 64 lower-case hexadecimal digits.
/// <https://github.com/opencontainers/image-spec/blob/main/descriptor.md#digests>
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct OciDigest(#[schemars(with = "String")] [u8; 32]);

const PREFIX: &str = "sha256:";

impl OciDigest {
    /// Wraps 32 bytes that a hasher gave.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The 64 hexadecimal digits, without the prefix: safe as a file name.
    pub fn to_hex(&self) -> String {
        self.0
            .iter()
            .fold(String::with_capacity(64), |mut hex, byte| {
                write!(hex, "{byte:02x}").expect("a String takes all");
                hex
            })
    }
}

impl fmt::Display for OciDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.to_hex())
    }
}

impl fmt::Debug for OciDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Says that a text is not such a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a digest: `sha256:` and 64 lower-case hexadecimal digits are expected")]
pub struct ParseOciDigestError(String);

impl ParseOciDigestError {
    /// The text is somebody else's: it is shown in part, and moves no terminal's cursor.
    fn of(text: &str) -> Self {
        const CHARS_MAX: usize = 100;
        let shown = text.chars().take(CHARS_MAX);
        Self(shown.flat_map(char::escape_debug).collect())
    }
}

impl FromStr for OciDigest {
    type Err = ParseOciDigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let value = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let digits = text.strip_prefix(PREFIX).map(str::as_bytes);
        let (pairs, rest) = digits.unwrap_or_default().as_chunks::<2>();
        let bytes: Option<Vec<u8>> = pairs
            .iter()
            .map(|[high, low]| Some(value(*high)? << 4 | value(*low)?))
            .collect();
        bytes
            .filter(|_| rest.is_empty())
            .and_then(|bytes| bytes.try_into().ok())
            .map(Self)
            .ok_or_else(|| ParseOciDigestError::of(text))
    }
}

impl TryFrom<String> for OciDigest {
    type Error = ParseOciDigestError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<OciDigest> for String {
    fn from(digest: OciDigest) -> Self {
        digest.to_string()
    }
}

/// What an image says about the program that runs in it: the parts of an OCI image's config that a job
/// honours. <https://github.com/opencontainers/image-spec/blob/main/config.md>
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageConfig {
    /// The digest of the manifest that the reference stood for.
    pub digest: OciDigest,
    /// What the image was made for, `OS/ARCHITECTURE[/VARIANT]`.
    pub platform: String,
    /// `Entrypoint`.
    pub entrypoint: Vec<String>,
    /// `Cmd`.
    pub command: Vec<String>,
    /// `Env`, as `NAME=VALUE`.
    pub env: Vec<String>,
    /// `WorkingDir`, if it has one.
    pub workdir: Option<String>,
    /// `User`, if it has one: a name or a number, perhaps with a group.
    pub user: Option<String>,
    /// `StopSignal`, if it has one.
    pub stop_signal: Option<String>,
}

impl JobSpec {
    /// The spec with everything that its OCI image says and the spec does not: which manifest it is,
    /// the command, variables that the spec (or the command of a layer) neither sets nor passes on, and, unless it has its own,
    /// the working directory (of a job without a workspace), the user and the signal that asks it to end. An image's
    /// signal that no job can be asked with (a real-time one, or one that is not caught) is SIGTERM.
    ///
    /// # Errors
    /// If the config has what no job can be given, or if nobody says what to run. A spec without an OCI
    /// image comes back as it is.
    pub fn resolve(mut self, config: &ImageConfig) -> Result<Self, ResolveError> {
        let Image::Oci {
            reference,
            digest,
            platform,
        } = &mut self.image
        else {
            return Ok(self);
        };
        check_texts(config)?;
        *digest = Some(config.digest);
        *platform = Some(config.platform.clone());
        if self.entrypoint == Entrypoint::Image {
            let own: Vec<String> = std::iter::once(std::mem::take(&mut self.program))
                .filter(|program| !program.is_empty())
                .chain(std::mem::take(&mut self.args))
                .collect();
            let rest = if own.is_empty() {
                config.command.clone()
            } else {
                own
            };
            let mut command = config.entrypoint.iter().cloned().chain(rest);
            self.program = command
                .next()
                .filter(|program| !program.is_empty())
                .ok_or_else(|| ResolveError::NoCommand {
                    reference: reference.clone(),
                })?;
            self.args = command.collect();
            self.entrypoint = Entrypoint::None;
        }
        for variable in &config.env {
            let (name, value) = split_variable(variable)?;
            for layer in &mut self.layers {
                if let Layer::Command { env, .. } = layer {
                    env.entry(name.to_owned())
                        .or_insert_with(|| value.to_owned());
                }
            }
            if !self.env.contains_key(name) && !self.pass_env.iter().any(|passed| passed == name) {
                self.env.insert(name.to_owned(), value.to_owned());
            }
        }
        if self.workdir.is_none() && self.workspace.is_none() {
            self.workdir = config
                .workdir
                .as_deref()
                .filter(|path| !path.is_empty())
                .map(|path| format!("/{}", path.trim_start_matches('/')));
        }
        if self.user.is_none() && self.user_name.is_none() {
            self.take_user(config)?;
        }
        if self.stop_signal.is_default() {
            let own = config.stop_signal.as_deref();
            self.stop_signal = own.and_then(|text| text.parse().ok()).unwrap_or_default();
        }
        Ok(self)
    }

    fn take_user(&mut self, config: &ImageConfig) -> Result<(), ResolveError> {
        let Some(user) = config.user.as_deref().filter(|user| !user.is_empty()) else {
            return Ok(());
        };
        match numbers(user) {
            Some(User { uid, gid }) if uid.max(gid) > USER_ID_MAX => Err(ResolveError::User {
                user: user.to_owned(),
            }),
            Some(user) => {
                self.user = Some(user);
                Ok(())
            }
            None => {
                self.user_name = Some(user.to_owned());
                Ok(())
            }
        }
    }
}

/// `UID:GID`. A number without a group has the group of its line in the image's passwd file, so it is
/// looked up like a name.
fn numbers(text: &str) -> Option<User> {
    let (uid, gid) = text.split_once(':')?;
    Some(User {
        uid: uid.parse().ok()?,
        gid: gid.parse().ok()?,
    })
}

fn split_variable(variable: &str) -> Result<(&str, &str), ResolveError> {
    match variable.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name, value)),
        _ => Err(ResolveError::Variable {
            variable: variable.to_owned(),
        }),
    }
}

/// Refuses what execve(2) cannot pass on.
fn check_texts(config: &ImageConfig) -> Result<(), ResolveError> {
    let one = |what, text: &String| {
        if text.contains('\0') {
            return Err(ResolveError::Nul { what });
        }
        if text.len() > ARGUMENT_BYTES_MAX {
            return Err(ResolveError::TooLong {
                what,
                bytes: text.len(),
            });
        }
        Ok(())
    };
    let mut lists = [
        ("entry point", &config.entrypoint),
        ("command", &config.command),
        ("environment", &config.env),
    ]
    .into_iter();
    lists.try_for_each(|(what, texts)| texts.iter().try_for_each(|text| one(what, text)))?;
    [
        ("working directory", &config.workdir),
        ("user", &config.user),
    ]
    .into_iter()
    .filter_map(|(what, text)| Some((what, text.as_ref()?)))
    .try_for_each(|(what, text)| one(what, text))
}

/// Why what an image says does not make a job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// Neither the job nor the image says what to run.
    #[error(
        "the image `{reference}` has neither an entry point nor a command, and no program was named"
    )]
    NoCommand {
        /// The image.
        reference: String,
    },
    /// A variable is not one.
    #[error("the image's config has `{variable}` as a variable, which is not NAME=VALUE")]
    Variable {
        /// What it has.
        variable: String,
    },
    /// A user has an id that no sandbox has.
    #[error("the image runs as the user `{user}`, and the ids of a sandbox end at {USER_ID_MAX}")]
    User {
        /// What it has.
        user: String,
    },
    /// A text cannot be given to a program.
    #[error("the {what} in the image's config has a NUL byte")]
    Nul {
        /// Which part of the config.
        what: &'static str,
    },
    /// A text is longer than one argument may be.
    #[error(
        "the {what} in the image's config has a text of {bytes} bytes, and {ARGUMENT_BYTES_MAX} is the \
         kernel's limit for one"
    )]
    TooLong {
        /// Which part of the config.
        what: &'static str,
        /// Its bytes.
        bytes: usize,
    },
}

impl ResolveError {
    /// What to do next.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::NoCommand { .. } => "name the program after the flags: `-- PROGRAM ARGS`",
            Self::User { .. } => "name a user that it can run as: `--user UID:GID`",
            Self::Variable { .. } | Self::Nul { .. } | Self::TooLong { .. } => {
                "the image's config is damaged: build or fetch the image again"
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::job::Workspace;

    fn digest() -> OciDigest {
        format!("sha256:{}", "a".repeat(64)).parse().unwrap()
    }

    #[test]
    fn what_is_no_digest_is_told_without_control() {
        let error = "sha256:\u{1b}[2J".parse::<OciDigest>().unwrap_err();
        assert!(
            error.to_string().starts_with("`sha256:\\u{1b}[2J` is not"),
            "{error}"
        );
        let long = "x".repeat(10_000).parse::<OciDigest>().unwrap_err();
        assert!(long.to_string().len() < 200);
    }

    fn config() -> ImageConfig {
        let list = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        ImageConfig {
            digest: digest(),
            platform: "linux/amd64".into(),
            entrypoint: list(&["/init", "--"]),
            command: list(&["serve", "-v"]),
            env: list(&["PATH=/app/bin", "MODE=image", "EMPTY="]),
            workdir: Some("/app".into()),
            user: Some("web:www".into()),
            stop_signal: Some("SIGINT".into()),
        }
    }

    fn spec(program: &str, entrypoint: Entrypoint) -> JobSpec {
        let mut spec = JobSpec::new(program, []);
        spec.image = Image::Oci {
            reference: "app:1".into(),
            digest: None,
            platform: None,
        };
        spec.entrypoint = entrypoint;
        spec
    }

    #[test]
    fn a_command_is_the_entry_point_and_what_follows_it() {
        for (program, entrypoint, expected) in [
            ("", Entrypoint::Image, "/init -- serve -v"),
            ("sh", Entrypoint::Image, "/init -- sh"),
            ("sh", Entrypoint::None, "sh"),
        ] {
            let spec = spec(program, entrypoint).resolve(&config()).unwrap();
            assert_eq!(spec.command().join(" "), expected);
            assert_eq!(spec.entrypoint, Entrypoint::None);
        }
        let mut bare = config();
        bare.entrypoint.clear();
        let resolved = spec("", Entrypoint::Image).resolve(&bare).unwrap();
        assert_eq!(
            (resolved.program.as_str(), resolved.args.len()),
            ("serve", 1)
        );
        bare.command.clear();
        let error = spec("", Entrypoint::Image).resolve(&bare).unwrap_err();
        assert!(matches!(error, ResolveError::NoCommand { .. }), "{error}");
        // Arguments without a program are the entry point's.
        let mut arguments = spec("", Entrypoint::Image);
        arguments.args = vec!["--help".into()];
        let resolved = arguments.resolve(&config()).unwrap();
        assert_eq!(resolved.command().join(" "), "/init -- --help");
    }

    #[test]
    fn what_the_job_says_goes_before_what_the_image_says() {
        let resolved = spec("sh", Entrypoint::None).resolve(&config()).unwrap();
        assert_eq!(resolved.env["MODE"], "image");
        assert_eq!(resolved.env["EMPTY"], "");
        assert_eq!(resolved.workdir.as_deref(), Some("/app"));
        assert_eq!(
            (resolved.user, resolved.user_name.as_deref()),
            (None, Some("web:www"))
        );
        let expected = Image::Oci {
            reference: "app:1".into(),
            digest: Some(digest()),
            platform: Some("linux/amd64".into()),
        };
        assert_eq!(resolved.image, expected);

        let mut own = spec("sh", Entrypoint::None);
        own.env.insert("MODE".into(), "job".into());
        own.pass_env = vec!["PATH".into()];
        own.user = Some(User { uid: 1, gid: 2 });
        own.workspace = Some(Workspace {
            path: "/w".into(),
            write: false,
        });
        let resolved = own.resolve(&config()).unwrap();
        assert_eq!(resolved.env["MODE"], "job");
        assert!(
            !resolved.env.contains_key("PATH"),
            "the caller's is passed on"
        );
        assert_eq!(resolved.workdir, None, "it starts in the workspace");
        assert_eq!(
            (resolved.user, resolved.user_name),
            (Some(User { uid: 1, gid: 2 }), None)
        );
    }

    #[test]
    fn an_images_signal_asks_its_jobs_to_end() {
        let with = |own: &str, image: Option<&str>| {
            let mut spec = spec("sh", Entrypoint::None);
            spec.stop_signal = own.parse().unwrap();
            let mut config = config();
            config.stop_signal = image.map(str::to_owned);
            spec.resolve(&config).unwrap().stop_signal.to_string()
        };
        for (own, image, expected) in [
            ("TERM", None, "SIGTERM"),
            ("TERM", Some("SIGINT"), "SIGINT"),
            ("TERM", Some("3"), "SIGQUIT"),
            ("TERM", Some("winch"), "SIGWINCH"),
            ("USR1", Some("SIGINT"), "SIGUSR1"),
            ("TERM", Some("SIGRTMIN+3"), "SIGTERM"),
            ("TERM", Some("SIGKILL"), "SIGTERM"),
        ] {
            assert_eq!(with(own, image), expected, "{own} {image:?}");
        }
    }

    #[test]
    fn a_user_of_two_numbers_needs_no_look_up() {
        let mut numbered = config();
        numbered.user = Some("7:8".into());
        let resolved = spec("sh", Entrypoint::None).resolve(&numbered).unwrap();
        assert_eq!(resolved.user, Some(User { uid: 7, gid: 8 }));
        numbered.user = Some("7:4000000000".into());
        let error = spec("sh", Entrypoint::None).resolve(&numbered).unwrap_err();
        assert!(matches!(error, ResolveError::User { .. }), "{error}");
        // The group of a lone number stands in the image's passwd file.
        numbered.user = Some("7".into());
        let resolved = spec("sh", Entrypoint::None).resolve(&numbered).unwrap();
        assert_eq!(
            (resolved.user, resolved.user_name.as_deref()),
            (None, Some("7"))
        );
    }

    #[test]
    fn what_no_program_can_be_given_is_refused() {
        let try_with = |change: &dyn Fn(&mut ImageConfig)| {
            let mut config = config();
            change(&mut config);
            spec("sh", Entrypoint::None).resolve(&config).unwrap_err()
        };
        let nul = try_with(&|config| config.command[0] = "a\0b".into());
        assert_eq!(nul, ResolveError::Nul { what: "command" });
        let long = try_with(&|config| config.env[0] = format!("A={}", "b".repeat(200_000)));
        assert!(matches!(long, ResolveError::TooLong { .. }), "{long}");
        for variable in ["PATH", "=x", ""] {
            let error = try_with(&|config| config.env[1] = variable.into());
            assert!(matches!(error, ResolveError::Variable { .. }), "{error}");
        }
    }

    #[test]
    fn a_digest_is_sha256_in_lower_case() {
        assert_eq!(digest().to_hex(), "a".repeat(64));
        for wrong in [
            "a".repeat(64),
            format!("sha256:{}", "A".repeat(64)),
            format!("sha256:{}", "a".repeat(63)),
            format!("sha512:{}", "a".repeat(64)),
            format!("sha256:../{}", "a".repeat(61)),
        ] {
            assert!(wrong.parse::<OciDigest>().is_err(), "{wrong}");
            let json = serde_json::to_string(&wrong).unwrap();
            assert!(serde_json::from_str::<OciDigest>(&json).is_err(), "{wrong}");
        }
    }
}
