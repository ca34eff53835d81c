//! Manifests and indexes: small, read as a whole, and checked before anybody looks into them.

use reqwest::header::{CONTENT_TYPE, HeaderName};
use tidemill_oci::manifest::MANIFEST_BYTES_MAX;
use tidemill_oci::{OciDigest, digest_of};

use crate::client::{Ask, Failed, RegistryError, Session};
use crate::progress::Watch;
use crate::retry::Tries;

/// What is wanted: OCI's kinds and Docker's, one image or several.
const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, \
    application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, \
    application/vnd.docker.distribution.manifest.v2+json";
/// The digest that a registry gives for what it sends.
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");

/// A manifest or an index as it came.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) bytes: Vec<u8>,
    /// What the registry says it is.
    pub(crate) media_type: Option<String>,
}

/// Gets what a tag or a digest leads to, checked by the digest.
///
/// Cancel safe.
pub(crate) async fn fetch(
    session: &Session,
    name: &str,
    digest: Option<&OciDigest>,
    watch: &Watch,
) -> Result<Fetched, RegistryError> {
    let mut tries = Tries::new(session.patience(), &name);
    loop {
        match attempt(session, name, digest).await {
            Ok(fetched) => return Ok(fetched),
            Err(failed) => failed.wait(&mut tries, 0, watch).await?,
        }
    }
}

async fn attempt(
    session: &Session,
    name: &str,
    digest: Option<&OciDigest>,
) -> Result<Fetched, Failed> {
    let url = session.address().of_part("manifests", name);
    let separator = if digest.is_some() { "@" } else { ":" };
    let ask = Ask {
        accept: Some(ACCEPT),
        from: 0,
        what: format!("{}{separator}{name}", session.address().repository()),
    };
    let mut response = session.get(&url, &ask).await?;
    let text = |name: HeaderName| {
        let value = response.headers().get(name)?.to_str().ok()?;
        Some(value.to_owned())
    };
    let media_type = text(CONTENT_TYPE)
        .and_then(|value| value.split(';').next().map(|first| first.trim().to_owned()));
    let given: Option<OciDigest> = text(CONTENT_DIGEST).and_then(|value| value.parse().ok());
    let bytes = session
        .body(&mut response, MANIFEST_BYTES_MAX)
        .await?
        .ok_or_else(|| {
            let problem = format!("a manifest of more than {MANIFEST_BYTES_MAX} bytes");
            session.wrong(response.url(), &ask, problem)
        })?;
    let found = digest_of(&bytes);
    if let Some(expected) = digest.or(given.as_ref()).filter(|digest| **digest != found) {
        let problem = format!("its digest is {found}, not {expected}");
        return Err(session.wrong(response.url(), &ask, problem).into());
    }
    Ok(Fetched { bytes, media_type })
}
