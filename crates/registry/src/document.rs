//! Manifests, indexes and configurations: small, read as a whole, and checked before anybody looks into them.

use reqwest::Url;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName};
use tidemill_oci::manifest::MANIFEST_BYTES_MAX;
use tidemill_oci::{Descriptor, OciDigest, digest_of};

use crate::client::{Ask, Failed, Session};
use crate::progress::Watch;
use crate::registry_error::RegistryError;
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
    let separator = if digest.is_some() { "@" } else { ":" };
    let order = Order {
        url: session.address().of_part("manifests", name),
        ask: Ask {
            accept: Some(ACCEPT),
            from: 0,
            what: format!("{}{separator}{name}", session.address().repository()),
        },
        digest,
        size: None,
        bytes_max: MANIFEST_BYTES_MAX,
        noun: "a manifest",
    };
    order.fetch(session, name, watch).await
}

/// Gets the configuration of an image, checked by its digest. It is small enough for the memory.
///
/// Cancel safe.
pub(crate) async fn fetch_config(
    session: &Session,
    config: &Descriptor,
    watch: &Watch,
) -> Result<Vec<u8>, RegistryError> {
    let name = config.digest.to_string();
    let order = Order {
        url: session.address().of_part("blobs", &name),
        ask: Ask {
            accept: None,
            from: 0,
            what: name.clone(),
        },
        digest: Some(&config.digest),
        size: Some(config.size),
        bytes_max: config.size,
        noun: "a configuration",
    };
    Ok(order.fetch(session, &name, watch).await?.bytes)
}

/// What is to be got, and how much of it at most.
struct Order<'a> {
    url: Url,
    ask: Ask,
    digest: Option<&'a OciDigest>,
    /// Its bytes, if they are known.
    size: Option<u64>,
    bytes_max: u64,
    noun: &'static str,
}

impl Order<'_> {
    async fn fetch(
        &self,
        session: &Session,
        name: &str,
        watch: &Watch,
    ) -> Result<Fetched, RegistryError> {
        let mut tries = Tries::new(session.patience(), &name);
        loop {
            match self.attempt(session).await {
                Ok(fetched) => return Ok(fetched),
                Err(failed) => failed.wait(&mut tries, 0, watch).await?,
            }
        }
    }

    async fn attempt(&self, session: &Session) -> Result<Fetched, Failed> {
        let mut response = session.get(&self.url, &self.ask).await?;
        let announced = response.headers().get(CONTENT_LENGTH);
        let announced = announced.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if let (Some(found), Some(size)) = (announced, self.size)
            && found != size
        {
            let problem = format!("{found} bytes, where {size} are announced");
            let error = session.wrong(response.url(), &self.ask, problem);
            // It may be a proxy's mistake of the moment.
            return Err(Failed::passing(error));
        }
        let text = |name: HeaderName| {
            let value = response.headers().get(name)?.to_str().ok()?;
            Some(value.to_owned())
        };
        let media_type = text(CONTENT_TYPE)
            .and_then(|value| value.split(';').next().map(|first| first.trim().to_owned()));
        let given: Option<OciDigest> = text(CONTENT_DIGEST).and_then(|value| value.parse().ok());
        let bytes = session
            .body(&mut response, self.bytes_max)
            .await?
            .ok_or_else(|| {
                let problem = format!("{} of more than {} bytes", self.noun, self.bytes_max);
                session.wrong(response.url(), &self.ask, problem)
            })?;
        let found = digest_of(&bytes);
        if let Some(expected) = self
            .digest
            .or(given.as_ref())
            .filter(|digest| **digest != found)
        {
            let problem = format!("its digest is {found}, not {expected}");
            return Err(session.wrong(response.url(), &self.ask, problem).into());
        }
        Ok(Fetched { bytes, media_type })
    }
}
