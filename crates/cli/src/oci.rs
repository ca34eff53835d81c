//! OCI images as roots of jobs: from a reference to what the image says, and from a manifest to its layers.
//!
//! A spec is resolved before it is recorded: which manifest it is, the command, the environment. For that
//! the registry is asked for manifest and configuration; the layers are fetched when the job waits for them,
//! see [`StoredImages`]. Which digest a tag stands for is remembered in two places: the names in the state
//! directory, which `image pull` renews, and a [lock file](lock_file) in the project, for others and for later.

mod executed;
mod fetching;
mod lock_file;
mod preparing;
mod stored;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidemill_core::job;
use tidemill_core::oci::{ImageConfig, OciDigest};
use tidemill_core::{JobSpec, Layer};
use tidemill_oci::{Content, Image, Named, Platform, Reference};
use tidemill_registry::{Lookup, Resolved, Watch};

pub(crate) use self::preparing::Preparing;
pub(crate) use self::stored::StoredImages;

use self::lock_file::LockFile;

use crate::args::GlobalArgs;
use crate::failure::{Failure, FailureKind};
use crate::image;
use crate::session;
use crate::ui::{QUIET_FOR, Ui, time};

/// How often the status line is looked at while a registry is asked.
const TICK: Duration = Duration::from_millis(250);

/// How an image's reference becomes one image.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resolving<'a> {
    pub(crate) global: &'a GlobalArgs,
    /// True if only what the lock file has is good.
    pub(crate) is_locked: bool,
    /// How long that may take.
    pub(crate) preparing: Preparing,
    pub(crate) ui: &'a Ui,
}

/// A spec that says everything.
#[derive(Debug)]
pub(crate) struct Resolution {
    pub(crate) spec: JobSpec,
    /// Its images of which layers are missing.
    pub(crate) pending: Vec<Resolved>,
}

/// An image of the spec.
struct Found {
    named: Named,
    image: Image,
    /// Layers of it are missing.
    pending: Option<Resolved>,
}

