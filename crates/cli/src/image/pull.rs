//! `tidemill image pull`.

use std::env;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;
use tidemill_core::ByteSize;
use tidemill_oci::{Content, Platform, Reference};
use tidemill_registry::{Client, ClientOptions, Credentials, Patience, PullError, Pulled};

use super::answer::{ImageAnswer, line};
use super::{Images, platform, progress, reference};
use crate::args::ImagePullArgs;
use crate::failure::{Failure, FailureKind};
use crate::oci;
use crate::output::Output;
use crate::session;
use crate::ui::{Ui, time};

/// The answer as JSON.
#[derive(Debug, Serialize)]
struct Answer {
    version: u32,
    image: ImageAnswer,
    /// Bytes that were not there before.
    fetched: u64,
}

pub(super) fn pull(
    args: &ImagePullArgs,
    images: &Images,
    output: &mut Output,
    ui: &Ui,
) -> Result<u8, Failure> {
    if let Some(name) = prefixed(&args.reference) {
        let message = format!(
            "`{}` has a prefix, and the image of a registry is written without one here",
            args.reference.escape_debug()
        );
        return Err(Failure::new(FailureKind::Usage, message)
            .hint(format!("write {}", name.escape_debug())));
    }
    let reference = reference(&args.reference)?;
    let platform = platform(args.platform.as_deref())?;
    let started = Instant::now();
    let pulled = fetch(&images.content, &reference, &platform, args.plain_http, ui)?;
    say(&pulled, started, ui);
    if reference.digest().is_none() {
        oci::lock(&reference, &pulled.named, args.lock, ui)?;
    }
    let answer = Answer {
        version: 1,
        image: ImageAnswer::new(&pulled.named, &pulled.image),
        fetched: pulled.fetched,
    };
    output.answer(images.format, &answer, || {
        line(&pulled.named, &pulled.image)
    })?;
    Ok(0)
}

/// What is left of a reference without what other places put before it: `oci:` of --image, `docker://` of
/// skopeo and podman, or the `https://` of a browser.
fn prefixed(text: &str) -> Option<&str> {
    ["oci:", "docker://", "https://", "http://"]
        .iter()
        .find_map(|prefix| text.strip_prefix(prefix))
        .filter(|name| !name.is_empty())
}

/// Pulls an image while people see how far it is.
fn fetch(
    content: &Content,
    reference: &Reference,
    platform: &Platform,
    plain_http: bool,
    ui: &Ui,
) -> Result<Pulled, Failure> {
    let client = client(plain_http, None)?;
    let short = reference.to_short();
    let watch = progress::watch(&short, ui);
    let result = session::runtime()?.block_on(async {
        tokio::select! {
            result = client.pull(reference, platform, content, &watch) => Some(result),
            _ = tokio::signal::ctrl_c() => None,
        }
    });
    ui.quiet();
    match result {
        Some(Ok(pulled)) => Ok(pulled),
        Some(Err(error)) => Err(not_pulled(&short, &error)),
        None => {
            let message = format!("the pull of {short} was interrupted");
            Err(Failure::new(FailureKind::Interrupted, message)
                .hint("what has come is kept: the next pull goes on with it"))
        }
    }
}

fn say(pulled: &Pulled, started: Instant, ui: &Ui) {
    let short = pulled.named.reference.to_short();
    if pulled.fetched == 0 {
        ui.note(&format!("{short} was here already"));
    } else {
        let (fetched, took) = (ByteSize(pulled.fetched), time(started.elapsed()));
        ui.note(&format!("{short}: {fetched} fetched in {took}"));
    }
}

/// What talks to registries, as whom docker is signed in. A registry that asks to be left alone for a
/// while gets that while if it is not longer than `left`.
pub(crate) fn client(plain_http: bool, left: Option<Duration>) -> Result<Client, Failure> {
    let mut patience = Patience::default();
    patience.asked_wait_max = patience.asked_wait_max.max(left.unwrap_or_default());
    let unable = |error: &dyn std::error::Error| {
        Failure::new(FailureKind::Unable, "registries cannot be talked to").because(error)
    };
    let credentials = match docker_config() {
        Some(path) => {
            Credentials::read(&path).map_err(|error| unable(&error).hint(error.hint()))?
        }
        None => Credentials::none(),
    };
    Client::new(ClientOptions {
        plain_http,
        credentials,
        patience,
    })
    .map_err(|error| {
        unable(&error).hint("install the certificates of authorities: apt install ca-certificates")
    })
}

/// Docker's configuration: where `DOCKER_CONFIG` says, else in the home.
fn docker_config() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    let directory = match set("DOCKER_CONFIG") {
        Some(directory) => PathBuf::from(directory),
        None => PathBuf::from(set("HOME")?).join(".docker"),
    };
    Some(directory.join("config.json"))
}

/// An image that did not come.
pub(crate) fn not_pulled(name: &str, error: &PullError) -> Failure {
    Failure::new(FailureKind::Unable, format!("cannot pull {name}"))
        .because(error)
        .hint(error.hint())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_of_other_places_is_told_from_a_registry() {
        for (text, name) in [
            ("oci:debian:12", Some("debian:12")),
            ("docker://ghcr.io/a/b", Some("ghcr.io/a/b")),
            ("https://ghcr.io/a/b", Some("ghcr.io/a/b")),
            ("oci", None),
            ("docker:27", None),
            ("localhost:5000/oci:1", None),
        ] {
            assert_eq!(prefixed(text), name, "{text}");
        }
    }
}
