//! Pulling an image: its manifest, the right one of several, its configuration, and the layers that are
//! missing, some at a time.

use std::sync::Arc;

use tidemill_oci::config::CONFIG_BYTES_MAX;
use tidemill_oci::manifest::MANIFEST_BYTES_MAX;
use tidemill_oci::{
    Content, ContentError, Descriptor, Document, Hold, Image, ImageError, ManifestError, Named,
    Names, NamesError, OciDigest, Platform, Reference, digest_of,
};
use tokio::task::{JoinError, JoinSet, spawn_blocking};

use crate::blob::{self, BlobError};
use crate::client::{Client, RegistryError, Session};
use crate::document;
use crate::progress::{Progress, Watch};

/// Downloads at one time: what registries allow, and enough for a fast line.
const PARALLEL: usize = 4;
/// Indexes in indexes.
const DEPTH_MAX: usize = 4;

/// An image that is in the store now.
#[derive(Debug)]
pub struct Pulled {
    /// Its name, and what it was chosen from.
    pub named: Named,
    /// The image.
    pub image: Image,
    /// Bytes of its blobs that were missing before.
    pub fetched: u64,
}

/// Why an image could not be pulled.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// The registry did not give it.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// It is not an image that can be used here.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// It could not be named.
    #[error(transparent)]
    Names(#[from] NamesError),
    /// A defect in Tidemill.
    #[error("a task of the pull ended in panic")]
    Panicked(#[source] JoinError),
}

impl PullError {
    /// What to do next.
    pub fn hint(&self) -> String {
        match self {
            Self::Registry(error) => error.hint(),
            Self::Image(error) => error.hint(),
            Self::Names(error) => error.hint().to_owned(),
            Self::Panicked(_) => "this is a defect in tidemill: report it".to_owned(),
        }
    }
}

impl From<BlobError> for PullError {
    fn from(error: BlobError) -> Self {
        match error {
            BlobError::Registry(error) => Self::Registry(error),
            BlobError::Content(error) => Self::Image(error.into()),
            BlobError::Panicked(error) => Self::Panicked(error),
        }
    }
}

impl From<ContentError> for PullError {
    fn from(error: ContentError) -> Self {
        Self::Image(error.into())
    }
}

impl From<ManifestError> for PullError {
    fn from(error: ManifestError) -> Self {
        Self::Image(error.into())
    }
}

impl Client {
    /// Pulls an image into the store and gives it its name there. What is there already is not fetched
    /// again; a name with a digest whose image is there needs no registry at all. Any number of processes
    /// may pull the same at once.
    ///
    /// Cancel safe: what has come stays, and the next pull goes on with it.
    pub async fn pull(
        &self,
        reference: &Reference,
        platform: &Platform,
        content: &Content,
        watch: &Watch,
    ) -> Result<Pulled, PullError> {
        let pull = Pull {
            session: Arc::new(self.session(reference)?),
            reference,
            platform,
            content,
            watch,
        };
        let hold = pull.hold().await?;
        let (image, index) = match pull.known()? {
            Some(known) => known,
            None => pull.resolve().await?,
        };
        let fetched = pull.layers(&image).await?;
        let named = Named {
            reference: reference.clone(),
            manifest: image.manifest.descriptor.clone(),
            platform: image.config.platform.clone(),
            index,
            is_local: false,
        };
        Names::new(content).set(&named)?;
        drop(hold);
        Ok(Pulled {
            named,
            image,
            fetched,
        })
    }
}

/// One pull.
struct Pull<'a> {
    session: Arc<Session>,
    reference: &'a Reference,
    platform: &'a Platform,
    content: &'a Content,
    watch: &'a Watch,
}