impl Resolving<'_> {
    /// The spec with everything that its OCI image says, and with what the images among its layers are. A
    /// spec without any comes back as it is.
    pub(crate) fn resolve(&self, mut spec: JobSpec) -> Result<Resolution, Failure> {
        let is_image = matches!(spec.image, job::Image::Oci { .. });
        let is_layer = |layer: &Layer| matches!(layer, Layer::Oci { .. });
        let mut pending = Vec::new();
        if !is_image && !spec.layers.iter().any(is_layer) {
            if self.is_locked {
                let message = "--locked is about OCI images, and the job has none";
                return Err(Failure::new(FailureKind::Usage, message)
                    .hint("leave it out, or name an image: --image oci:REF"));
            }
            return Ok(Resolution { spec, pending });
        }
        let lock = LockFile::of(&spec)?;
        let lock = lock.as_ref();
        if let job::Image::Oci {
            reference,
            digest,
            platform,
        } = &spec.image
        {
            check_platform(reference, platform.as_deref())?;
            let found = self.look_up(reference, digest.as_ref(), platform.as_deref(), lock)?;
            let config = config_of(&found);
            pending.extend(found.pending);
            spec = spec.resolve(&config).map_err(|error| {
                Failure::new(FailureKind::Usage, error.to_string()).hint(error.hint())
            })?;
        }
        for layer in &mut spec.layers {
            pending.extend(self.resolve_layer(layer, lock)?);
        }
        Ok(Resolution { spec, pending })
    }

    /// Says which image a layer is, if it is one. Gives it if blobs of it are missing.
    fn resolve_layer(
        &self,
        layer: &mut Layer,
        lock: Option<&LockFile>,
    ) -> Result<Option<Resolved>, Failure> {
        let Layer::Oci {
            reference,
            digest,
            platform,
            ..
        } = layer
        else {
            return Ok(None);
        };
        let found = self.look_up(reference, digest.as_ref(), platform.as_deref(), lock)?;
        let config = config_of(&found);
        *digest = Some(config.digest);
        *platform = Some(config.platform);
        Ok(found.pending)
    }

    /// The image that a name means: by its digest, by the lock file, by what is here, else by its registry.
    /// The lock file is only read: it lies in a directory that a job does not change.
    fn look_up(
        &self,
        reference: &str,
        digest: Option<&OciDigest>,
        platform: Option<&str>,
        lock: Option<&LockFile>,
    ) -> Result<Found, Failure> {
        let wanted = image::reference(reference)?;
        let platform = image::platform(platform)?;
        let named = digest.or_else(|| wanted.digest());
        let locked = lock.and_then(|lock| Some((lock, *lock.digest(&wanted)?)));
        let pinned = match (named, locked) {
            (Some(digest), _) => wanted.with_digest(*digest),
            (None, Some((_, digest))) => wanted.with_digest(digest),
            (None, None) if self.is_locked => return Err(not_locked(&wanted, lock)),
            (None, None) => wanted.clone(),
        };
        let name = wanted.to_short();
        let found = self
            .find(&pinned, &platform)
            .map_err(|failure| match (named, locked) {
                (None, Some((lock, digest))) => failure.hint(format!(
                    "{} holds {name} to {digest}; `tidemill image pull --lock {name}` holds it to what it \
                     is now",
                    lock.path().display()
                )),
                _ => failure,
            })?;
        if let (None, None, Some(lock)) = (named, locked, lock)
            && !found.named.is_local
        {
            let path = lock.path().display();
            self.ui.note(&format!(
                "{name} is not in {path}: `tidemill image pull --lock {name}` adds it"
            ));
        }
        Ok(found)
    }

    /// The image that has the name here; else the registry is asked.
    fn find(&self, wanted: &Reference, platform: &Platform) -> Result<Found, Failure> {
        let (content, names) = image::stored(self.global)?;
        let state = |error: &dyn std::error::Error, hint: &str| {
            Failure::new(FailureKind::State, "the images cannot be used")
                .because(error)
                .hint(hint)
        };
        // From here on nothing of it is removed.
        let hold = content
            .hold()
            .map_err(|error| state(&error, error.hint()))?;
        let named = match names.get(wanted) {
            // A digest says by itself what it means.
            Err(error) if wanted.digest().is_some() => {
                let path = content.base().display();
                tracing::debug!(%path, %error, "an image is looked for without names");
                None
            }
            named => named.map_err(|error| state(&error, error.hint()))?,
        };
        if let Some(named) = &named
            && platform.accepts(&named.platform)
        {
            let problem = match Image::load(&content, &named.manifest) {
                Ok(image) => match first_missing(&image, &content) {
                    None => return Ok(Found::whole(named.clone(), image)),
                    Some(_) if !named.is_local => {
                        return Ok(Found::pending(Resolved::known(named.clone(), image, hold)));
                    }
                    Some(problem) => problem,
                },
                Err(error) => error.to_string(),
            };
            if named.is_local {
                return Err(not_whole(named, &problem));
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
        drop(hold);
        let resolved = self.ask(&content, wanted, platform)?;
        if first_missing(resolved.image(), &content).is_some() {
            return Ok(Found::pending(resolved));
        }
        // Another name led to all of it.
        if let Err(error) = names.set(resolved.named()) {
            let failure = state(&error, error.hint());
            if wanted.digest().is_none() {
                return Err(failure);
            }
            self.ui.note(&format!(
                "warning: {} gets no name: {failure}",
                wanted.to_short()
            ));
        }
        let found = Found::whole(resolved.named().clone(), resolved.image().clone());
        resolved.settle();
        Ok(found)
    }

    /// Asks the registry what a name means, as long as there is time.
    fn ask(
        &self,
        content: &Content,
        wanted: &Reference,
        platform: &Platform,
    ) -> Result<Resolved, Failure> {
        let client = image::client(false, Some(self.preparing.left()))?;
        let short = wanted.to_short();
        let waits = Arc::new(Mutex::new(format!(
            "waiting for registry {} to say what it is",
            wanted.registry()
        )));
        let watch = {
            let (waits, short) = (Arc::clone(&waits), short.clone());
            let shown = image::watch(&short, self.ui);
            Watch::new(move |progress| {
                if let Some(text) = fetching::waits_for(&short, progress) {
                    *waits.lock().unwrap_or_else(PoisonError::into_inner) = text;
                }
                shown.tell(progress);
            })
        };
        let waits = || waits.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let lookup = Lookup::IfUnknown;
        let asked = session::runtime()?.block_on(async {
            let resolve = client.resolve(wanted, platform, content, lookup, &watch);
            tokio::pin!(resolve);
            let mut ticks = tokio::time::interval(TICK);
            let late = tokio::time::sleep(self.preparing.left());
            tokio::pin!(late);
            loop {
                tokio::select! {
                    asked = &mut resolve => {
                        break asked.map_err(|error| image::not_pulled(&short, &error));
                    }
                    () = &mut late => break Err(self.late(&short, &waits())),
                    _ = tokio::signal::ctrl_c() => {
                        let message = format!("interrupted before the job began, {}", waits());
                        break Err(Failure::new(FailureKind::Interrupted, message));
                    }
                    _ = ticks.tick() => {
                        if self.preparing.spent() > QUIET_FOR {
                            self.ui.status(&waits());
                        }
                    }
                }
            }
        });
        self.ui.quiet();
        asked
    }

    fn late(&self, short: &str, waits: &str) -> Failure {
        let message = format!(
            "the time limit of {} for preparing was reached before it was known what {short} is",
            time(self.preparing.limit())
        );
        let mut failure = Failure::new(FailureKind::Late, message);
        failure.causes.push(waits.to_owned());
        failure.hint(
            "if it needs longer, raise the limit with --prepare-timeout; an image that was pulled \
             before needs no registry",
        )
    }
}

impl Found {
    const fn whole(named: Named, image: Image) -> Self {
        Self {
            named,
            image,
            pending: None,
        }
    }

    fn pending(resolved: Resolved) -> Self {
        Self {
            named: resolved.named().clone(),
            image: resolved.image().clone(),
            pending: Some(resolved),
        }
    }
}

/// What is not here of an image, for people.
fn first_missing(image: &Image, content: &Content) -> Option<String> {
    match image.missing(content) {
        Ok(missing) => missing
            .first()
            .map(|blob| format!("its blob {} is gone", blob.digest)),
        Err(error) => Some(error.to_string()),
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
    ui.note(&match before {
        Some(before) => format!("{name} was {before} in {path}, and is {now} now"),
        None => format!("{name} is held to its digest in {path}"),
    });
    Ok(())
}

/// What a tag is held to: the index, so that another machine gets its own platform of it.
fn pin_of(named: &Named) -> OciDigest {
    named.index.unwrap_or(named.manifest.digest)
}

/// Refuses an image whose programs cannot be executed here, before anything of it is fetched.
fn check_platform(reference: &str, platform: Option<&str>) -> Result<(), Failure> {
    let (wanted, platform) = (image::reference(reference)?, image::platform(platform)?);
    if executed::can_execute(&platform) {
        return Ok(());
    }
    let (host, name) = (Platform::host(), wanted.to_short());
    let message = format!("this machine cannot execute programs for {platform}: it is {host}");
    Err(Failure::new(FailureKind::Usage, message).hint(format!(
        "without --platform it is {host}; `tidemill image pull --platform {platform} {name}` fetches the \
         image for elsewhere, and runs nothing"
    )))
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
        stop_signal: config.stop_signal.clone(),
    }
}
