//! Pulling an image: its manifest, the right one of several, its configuration, and the layers that are
//! missing, some at a time.

use std::collections::HashMap;
use std::sync::Arc;

use tidemill_oci::config::CONFIG_BYTES_MAX;
use tidemill_oci::manifest::MANIFEST_BYTES_MAX;
use tidemill_oci::{
    Content, ContentError, Descriptor, Document, Hold, Image, ImageError, ManifestError, Named,
    Names, NamesError, OciDigest, Platform, Reference, Wanted, digest_of,
};
use tokio::task::{JoinError, JoinSet, spawn_blocking};

use crate::blob::{self, BlobError};
use crate::client::{Client, Session};
use crate::document;
use crate::errand::{self, BUSY_WAIT, Task, Turn, Word};
use crate::progress::{Progress, Watch};
use crate::registry_error::{RegistryError, chain};

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
    /// Another process of this machine, which was waited for, could not pull it.
    #[error("{message} (tried by another process of this machine, at the same time)")]
    Elsewhere {
        /// Why, with all causes.
        message: String,
        /// What to do next.
        hint: String,
    },
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
            Self::Elsewhere { hint, .. } => hint.clone(),
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

/// Whether what is here is good enough for a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// A tag is looked up at the registry. A digest whose image is here needs none.
    Always,
    /// What the name means here already is taken.
    IfUnknown,
}

/// An image of which manifest and configuration are in the store. As long as this lives, nothing of it is
/// collected there, and who asks for the same name on this machine gets this answer.
#[derive(Debug)]
pub struct Resolved {
    named: Named,
    image: Image,
    task: Option<Task>,
    /// Its layers, if some were missing: who could not have them since then is not followed by this one.
    layers: Option<Wanted>,
    _hold: Hold,
}

impl Resolved {
    /// An image that has a name here, and of which layers may be missing.
    pub fn known(named: Named, image: Image, hold: Hold) -> Self {
        Self {
            named,
            image,
            task: None,
            layers: None,
            _hold: hold,
        }
    }

    /// Its name, once it is whole, and what it was chosen from.
    pub const fn named(&self) -> &Named {
        &self.named
    }

    /// The image.
    pub const fn image(&self) -> &Image {
        &self.image
    }

    /// It is not needed that the layers come. Who waits for the name takes this answer.
    pub fn settle(self) {
        if let Some(task) = &self.task {
            task.finish(&self.word());
        }
    }

    fn word(&self) -> Word {
        Word::Means {
            manifest: self.named.manifest.digest,
            index: self.named.index,
        }
    }
}

impl Drop for Resolved {
    fn drop(&mut self) {
        // Watchers may have it still.
        self.task.iter().for_each(Task::give_up);
    }
}

impl Client {
    /// Pulls an image into the store and gives it its name there. What is there already is not fetched
    /// again; a name with a digest whose image is there needs no registry at all. Of any number of processes
    /// that pull the same at once, one does it; if it fails, so do they.
    ///
    /// Cancel safe: what has come stays, and the next pull goes on with it.
    pub async fn pull(
        &self,
        reference: &Reference,
        platform: &Platform,
        content: &Content,
        watch: &Watch,
    ) -> Result<Pulled, PullError> {
        // If it cannot be named nothing is fetched.
        Names::new(content).get(reference)?;
        let pull = self.begin(reference, platform, content, watch)?;
        let resolved = pull.resolve(Lookup::Always).await?;
        pull.complete(resolved).await
    }

    /// Finds out what a name means: brings manifest and configuration, and no layer. An image that cannot be
    /// used leaves nothing in the store.
    ///
    /// Cancel safe.
    pub async fn resolve(
        &self,
        reference: &Reference,
        platform: &Platform,
        content: &Content,
        lookup: Lookup,
        watch: &Watch,
    ) -> Result<Resolved, PullError> {
        self.begin(reference, platform, content, watch)?
            .resolve(lookup)
            .await
    }

    /// Brings the layers that are missing, and gives the image its name.
    ///
    /// Cancel safe: what has come stays, and the next pull goes on with it.
    pub async fn complete(
        &self,
        resolved: Resolved,
        content: &Content,
        watch: &Watch,
    ) -> Result<Pulled, PullError> {
        let named = resolved.named.clone();
        self.begin(&named.reference, &named.platform, content, watch)?
            .complete(resolved)
            .await
    }

