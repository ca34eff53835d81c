//! How a runner speaks to the image code.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use tidemill_core::job::{Image, Layer};
use tidemill_core::{JobSpec, Reason, ReasonCode};
use tidemill_dispatch::Cause;
use tidemill_image::{
    HostView, ImageLayers, ImageName, LayerKey, PlanError, Planned, TreeStore, build_command,
    build_layer, layer_keys, plan,
};

use crate::build_watch::BuildWatch;
use crate::layer_command::LayerCommands;
use crate::sandboxes::Sandboxes;

/// Times that a helper is asked for a tree that others remove at once.
const BUILD_TRIES: u32 = 5;

/// Turns specs into roots.
pub trait Images: Send + Sync + 'static {
    /// True if the job has no layer that has to be built, which is seen without looking anywhere.
    fn needs_nothing(&self, spec: &JobSpec) -> bool;

    /// The layers that have to be built before the job is planned. Blocks.
    ///
    /// # Errors
    /// Why there is none, with a code that says whose fault it is.
    fn layers(&self, spec: &JobSpec) -> Result<Vec<LayerBuild>, Reason>;

    /// Plans the root of a job whose layers are built. Blocks.
    ///
    /// # Errors
    /// Why there is none, with a code that says whose fault it is.
    fn plan(&self, spec: &JobSpec) -> Result<Planned, Reason>;
}

/// Builds a tree, and tells how far it is.
pub type BuildTree = dyn Fn(&BuildWatch) -> Result<PathBuf, Cause> + Send + Sync;

/// A layer that has to be built. Equal names stand for equal trees.
#[derive(Clone)]
pub struct LayerBuild {
    /// The tree's name.
    pub name: Arc<str>,
    /// Builds the tree, or finds it built, and tells how far it is. Blocks.
    pub build: Arc<BuildTree>,
}

impl fmt::Debug for LayerBuild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerBuild")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The image code of this machine.
#[derive(Clone)]
pub struct LocalImages {
    host: Arc<HostView>,
    trees: Arc<TreeStore>,
    unpacker: Option<Arc<dyn Unpacker>>,
    oci: Option<Arc<dyn OciImages>>,
    commands: Option<LayerCommands>,
}

impl fmt::Debug for LocalImages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalImages")
            .field("host", &self.host)
            .field("trees", &self.trees)
            .field("unpacker", &self.unpacker)
            .field("oci", &self.oci)
            .finish_non_exhaustive()
    }
}

/// Builds trees where this process itself cannot give files to their owners.
pub trait Unpacker: fmt::Debug + Send + Sync + 'static {
    /// Builds what [`LayerKey::order`] asks for in the tree store. Blocks.
    ///
    /// # Errors
    /// Why there is none.
    fn build(&self, order: &str) -> Result<PathBuf, Cause>;
}

/// Where OCI images are, or come from.
pub trait OciImages: fmt::Debug + Send + Sync + 'static {
    /// Calls `unpack` with the layers of an image, which are fetched before if they are not there, and
    /// stay until it is done. `watch` is told what is waited for. Blocks.
    ///
    /// # Errors
    /// Why the layers are not there; or what `unpack` says.
    fn with_layers(
        &self,
        image: &ImageName,
        watch: &BuildWatch,
        unpack: &mut dyn FnMut(ImageLayers) -> Result<PathBuf, Cause>,
    ) -> Result<PathBuf, Cause>;

    /// The tree of an image is there, so that nothing of it has to be fetched.
    fn not_needed(&self, image: &ImageName);
}

impl LocalImages {
    /// Plans roots for this caller, with trees in this store.
    pub fn new(host: HostView, trees: TreeStore) -> Self {
        Self {
            host: Arc::new(host),
            trees: Arc::new(trees),
            unpacker: None,
            oci: None,
            commands: None,
        }
    }

    /// The same, with archives unpacked by somebody who can keep their owners.
    #[must_use]
    pub fn with_unpacker(mut self, unpacker: Arc<dyn Unpacker>) -> Self {
        self.unpacker = Some(unpacker);
        self
    }

    /// The same, with OCI images from there.
    #[must_use]
    pub fn with_oci(mut self, oci: Arc<dyn OciImages>) -> Self {
        self.oci = Some(oci);
        self
    }

    /// The same, with the commands of layers run in these sandboxes. Private layers of theirs that do not
    /// fit into memory go into directories in `scratch`.
    #[must_use]
    pub fn with_commands(mut self, sandboxes: Arc<dyn Sandboxes>, scratch: PathBuf) -> Self {
        self.commands = Some(LayerCommands { sandboxes, scratch });
        self
    }

