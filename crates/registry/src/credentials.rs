//! Who one is at a registry: what `docker login` has left in docker's `config.json`.
//! <https://docs.docker.com/reference/cli/docker/login/#credential-stores>

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde::Deserialize;

use crate::helper_program;
use crate::secret::Secret;

/// Bytes of the file.
const CONFIG_BYTES_MAX: u64 = 4 << 20;
/// What docker calls Docker Hub in its file.
const DOCKER_HUB: &str = "https://index.docker.io/v1/";
/// The name of a user whose secret is a token, as docker's helpers have it.
pub(crate) const TOKEN_USER: &str = "<token>";

/// What is known of sign-ins.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    config: Config,
    path: PathBuf,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Config {
    auths: BTreeMap<String, Auth>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Auth {
    /// `user:password`, in base64.
    auth: Option<Secret>,
    username: Option<String>,
    password: Option<Secret>,
    #[serde(rename = "identitytoken")]
    identity_token: Option<Secret>,
}

/// One sign-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Login {
    /// A name and a password.
    Password { user: String, password: Secret },
    /// A token that others are got with.
    Identity(Secret),
}

/// Why credentials cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The file cannot be read.
    #[error("failed to read `{path}`")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The file is not what it should be.
    #[error("`{path}` is not docker's configuration: {problem}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, without what stands there.
        problem: String,
    },
    /// The entry of a registry is not what it should be.
    #[error("the credentials of `{registry}` in `{path}` cannot be read")]
    Entry {
        /// The file.
        path: PathBuf,
        /// The registry.
        registry: String,
    },
    /// The helper program failed.
    #[error("the credential helper `{program}` failed for `{registry}`: {problem}")]
    Helper {
        /// The program.
        program: String,
        /// The registry.
        registry: String,
        /// What happened.
        problem: String,
    },
}

impl CredentialsError {
    /// What to do next.
    pub fn hint(&self) -> String {
        match self {
            Self::Read { .. } => "make it readable, or set DOCKER_CONFIG".to_owned(),
            Self::Malformed { .. } => {
                "repair the file, or move it away and sign in anew".to_owned()
            }
            Self::Entry { registry, .. } => format!("sign in anew: docker login {registry}"),
            Self::Helper { program, .. } => {
                format!("try `{program} list`, or take it out of docker's configuration")
            }
        }
    }
}

impl Credentials {
    /// No sign-ins: every registry is asked without a name.
    pub fn none() -> Self {
        Self::default()
    }

    /// Reads docker's `config.json`. Where there is none, nobody is signed in.
    pub fn read(path: &Path) -> Result<Self, CredentialsError> {
        let failed = |source| CredentialsError::Read {
            path: path.to_owned(),
            source,
        };
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::none()),
            Err(error) => return Err(failed(error)),
        };
        let mut bytes = Vec::new();
        file.take(CONFIG_BYTES_MAX)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        let config =
            serde_json::from_slice(&bytes).map_err(|error| CredentialsError::Malformed {
                path: path.to_owned(),
                // The library's own words may repeat what stands there, such as a password.
                problem: format!("line {}, column {}", error.line(), error.column()),
            })?;
        Ok(Self {
            config,
            path: path.to_owned(),
        })
    }

    /// The sign-in for a registry. A helper for it goes before the file, as in docker.
    ///
    /// Cancel safe: a helper that runs is killed.
    pub(crate) async fn login(&self, registry: &str) -> Result<Option<Login>, CredentialsError> {
        let names = names_of(registry);
        let own = names
            .iter()
            .find_map(|name| self.config.cred_helpers.get(name));
        let helper = own.or(self.config.creds_store.as_ref());
        if let Some(helper) = helper.filter(|helper| !helper.is_empty()) {
            let server = match registry {
                "docker.io" => DOCKER_HUB,
                other => other,
            };
            if let Some(login) = helper_program::ask(helper, server).await? {
                return Ok(Some(login));
            }
        }
        let found = names.iter().find_map(|name| self.config.auths.get(name));
        match found.map(Auth::login) {
            Some(Ok(login)) => Ok(login),
            Some(Err(Unreadable)) => Err(CredentialsError::Entry {
                path: self.path.clone(),
                registry: registry.to_owned(),
            }),
            None => Ok(None),
        }
    }
}

/// How a registry may be written in the file.
fn names_of(registry: &str) -> Vec<String> {
    let mut names = Vec::new();
    if registry == "docker.io" {
        names.push(DOCKER_HUB.to_owned());
        names.push("index.docker.io".to_owned());
    }
    for prefix in ["", "https://", "http://"] {
        for suffix in ["", "/", "/v1/", "/v2/", "/v1", "/v2"] {
            names.push(format!("{prefix}{registry}{suffix}"));
        }
    }
    names
}

