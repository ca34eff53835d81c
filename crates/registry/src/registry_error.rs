//! Why a registry did not give what was asked for.

use std::error::Error;
use std::time::Duration;

use reqwest::StatusCode;

use crate::address::AddressError;
use crate::client::REDIRECTS_MAX;
use crate::credentials::CredentialsError;

/// Why a connection failed, without the layers of libraries that it came through.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct TransportError {
    text: String,
    pub(crate) is_connect: bool,
}

impl TransportError {
    pub(crate) fn new(error: &reqwest::Error) -> Self {
        let mut texts = vec![error.to_string()];
        let mut next = error.source();
        while let Some(error) = next {
            texts.push(error.to_string());
            next = error.source();
        }
        // Those in between say where in the library it happened.
        let text = texts.pop().unwrap_or_default();
        Self {
            text,
            is_connect: error.is_connect(),
        }
    }
}

/// Why a registry did not give what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// An address that is not gone to.
    #[error("{host} sends to an address that is not gone to")]
    Address {
        /// Who sends there.
        host: String,
        /// Why not.
        #[source]
        source: AddressError,
    },
    /// The registry's own address.
    #[error("`{host}` cannot be gone to")]
    Host {
        /// The registry.
        host: String,
        /// Why not.
        #[source]
        source: AddressError,
    },
    /// Credentials cannot be had.
    #[error("failed to find out who you are at {host}")]
    Credentials {
        /// The registry.
        host: String,
        /// Why it failed.
        #[source]
        source: CredentialsError,
    },
    /// No TLS, so nobody can be asked who wants it.
    #[error("failed to prepare an encrypted connection to {host}")]
    Tls {
        /// Who was to be asked.
        host: String,
        /// Why it failed.
        #[source]
        source: TransportError,
    },
    /// No answer, or it broke off.
    #[error("failed to {step} {host}")]
    Transport {
        /// What was tried.
        step: &'static str,
        /// Who was asked.
        host: String,
        /// Why it failed.
        #[source]
        source: TransportError,
    },
    /// Nothing came for too long.
    #[error("{host} sent nothing for {} s", after.as_secs_f32())]
    Stalled {
        /// Who was asked.
        host: String,
        /// How long it was waited.
        after: Duration,
    },
    /// Bytes came, and too few of them.
    #[error("{host} sent too little in {} s", after.as_secs_f32())]
    Slow {
        /// Who was asked.
        host: String,
        /// How long it was waited.
        after: Duration,
    },
    /// An answer that says no.
    #[error("{host} answered {status} for {what}{}", colon(said))]
    Status {
        /// Who was asked.
        host: String,
        /// What was asked for.
        what: String,
        /// The status and what it is called.
        status: StatusCode,
        /// What else it said.
        said: String,
    },
    /// It is not there.
    #[error("{host} has no {what}{}", colon(said))]
    NotFound {
        /// Who was asked.
        host: String,
        /// What was asked for.
        what: String,
        /// What else it said.
        said: String,
    },
    /// It is not for us.
    #[error("{host} does not give {what} to {}{}", who(*signed_in), colon(said))]
    Denied {
        /// Who was asked.
        host: String,
        /// What was asked for.
        what: String,
        /// Whether it was told who asks.
        signed_in: bool,
        /// What else it said.
        said: String,
    },
    /// It wants to be signed in to in a way that is not known.
    #[error("{host} wants to be signed in to, and {problem}")]
    SignIn {
        /// Who was asked.
        host: String,
        /// What does not work.
        problem: String,
    },
    /// It sends on and on.
    #[error("{host} sends on more than {REDIRECTS_MAX} times for {what}")]
    Redirects {
        /// Who was asked.
        host: String,
        /// What was asked for.
        what: String,
    },
    /// What came is not what it should be.
    #[error("{host} gave something else for {what}: {problem}")]
    Wrong {
        /// Who was asked.
        host: String,
        /// What was asked for.
        what: String,
        /// What came.
        problem: String,
    },
    /// It was tried again and again.
    #[error("gave up after {tries} {}{}", if *tries == 1 { "try" } else { "tries in a row" }, until(*asked))]
    GaveUp {
        /// How often.
        tries: u32,
        /// The wait that the registry asks for, if that is too long.
        asked: Option<Duration>,
        /// What went wrong the last time.
        #[source]
        source: Box<Self>,
    },
}