    fn layer_build(&self, key: LayerKey) -> LayerBuild {
        let images = self.clone();
        LayerBuild {
            name: key.name().to_string().into(),
            build: Arc::new(move |watch| {
                let was_built = key.is_built(&images.trees);
                let root = images.build(&key, watch)?;
                if !was_built {
                    images.warn_of_lacks(&key, watch);
                }
                Ok(root)
            }),
        }
    }

    /// Says what a tree that was built lacks of its source.
    fn warn_of_lacks(&self, key: &LayerKey, watch: &BuildWatch) {
        let note = self.trees.note(key.name()).unwrap_or_default();
        if note.lacks.is_empty() {
            return;
        }
        let message = format!("{} is not whole here: {}", note.from, note.lacks.join("; "));
        let hint = "`tidemill cache ls` says so as long as it is kept";
        watch.warn(Reason::new(ReasonCode::Layer, message).with_hint(hint));
    }

    /// Builds a tree, and before it those that it is made of. Blocks.
    fn build(&self, key: &LayerKey, watch: &BuildWatch) -> Result<PathBuf, Cause> {
        let is_built = || key.is_built(&self.trees);
        if let Some(unpacker) = self.unpacker.as_ref().filter(|_| !is_built())
            && let Some(order) = key.look_order(&self.trees)
            && let Err(cause) = unpacker.build(&order)
        {
            tracing::debug!(tree = %key.name(), cause = cause.message, "a tree is built anew");
        }
        if !is_built() {
            for below in key.made_of() {
                self.build(below, watch)?;
            }
        }
        if let Some(command) = key.command().filter(|_| !is_built()) {
            let needs = layer_keys(command.spec(), &self.host, &self.trees);
            for need in needs.map_err(|error| cause(&error, error.hint()))? {
                self.build(&need, watch)?;
            }
            let built = build_command(key, &self.host, &self.trees, |spec, planned| {
                let Some(commands) = &self.commands else {
                    let message = "nothing runs commands of layers here";
                    return Err(Reason::new(ReasonCode::Layer, message));
                };
                commands.run(key.name(), spec, planned)
            });
            return built.map_err(|error| cause(&error, error.hint()));
        }
        if let Some((image, oci)) = key.image().zip(self.oci.as_ref())
            && !is_built()
        {
            return oci.with_layers(image, watch, &mut |layers| {
                self.build(&key.clone().with_layers(layers), watch)
            });
        }
        if let Some((image, oci)) = key.image_below().zip(self.oci.as_ref())
            && is_built()
        {
            oci.not_needed(image);
        }
        if let Some((unpacker, order)) = self.unpacker.as_ref().zip(key.order())
            && !is_built()
        {
            // Somebody may make room between the end of the helper and the use of its tree here.
            for _ in 1..BUILD_TRIES {
                let root = unpacker.build(order)?;
                if is_built() {
                    return Ok(root);
                }
            }
            return unpacker.build(order);
        }
        build_layer(key, &self.trees).map_err(|error| cause(&error, error.hint()))
    }
}

fn cause(error: &dyn std::error::Error, hint: String) -> Cause {
    Cause {
        message: chain(error),
        hint: Some(hint),
    }
}

impl Images for LocalImages {
    fn needs_nothing(&self, spec: &JobSpec) -> bool {
        let as_it_is = |layer: &Layer| match layer {
            Layer::Dir { attributes, .. } | Layer::File { attributes, .. } => attributes.are_kept(),
            Layer::Stubs { .. } | Layer::Symlinks { .. } => true,
            Layer::Glob { .. }
            | Layer::Tar { .. }
            | Layer::SharedLibs { .. }
            | Layer::Command { .. }
            | Layer::Oci { .. } => false,
        };
        !matches!(spec.image, Image::Tar { .. } | Image::Oci { .. })
            && spec.layers.iter().all(as_it_is)
    }

    fn layers(&self, spec: &JobSpec) -> Result<Vec<LayerBuild>, Reason> {
        let keys = layer_keys(spec, &self.host, &self.trees).map_err(|error| reason(&error))?;
        Ok(keys.into_iter().map(|key| self.layer_build(key)).collect())
    }

    fn plan(&self, spec: &JobSpec) -> Result<Planned, Reason> {
        plan(spec, &self.host, &self.trees).map_err(|error| reason(&error))
    }
}

fn reason(error: &PlanError) -> Reason {
    Reason::new(error.code(), chain(error)).with_hint(error.hint())
}

/// An error with its causes in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// True if a reason why a job was not planned is the job's own fault.
pub(crate) const fn is_jobs_own_fault(reason: &Reason) -> bool {
    matches!(
        reason.code,
        ReasonCode::BadSpec | ReasonCode::BadWorkdir | ReasonCode::ProgramNotFound
    )
}