    fn begin<'a>(
        &self,
        reference: &'a Reference,
        platform: &'a Platform,
        content: &'a Content,
        watch: &'a Watch,
    ) -> Result<Pull<'a>, PullError> {
        Ok(Pull {
            session: Arc::new(self.session(reference)?),
            reference,
            platform,
            content,
            watch,
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

    async fn resolve(&self, lookup: Lookup) -> Result<Resolved, PullError> {
        let hold = self.hold().await?;
        let what = format!(
            "name {} {} {}",
            self.reference,
            self.platform,
            self.session.address().base()
        );
        loop {
            if let Some((image, index)) = self.known()? {
                return self.resolved(image, index, None, hold);
            }
            match errand::turn(self.content, &what, None, self.watch, || ()).await? {
                Turn::Ours(task) => {
                    // Whoever had it before may have brought it.
                    if let Some((image, index)) = self.here(lookup)? {
                        return self.resolved(image, index, None, hold);
                    }
                    let watch = task.watch(self.watch);
                    let asked = self.watched_by(&watch).ask().await;
                    let (image, index) = asked.inspect_err(|error| task.finish(&failed(error)))?;
                    let resolved = self.resolved(image, index, Some(task.clone()), hold)?;
                    task.tell(&resolved.word());
                    return Ok(resolved);
                }
                Turn::Said(Word::Means { manifest, index }) => {
                    if let Some(image) = self.load(&manifest)? {
                        return self.resolved(image, index, None, hold);
                    }
                    // It was removed, by somebody who does not care for holds.
                    tokio::time::sleep(BUSY_WAIT).await;
                }
                Turn::Said(Word::Failed { message, hint }) => {
                    return Err(PullError::Elsewhere { message, hint });
                }
                Turn::Said(Word::Done | Word::UnderWay { .. }) => {}
            }
        }
    }

    fn watched_by<'b>(&'b self, watch: &'b Watch) -> Pull<'b> {
        Pull {
            session: Arc::clone(&self.session),
            watch,
            ..*self
        }
    }

    fn resolved(
        &self,
        image: Image,
        index: Option<OciDigest>,
        task: Option<Task>,
        hold: Hold,
    ) -> Result<Resolved, PullError> {
        let named = Named {
            reference: self.reference.clone(),
            manifest: image.manifest.descriptor.clone(),
            platform: image.config.platform.clone(),
            index,
            is_local: false,
        };
        let layers = match image.missing(self.content)?.is_empty() {
            true => None,
            false => Some(self.content.want(&self.layers_of(&image))?.from_now_on()?),
        };
        Ok(Resolved {
            named,
            image,
            task,
            layers,
            _hold: hold,
        })
    }

    /// The errand of bringing the layers of an image.
    fn layers_of(&self, image: &Image) -> String {
        format!(
            "layers {} {}",
            image.manifest.descriptor.digest,
            self.session.address().of_part("blobs", "")
        )
    }

    async fn complete(&self, mut resolved: Resolved) -> Result<Pulled, PullError> {
        let wanted = resolved.layers.take();
        let fetched = self.layers(&resolved.image, wanted).await;
        let fetched = fetched.inspect_err(|error| {
            // Those who wait for the name would find the same.
            resolved
                .task
                .iter()
                .for_each(|task| task.finish(&failed(error)));
        })?;
        Names::new(self.content).set(&resolved.named)?;
        let pulled = Pulled {
            named: resolved.named.clone(),
            image: resolved.image.clone(),
            fetched,
        };
        resolved.settle();
        Ok(pulled)
    }

    /// What is good enough without the registry.
    fn here(&self, lookup: Lookup) -> Result<Option<(Image, Option<OciDigest>)>, PullError> {
        if lookup == Lookup::Always || self.reference.digest().is_some() {
            return self.known();
        }
        let named = Names::new(self.content).get(self.reference)?;
        let Some(named) = named.filter(|named| self.platform.accepts(&named.platform)) else {
            return Ok(None);
        };
        let image = self.load(&named.manifest.digest)?;
        Ok(image.map(|image| (image, named.index)))
    }

    /// The image of a manifest that is here, with its configuration.
    fn load(&self, manifest: &OciDigest) -> Result<Option<Image>, PullError> {
        let Some(size) = self.content.size(manifest)? else {
            return Ok(None);
        };
        let descriptor = Descriptor {
            media_type: String::new(),
            digest: *manifest,
            size,
        };
        // Whatever is missing or damaged is fetched.
        Ok(Image::load(self.content, &descriptor).ok())
    }

    /// The image of a digest that is here, whatever is missing of its layers.
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
        let is_index = image.manifest.descriptor.digest != *digest;
        Ok(Some((image, is_index.then_some(*digest))))
    }

    /// Asks the registry what the name means, and brings manifest and configuration. They are stored when it
    /// is known that the image can be used.
    async fn ask(&self) -> Result<(Image, Option<OciDigest>), PullError> {
        let mut digest = self.reference.digest().copied();
        let mut indexes: Vec<Vec<u8>> = Vec::new();
        for _ in 0..=DEPTH_MAX {
            let (bytes, media_type) = self.document(digest).await?;
            match Document::parse(&bytes, media_type.as_deref())? {
                Document::Index(index) => {
                    let chosen = self.platform.choose(&index).map_err(ImageError::from)?;
                    digest = Some(chosen.descriptor.digest);
                    indexes.push(bytes);
                }
                Document::Manifest(manifest) => {
                    let config = self.config(&manifest.config).await?;
                    let image = Image::new(manifest, &config)?;
                    image.check_platform(self.platform)?;
                    // What leads to others comes last.
                    for document in [&config, &bytes].into_iter().chain(indexes.iter().rev()) {
                        self.content.put(document)?;
                    }
                    return Ok((image, indexes.first().map(|index| digest_of(index))));
                }
            }
        }
        let digest = digest.unwrap_or_else(|| digest_of(b""));
        Err(ImageError::Depth { digest }.into())
    }

    /// The configuration: from the store if it is there.
    async fn config(&self, config: &Descriptor) -> Result<Vec<u8>, PullError> {
        if config.size > CONFIG_BYTES_MAX {
            return Err(ContentError::TooLarge {
                digest: config.digest,
                size: tidemill_core::ByteSize(config.size),
                max: tidemill_core::ByteSize(CONFIG_BYTES_MAX),
            }
            .into());
        }
        // A damaged one is fetched anew.
        if let Ok(bytes) = self.content.read_small(config, CONFIG_BYTES_MAX) {
            return Ok(bytes);
        }
        Ok(document::fetch_config(&self.session, config, self.watch).await?)
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
    async fn layers(&self, image: &Image, mut wanted: Option<Wanted>) -> Result<u64, PullError> {
        let mut missing = image.missing(self.content)?;
        let bytes = missing.iter().map(|blob| blob.size).sum();
        self.watch.tell(&Progress::Planned {
            blobs: missing.len(),
            bytes,
        });
        let what = self.layers_of(image);
        while !missing.is_empty() {
            let mut arrivals = Arrivals::default();
            let mut has_waited = false;
            let turn = errand::turn(self.content, &what, wanted.take(), self.watch, || {
                has_waited = true;
                arrivals.tell(&missing, self.content, self.watch);
            });
            match turn.await? {
                Turn::Ours(task) => {
                    missing = image.missing(self.content)?;
                    if has_waited {
                        // Now it is this one that fetches.
                        self.watch.tell(&Progress::Planned {
                            blobs: missing.len(),
                            bytes,
                        });
                    }
                    let watch = task.watch(self.watch);
                    let fetched = self.fetch_all(&missing, &watch).await;
                    fetched.inspect_err(|error| task.finish(&failed(error)))?;
                    task.finish(&Word::Done);
                    return Ok(bytes);
                }
                Turn::Said(Word::Failed { message, hint }) => {
                    return Err(PullError::Elsewhere { message, hint });
                }
                Turn::Said(_) => missing = image.missing(self.content)?,
            }
        }
        Ok(bytes)
    }

    async fn fetch_all(&self, missing: &[Descriptor], watch: &Watch) -> Result<(), PullError> {
        let mut tasks = JoinSet::new();
        for blob in missing {
            if tasks.len() >= PARALLEL {
                ended(tasks.join_next().await)?;
            }
            let session = Arc::clone(&self.session);
            let (blob, content, watch) = (blob.clone(), self.content.clone(), watch.clone());
            tasks.spawn(async move { blob::fetch(&session, &blob, &content, &watch).await });
        }
        // The first error ends the others, with the set.
        while !tasks.is_empty() {
            ended(tasks.join_next().await)?;
        }
        Ok(())
    }
}

/// What has come of blobs that another process fetches.
#[derive(Debug, Default)]
struct Arrivals(HashMap<OciDigest, u64>);

impl Arrivals {
    fn tell(&mut self, blobs: &[Descriptor], content: &Content, watch: &Watch) {
        for blob in blobs {
            // If it cannot be looked at, whoever fetches it will say so.
            let bytes = content.arrived(blob).unwrap_or(0);
            if self.0.insert(blob.digest, bytes).unwrap_or(0) != bytes {
                watch.tell(&Progress::Came {
                    digest: blob.digest,
                    bytes,
                });
            }
        }
    }
}

fn failed(error: &PullError) -> Word {
    Word::Failed {
        message: chain(error),
        hint: error.hint(),
    }
}

fn ended(result: Option<Result<Result<(), BlobError>, JoinError>>) -> Result<(), PullError> {
    match result {
        None => Ok(()),
        Some(Ok(result)) => Ok(result?),
        Some(Err(error)) => Err(PullError::Panicked(error)),
    }
}
