//! How a runner speaks to the image code.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use tidemill_core::job::{Image, Layer};
use tidemill_core::{JobSpec, Reason, ReasonCode};
use tidemill_dispatch::Cause;
use tidemill_image::{
    HostView, LayerKey, PlanError, Planned, TreeStore, build_layer, layer_keys, plan,
};

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

/// A layer that has to be built. Equal names stand for equal trees.
#[derive(Clone)]
pub struct LayerBuild {
    /// The tree's name.
    pub name: Arc<str>,
    /// Builds the tree, or finds it built. Blocks.
    pub build: Arc<dyn Fn() -> Result<PathBuf, Cause> + Send + Sync>,
}

impl fmt::Debug for LayerBuild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerBuild")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The image code of this machine.
#[derive(Debug, Clone)]
pub struct LocalImages {
    host: Arc<HostView>,
    trees: Arc<TreeStore>,
    unpacker: Option<Arc<dyn Unpacker>>,
}

/// Builds trees where this process itself cannot give files to their owners.
pub trait Unpacker: fmt::Debug + Send + Sync + 'static {
    /// Builds what [`LayerKey::order`] asks for in the tree store. Blocks.
    ///
    /// # Errors
    /// Why there is none.
    fn build(&self, order: &str) -> Result<PathBuf, Cause>;
}

impl LocalImages {
    /// Plans roots for this caller, with trees in this store.
    pub fn new(host: HostView, trees: TreeStore) -> Self {
        Self {
            host: Arc::new(host),
            trees: Arc::new(trees),
            unpacker: None,
        }
    }

    /// The same, with archives unpacked by somebody who can keep their owners.
    #[must_use]
    pub fn with_unpacker(mut self, unpacker: Arc<dyn Unpacker>) -> Self {
        self.unpacker = Some(unpacker);
        self
    }

    fn layer_build(&self, key: LayerKey) -> LayerBuild {
        let trees = Arc::clone(&self.trees);
        let unpacker = self.unpacker.clone();
        LayerBuild {
            name: key.name().to_string().into(),
            build: Arc::new(move || {
                if let Some((unpacker, order)) = unpacker.as_ref().zip(key.order())
                    && !key.is_built(&trees)
                {
                    return unpacker.build(order);
                }
                build_layer(&key, &trees).map_err(|error| Cause {
                    message: chain(&error),
                    hint: Some(error.hint()),
                })
            }),
        }
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
            | Layer::Command { .. } => false,
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
