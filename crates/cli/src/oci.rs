//! OCI images as roots of jobs: from a reference to what the image says, and from a manifest to its layers.
//!
//! A spec is resolved before it is recorded: which manifest it is, the command, the environment. What is
//! not here yet is pulled. Which digest a tag stands for is remembered in two places: the names in the state
//! directory, which `image pull` renews, and a [lock file](lock_file) in the project, for others and for later.

mod lock_file;

use std::path::{Path, PathBuf};

use tidemill_core::JobSpec;
use tidemill_core::job;
use tidemill_core::oci::{ImageConfig, OciDigest};
use tidemill_image::{ImageLayer, ImageLayers, ImageName};
use tidemill_oci::{Content, Descriptor, Image, Named, Names, Platform, Reference};
use tidemill_registry::Watch;
use tidemill_runner::{Cause, OciImages, chain};

use self::lock_file::LockFile;

use crate::args::GlobalArgs;
use crate::failure::{Failure, FailureKind};
use crate::image;
use crate::session;
use crate::ui::Ui;

/// How an image's reference becomes one image.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resolving<'a> {
    pub(crate) global: &'a GlobalArgs,
    /// True if only what the lock file has is good.
    pub(crate) is_locked: bool,
    pub(crate) ui: &'a Ui,
}

/// An image of the spec, found here or pulled.
struct Found {
    named: Named,
    image: Image,
}

impl Resolving<'_> {
    /// The spec with everything that its OCI image says. A spec without one comes back as it is.
    pub(crate) fn resolve(&self, spec: JobSpec) -> Result<JobSpec, Failure> {
        let job::Image::Oci {
            reference,
            digest,
            platform,
        } = &spec.image
        else {
            if self.is_locked {
                let message = "--locked is about OCI images, and the job has none";
                return Err(Failure::new(FailureKind::Usage, message)
                    .hint("leave it out, or name an image: --image oci:REF"));
            }
            return Ok(spec);
        };
        let wanted = image::reference(reference)?;
        let platform = image::platform(platform.as_deref())?;
        let mut lock = LockFile::of(&spec)?;
        let pinned = digest
            .as_ref()
            .or_else(|| wanted.digest())
            .or_else(|| lock.as_ref()?.digest(&wanted));
        let pinned = match pinned {
            Some(digest) => wanted.with_digest(*digest),
            None if self.is_locked => return Err(not_locked(&wanted, lock.as_ref())),
            None => wanted.clone(),
        };
        let found = self.find(&pinned, &platform)?;
        if let Some(lock) = lock.as_mut().filter(|_| wanted.digest().is_none())
            && lock.digest(&wanted).is_none()
        {
            lock.set(&wanted, pin_of(&found.named));
            lock.write()?;
            let (name, path) = (wanted.to_short(), lock.path().display());
            self.ui
                .note(&format!("{name} is held to its digest in {path}"));
        }
        let config = config_of(&found);
        spec.resolve(&config)
            .map_err(|error| Failure::new(FailureKind::Usage, error.to_string()).hint(error.hint()))
    }

    /// The image that is here, if it is whole; else it is pulled.
    fn find(&self, wanted: &Reference, platform: &Platform) -> Result<Found, Failure> {
        let (content, names) = image::stored(self.global)?;
        let named = names.get(wanted).map_err(|error| {
            Failure::new(FailureKind::State, "the images cannot be used")
                .because(&error)
                .hint(error.hint())
        })?;
        if let Some(named) = &named
            && platform.accepts(&named.platform)
        {
            match whole(&content, &named.manifest) {
                Ok(image) => {
                    return Ok(Found {
                        named: named.clone(),
                        image,
                    });
                }
                Err(problem) if named.is_local => return Err(not_whole(named, &problem)),
                Err(_) => {}
            }
        }
        // A registry may have another image of that name, and nobody asked for that one.
        if let Some(named) = named.filter(|named| named.is_local) {
            let name = named.reference.to_short();
            let message = format!(
                "{name} is an image for {}, not for {platform}",
                named.platform
            );
            return Err(Failure::new(FailureKind::Usage, message).hint(format!(
                "import or tag one for {platform}, or pull it: tidemill image pull {name}"
            )));
        }
        let pulled = image::fetch(&content, wanted, platform, false, self.ui)?;
        Ok(Found {
            named: pulled.named,
            image: pulled.image,
        })
    }
}