fn colon(said: &str) -> String {
    if said.is_empty() {
        String::new()
    } else {
        format!(": {said}")
    }
}

fn until(asked: Option<Duration>) -> String {
    asked.map_or_else(String::new, |asked| {
        format!(
            ", for the registry wants to be asked again after {} s only",
            asked.as_secs()
        )
    })
}

const fn who(signed_in: bool) -> &'static str {
    if signed_in {
        "you"
    } else {
        "somebody who is not signed in"
    }
}

impl RegistryError {
    /// Who was asked.
    pub fn host(&self) -> &str {
        match self {
            Self::Address { host, .. }
            | Self::Host { host, .. }
            | Self::Credentials { host, .. }
            | Self::Tls { host, .. }
            | Self::Transport { host, .. }
            | Self::Stalled { host, .. }
            | Self::Slow { host, .. }
            | Self::Status { host, .. }
            | Self::NotFound { host, .. }
            | Self::Denied { host, .. }
            | Self::SignIn { host, .. }
            | Self::Redirects { host, .. }
            | Self::Wrong { host, .. } => host,
            Self::GaveUp { source, .. } => source.host(),
        }
    }

    /// What went wrong, in a few words, beside [`RegistryError::host`].
    pub fn brief(&self) -> String {
        match self {
            Self::Status { status, .. } => status.to_string(),
            Self::Stalled { after, .. } => format!("nothing came for {} s", after.as_secs_f32()),
            Self::Slow { after, .. } => format!("too little came in {} s", after.as_secs_f32()),
            Self::Transport { source, .. } => source.to_string(),
            Self::Wrong { problem, .. } => format!("what came is wrong: {problem}"),
            Self::GaveUp { source, .. } => source.brief(),
            Self::Address { .. }
            | Self::Host { .. }
            | Self::Credentials { .. }
            | Self::Tls { .. }
            | Self::NotFound { .. }
            | Self::Denied { .. }
            | Self::SignIn { .. }
            | Self::Redirects { .. } => self.to_string(),
        }
    }

    /// What to do next.
    pub fn hint(&self) -> String {
        match self {
            Self::Address { .. } | Self::Host { .. } => {
                "a registry may only send on to servers with TLS that are not on this machine or its link; one \
                 without TLS that is named itself is allowed with `tidemill image pull --plain-http`"
                    .to_owned()
            }
            Self::Credentials { source, .. } => source.hint(),
            Self::Tls { .. } => {
                "install the certificates of authorities, for example: apt install ca-certificates"
                    .to_owned()
            }
            Self::Transport { source, .. } if source.is_connect => {
                "check the name, the network and the proxy settings; a registry without TLS needs \
                 --plain-http, which `tidemill image pull` takes"
                    .to_owned()
            }
            Self::Transport { .. }
            | Self::Stalled { .. }
            | Self::Slow { .. }
            | Self::Redirects { .. } => "try again later; what has come so far is kept".to_owned(),
            Self::Status { status, .. } if *status == StatusCode::TOO_MANY_REQUESTS => {
                "wait, or sign in: registries allow more to those they know".to_owned()
            }
            Self::Status { .. } | Self::Wrong { .. } => "ask whoever keeps the registry".to_owned(),
            Self::NotFound { what, .. } if what.starts_with("sha256:") => {
                "the registry lacks a part of the image: it is to be pushed again, or take another tag"
                    .to_owned()
            }
            Self::NotFound { .. } => "check the name and the tag".to_owned(),
            Self::Denied {
                host, signed_in, ..
            } => {
                if *signed_in {
                    format!(
                        "check the name, and whether you may have it; if the password may be wrong: docker login {host}"
                    )
                } else {
                    format!("check the name; if it is private, sign in: docker login {host}")
                }
            }
            Self::SignIn { host, .. } => format!("sign in: docker login {host}"),
            Self::GaveUp { source, .. } => source.hint(),
        }
    }
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text = format!("{text}: {error}");
        next = error.source();
    }
    text
}