/// The entry is not what it should be. What is wrong is not told, for it is a secret.
struct Unreadable;

impl Auth {
    /// `Ok(None)` for an empty entry, as docker leaves one where a helper has the rest.
    fn login(&self) -> Result<Option<Login>, Unreadable> {
        let filled =
            |secret: &Option<Secret>| secret.clone().filter(|secret| !secret.reveal().is_empty());
        if let Some(token) = filled(&self.identity_token) {
            return Ok(Some(Login::Identity(token)));
        }
        if let Some(auth) = filled(&self.auth) {
            let text = auth.reveal().trim();
            let bytes = STANDARD
                .decode(text)
                .or_else(|_| STANDARD_NO_PAD.decode(text))
                .map_err(|_| Unreadable)?;
            let text = String::from_utf8(bytes).map_err(|_| Unreadable)?;
            let (user, password) = text.split_once(':').ok_or(Unreadable)?;
            let password = password.trim_end_matches('\0').to_owned();
            return Ok(Some(Login::of(user, Secret::new(password))));
        }
        match (&self.username, filled(&self.password)) {
            (Some(user), Some(password)) => Ok(Some(Login::of(user, password))),
            _ => Ok(None),
        }
    }
}

impl Login {
    pub(crate) fn of(user: &str, secret: Secret) -> Self {
        if user == TOKEN_USER {
            return Self::Identity(secret);
        }
        Self::Password {
            user: user.to_owned(),
            password: secret,
        }
    }

    /// `user:password` in base64; nothing for a token.
    pub(crate) fn to_basic(&self) -> Option<Secret> {
        match self {
            Self::Password { user, password } => {
                let text = format!("{user}:{}", password.reveal());
                Some(Secret::new(STANDARD.encode(text)))
            }
            Self::Identity(_) => None,
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(config: &Value) -> Result<Credentials, CredentialsError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.json");
        std::fs::write(&path, config.to_string()).unwrap();
        Credentials::read(&path)
    }

    fn login(config: &Value, registry: &str) -> Result<Option<Login>, CredentialsError> {
        let credentials = read(config)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(credentials.login(registry))
    }

    fn password(user: &str, password: &str) -> Login {
        Login::Password {
            user: user.to_owned(),
            password: Secret::new(password.to_owned()),
        }
    }

    #[test]
    fn entries_are_found_by_all_their_names() {
        let entry = json!({ "auth": STANDARD.encode("me:pass:word") });
        for (name, registry) in [
            ("https://index.docker.io/v1/", "docker.io"),
            ("docker.io", "docker.io"),
            ("a.b:5000", "a.b:5000"),
            ("https://a.b/v2/", "a.b"),
        ] {
            let config = json!({ "auths": { name: entry } });
            let found = login(&config, registry).unwrap();
            assert_eq!(found, Some(password("me", "pass:word")), "{name}");
            assert_eq!(login(&config, "other.example").unwrap(), None);
        }
    }

    #[test]
    fn all_forms_are_read() {
        let found = |entry: Value| login(&json!({ "auths": { "a.b": entry } }), "a.b");
        let token = found(json!({ "auth": "", "identitytoken": "tok" })).unwrap();
        assert_eq!(token, Some(Login::Identity(Secret::new("tok".to_owned()))));
        let plain = found(json!({ "username": "me", "password": "pw" })).unwrap();
        assert_eq!(plain, Some(password("me", "pw")));
        assert_eq!(found(json!({})).unwrap(), None);
        let error = found(json!({ "auth": "!hunter2!" })).unwrap_err();
        assert!(matches!(error, CredentialsError::Entry { .. }));
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }

    #[test]
    fn a_damaged_file_does_not_tell_its_secrets() {
        let error =
            read(&json!({ "auths": { "a.b": { "auth": 5, "password": "hunter2" } } })).unwrap_err();
        assert!(error.to_string().contains("line 1, column"), "{error}");
        let error = read(&json!({ "auths": "hunter2" })).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        let none = Credentials::read(Path::new("/nowhere/config.json")).unwrap();
        assert!(none.config.auths.is_empty());
    }

    #[test]
    fn a_helper_that_is_a_path_is_refused() {
        let config = json!({ "credHelpers": { "a.b": "../../tmp/evil" } });
        let error = login(&config, "a.b").unwrap_err();
        assert!(
            error.to_string().contains("is not the name of a helper"),
            "{error}"
        );
        let config = json!({ "credsStore": "of-nobody-at-all" });
        let error = login(&config, "a.b").unwrap_err();
        assert!(
            error
                .to_string()
                .contains("docker-credential-of-nobody-at-all"),
            "{error}"
        );
    }
}