/// The image of a manifest with all its blobs, or what is wrong with it.
fn whole(content: &Content, manifest: &Descriptor) -> Result<Image, String> {
    let image = Image::load(content, manifest).map_err(|error| error.to_string())?;
    match image
        .missing(content)
        .map_err(|error| error.to_string())?
        .first()
    {
        None => Ok(image),
        Some(blob) => Err(format!("its blob {} is gone", blob.digest)),
    }
}

/// An image that came from here and is damaged: no registry has it, or another one under its name.
fn not_whole(named: &Named, problem: &str) -> Failure {
    let name = named.reference.to_short();
    Failure::new(
        FailureKind::Unable,
        format!("the image {name} is not whole: {problem}"),
    )
    .hint("import it again; its name was given here, so that no registry is asked for it")
}

/// Holds a tag to what it stands for now, in the lock file where the caller stands: if that has it, or if it
/// is wanted there.
pub(crate) fn lock(
    reference: &Reference,
    named: &Named,
    is_wanted: bool,
    ui: &Ui,
) -> Result<(), Failure> {
    let mut lock = match LockFile::here()? {
        Some(lock) => lock,
        None if is_wanted => LockFile::new_here()?,
        None => return Ok(()),
    };
    let (before, now) = (lock.digest(reference).copied(), pin_of(named));
    if before == Some(now) || (before.is_none() && !is_wanted) {
        return Ok(());
    }
    lock.set(reference, now);
    lock.write()?;
    let (name, path) = (reference.to_short(), lock.path().display());
    ui.note(&format!("{name} is held to its digest in {path}"));
    Ok(())
}

/// What a tag is held to: the index, so that another machine gets its own platform of it.
fn pin_of(named: &Named) -> OciDigest {
    named.index.unwrap_or(named.manifest.digest)
}

fn not_locked(wanted: &Reference, lock: Option<&LockFile>) -> Failure {
    let name = wanted.to_short();
    let message = match lock {
        Some(lock) => format!("{} has no image {name}", lock.path().display()),
        None => format!("there is no {} that says what {name} is", lock_file::NAME),
    };
    Failure::new(FailureKind::Usage, message).hint(format!(
        "add it: tidemill image pull --lock {name}, in the directory of the project"
    ))
}

fn config_of(found: &Found) -> ImageConfig {
    let config = &found.image.config;
    ImageConfig {
        digest: found.image.manifest.descriptor.digest,
        platform: config.platform.to_string(),
        entrypoint: config.entrypoint.clone(),
        command: config.command.clone(),
        env: config.env.clone(),
        workdir: config.working_dir.clone(),
        user: config.user.clone(),
    }
}

/// The images of a state directory, for a runner.
#[derive(Debug, Clone)]
pub(crate) struct StoredImages {
    directory: PathBuf,
}

impl StoredImages {
    /// Those in the directory of a state directory.
    pub(crate) fn new(state_dir: &Path) -> Self {
        Self {
            directory: image::directory(state_dir),
        }
    }
}

impl OciImages for StoredImages {
    fn with_layers(
        &self,
        wanted: &ImageName,
        unpack: &mut dyn FnMut(ImageLayers) -> Result<PathBuf, Cause>,
    ) -> Result<PathBuf, Cause> {
        let opened = Content::open(&self.directory);
        let content = opened.map_err(|error| cause(&error, error.hint()))?;
        // Nobody removes a blob as long as it is held.
        let hold = content
            .hold()
            .map_err(|error| cause(&error, error.hint()))?;
        let image = match load(&content, &wanted.manifest) {
            Some(image) => image,
            None => pull(wanted, &content)?,
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

/// Fetches an image that was here when the job was made, and is not any more.
fn pull(wanted: &ImageName, content: &Content) -> Result<Image, Cause> {
    let failed = |failure: Failure| Cause {
        message: failure.message,
        hint: failure.hints.into_iter().next(),
    };
    let reference = image::reference(&wanted.reference).map_err(failed)?;
    let platform = image::platform(wanted.platform.as_deref()).map_err(failed)?;
    let known = Names::new(content).get(&reference.with_digest(wanted.manifest));
    if let Ok(Some(named)) = known
        && named.is_local
    {
        return Err(failed(not_whole(&named, "a part of it is gone")));
    }
    let client = image::client(false).map_err(failed)?;
    let pulled = session::runtime().map_err(failed)?.block_on(client.pull(
        &reference.with_digest(wanted.manifest),
        &platform,
        content,
        &Watch::nobody(),
    ));
    let pulled = pulled.map_err(|error| cause(&error, &error.hint()))?;
    Ok(pulled.image)
}

fn cause(error: &dyn std::error::Error, hint: &str) -> Cause {
    Cause {
        message: chain(error),
        hint: Some(hint.to_owned()),
    }
}
