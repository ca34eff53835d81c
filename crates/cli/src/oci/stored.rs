//! The images of a state directory, for a runner: layers that are missing are fetched when a job waits for
//! them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tidemill_core::oci::OciDigest;
use tidemill_image::{ImageLayer, ImageLayers, ImageName};
use tidemill_oci::{Content, Descriptor, Image, Names};
use tidemill_registry::{Lookup, PullError, Resolved};
use tidemill_runner::{BuildProgress, BuildWatch, Cause, OciImages, chain};

use super::fetching;
use super::{Preparing, not_whole};
use crate::failure::Failure;
use crate::image;
use crate::session;

/// The images of a state directory, for a runner.
#[derive(Debug, Clone)]
pub(crate) struct StoredImages {
    directory: PathBuf,
    /// Images that were looked up for the jobs of this process, and of which layers are missing.
    pending: Arc<Mutex<Vec<Resolved>>>,
    /// How long a job waits for them.
    preparing: Option<Preparing>,
}

impl StoredImages {
    /// Those in the directory of a state directory.
    pub(crate) fn new(state_dir: &Path, pending: Vec<Resolved>) -> Self {
        Self {
            directory: image::directory(state_dir),
            pending: Arc::new(Mutex::new(pending)),
            preparing: None,
        }
    }

    /// The same, for a job that has this time: a registry may ask for waits of that length.
    #[must_use]
    pub(crate) fn within(mut self, preparing: Preparing) -> Self {
        self.preparing = Some(preparing);
        self
    }

    fn take(&self, manifest: &OciDigest) -> Option<Resolved> {
        // Whoever panicked has taken one or none.
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let index = pending
            .iter()
            .position(|resolved| resolved.named().manifest.digest == *manifest)?;
        Some(pending.swap_remove(index))
    }

    /// Fetches what is missing of an image.
    fn fetch(
        &self,
        wanted: &ImageName,
        content: &Content,
        watch: &BuildWatch,
    ) -> Result<Image, Cause> {
        let reference = image::reference(&wanted.reference).map_err(failed)?;
        let platform = image::platform(wanted.platform.as_deref()).map_err(failed)?;
        let held = reference.with_digest(wanted.manifest);
        let left = self.preparing.map(|preparing| preparing.left());
        let client = image::client(false, left).map_err(failed)?;
        let name = reference.to_short();
        let watch = fetching::told_to(watch, &reference);
        let pulled = session::runtime().map_err(failed)?.block_on(async {
            let resolved = match self.take(&wanted.manifest) {
                Some(resolved) => resolved,
                // It was here when the job was made, and is not any more.
                None => {
                    let known = Names::new(content).get(&held);
                    if let Ok(Some(named)) = known
                        && named.is_local
                    {
                        return Err(failed(not_whole(&named, "a part of it is gone")));
                    }
                    let lookup = Lookup::IfUnknown;
                    let resolved = client.resolve(&held, &platform, content, lookup, &watch);
                    resolved
                        .await
                        .map_err(|error| not_fetched(&name, reference.registry(), &error))?
                }
            };
            let pulled = client.complete(resolved, content, &watch).await;
            pulled.map_err(|error| not_fetched(&name, reference.registry(), &error))
        });
        Ok(pulled?.image)
    }
}

impl OciImages for StoredImages {
    fn with_layers(
        &self,
        wanted: &ImageName,
        watch: &BuildWatch,
        unpack: &mut dyn FnMut(ImageLayers) -> Result<PathBuf, Cause>,
    ) -> Result<PathBuf, Cause> {
        let opened = Content::open(&self.directory);
        let content = opened.map_err(|error| cause(&error, error.hint()))?;
        // Nobody removes a blob as long as it is held.
        let hold = content
            .hold()
            .map_err(|error| cause(&error, error.hint()))?;
        let image = match load(&content, &wanted.manifest) {
            Some(image) => {
                self.not_needed(wanted);
                image
            }
            None => {
                let image = self.fetch(wanted, &content, watch)?;
                watch.tell(unpacking(&image, &wanted.reference));
                image
            }
        };
        let layers = image.manifest.layers.iter().zip(&image.config.diff_ids);
        let layers = layers.map(|(layer, diff_id)| ImageLayer {
            blob: content.path(&layer.descriptor.digest),
            digest: layer.descriptor.digest,
            diff_id: *diff_id,
        });
        let unpacked = unpack(ImageLayers {
            manifest: wanted.manifest,
            known_as: wanted.reference.clone(),
            layers: layers.collect(),
        });
        drop(hold);
        unpacked
    }

    fn not_needed(&self, image: &ImageName) {
        if let Some(resolved) = self.take(&image.manifest) {
            resolved.settle();
        }
    }
}

fn unpacking(image: &Image, reference: &str) -> BuildProgress {
    let bytes = image.manifest.layers.iter();
    let bytes = bytes.map(|layer| layer.descriptor.size).sum();
    BuildProgress {
        message: format!("unpacking the image {reference}"),
        current: bytes,
        total: Some(bytes),
    }
}

/// The image that is here, if it is whole.
fn load(content: &Content, manifest: &OciDigest) -> Option<Image> {
    let descriptor = Descriptor {
        media_type: String::new(),
        digest: *manifest,
        size: content.size(manifest).ok()??,
    };
    let image = Image::load(content, &descriptor).ok()?;
    let is_whole = image
        .missing(content)
        .is_ok_and(|missing| missing.is_empty());
    is_whole.then_some(image)
}

fn not_fetched(name: &str, registry: &str, error: &PullError) -> Cause {
    Cause {
        message: format!(
            "cannot fetch the image {name} from {registry}: {}",
            chain(error)
        ),
        hint: Some(error.hint()),
    }
}

fn failed(failure: Failure) -> Cause {
    Cause {
        message: failure.to_string(),
        hint: failure.hints.into_iter().next(),
    }
}

fn cause(error: &dyn std::error::Error, hint: &str) -> Cause {
    Cause {
        message: chain(error),
        hint: Some(hint.to_owned()),
    }
}