impl Pull<'_> {
    async fn hold(&self) -> Result<Hold, PullError> {
        let content = self.content.clone();
        let held = spawn_blocking(move || content.hold()).await;
        Ok(held.map_err(PullError::Panicked)??)
    }

    /// The image of a digest that is here with everything that it needs.
    fn known(&self) -> Result<Option<(Image, Option<OciDigest>)>, PullError> {
        let Some(digest) = self.reference.digest() else {
            return Ok(None);
        };
        let Some(size) = self.content.size(digest)? else {
            return Ok(None);
        };
        let descriptor = Descriptor {
            media_type: String::new(),
            digest: *digest,
            size,
        };
        let Ok(image) = Image::choose(self.content, &descriptor, self.platform) else {
            // Whatever is missing or damaged is fetched.
            return Ok(None);
        };
        if !image.missing(self.content)?.is_empty() {
            return Ok(None);
        }
        let is_index = image.manifest.descriptor.digest != *digest;
        Ok(Some((image, is_index.then_some(*digest))))
    }

    /// Asks the registry what the name means, and brings manifest and configuration.
    async fn resolve(&self) -> Result<(Image, Option<OciDigest>), PullError> {
        let mut digest = self.reference.digest().copied();
        let mut index = None;
        for _ in 0..=DEPTH_MAX {
            let (bytes, media_type) = self.document(digest).await?;
            match Document::parse(&bytes, media_type.as_deref())? {
                Document::Index(inner) => {
                    let found = self.content.put(&bytes)?;
                    index.get_or_insert(found);
                    let chosen = self.platform.choose(&inner).map_err(ImageError::from)?;
                    digest = Some(chosen.descriptor.digest);
                }
                Document::Manifest(manifest) => {
                    let config = manifest.config.clone();
                    if config.size > CONFIG_BYTES_MAX {
                        return Err(ContentError::TooLarge {
                            digest: config.digest,
                            size: tidemill_core::ByteSize(config.size),
                            max: tidemill_core::ByteSize(CONFIG_BYTES_MAX),
                        }
                        .into());
                    }
                    self.content.put(&bytes)?;
                    let nobody = Watch::nobody();
                    blob::fetch(&self.session, &config, self.content, &nobody).await?;
                    let config = self.content.read_small(&config, CONFIG_BYTES_MAX)?;
                    let image = Image::new(manifest, &config)?;
                    image.check_platform(self.platform)?;
                    return Ok((image, index));
                }
            }
        }
        let digest = digest.unwrap_or_else(|| digest_of(b""));
        Err(ImageError::Depth { digest }.into())
    }

    /// A manifest or an index: from the store if its digest is known and it is there.
    async fn document(
        &self,
        digest: Option<OciDigest>,
    ) -> Result<(Vec<u8>, Option<String>), PullError> {
        if let Some(digest) = digest
            && let Some(size) = self.content.size(&digest)?
        {
            let descriptor = Descriptor {
                media_type: String::new(),
                digest,
                size,
            };
            // A damaged one is fetched anew.
            if let Ok(bytes) = self.content.read_small(&descriptor, MANIFEST_BYTES_MAX) {
                return Ok((bytes, None));
            }
        }
        let name = match (&digest, self.reference.tag()) {
            (Some(digest), _) => digest.to_string(),
            (None, tag) => tag.unwrap_or("latest").to_owned(),
        };
        let fetched = document::fetch(&self.session, &name, digest.as_ref(), self.watch).await?;
        Ok((fetched.bytes, fetched.media_type))
    }

    /// Brings the layers that are missing, and answers how many bytes that were.
    async fn layers(&self, image: &Image) -> Result<u64, PullError> {
        let missing = image.missing(self.content)?;
        let bytes = missing.iter().map(|blob| blob.size).sum();
        self.watch.tell(&Progress::Planned {
            blobs: missing.len(),
            bytes,
        });
        let mut tasks = JoinSet::new();
        for blob in missing {
            if tasks.len() >= PARALLEL {
                ended(tasks.join_next().await)?;
            }
            let session = Arc::clone(&self.session);
            let (content, watch) = (self.content.clone(), self.watch.clone());
            tasks.spawn(async move { blob::fetch(&session, &blob, &content, &watch).await });
        }
        // The first error ends the others, with the set.
        while !tasks.is_empty() {
            ended(tasks.join_next().await)?;
        }
        Ok(bytes)
    }
}

fn ended(result: Option<Result<Result<(), BlobError>, JoinError>>) -> Result<(), PullError> {
    match result {
        None => Ok(()),
        Some(Ok(result)) => Ok(result?),
        Some(Err(error)) => Err(PullError::Panicked(error)),
    }
}
