//! Why a tree could not be built.

use tidemill_core::Reason;

use crate::archive::ArchiveError;
use crate::copies::GatherError;
use crate::oci::ImageTreeError;
use crate::plan::PlanError;
use crate::tree_store::TreeStoreError;
use crate::unpack::UnpackError;

/// Why a tree could not be built.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// The archive cannot be read.
    #[error(transparent)]
    Archive(ArchiveError),
    /// The archive cannot be unpacked.
    #[error(transparent)]
    Unpack(UnpackError),
    /// An OCI image cannot be unpacked.
    #[error(transparent)]
    Image(ImageTreeError),
    /// It is not known which layers an OCI image has.
    #[error("the layers of the image `{image}` are not known here")]
    NoLayers {
        /// The image.
        image: String,
    },
    /// Files of the host cannot be copied.
    #[error(transparent)]
    Gather(GatherError),
    /// What is unpacked cannot be looked through.
    #[error(transparent)]
    Look(Box<PlanError>),
    /// A command failed.
    #[error("{}", .0.message)]
    Command(Reason),
    /// A command was not run.
    #[error("{what} is not there, and nothing is run for it here")]
    NotRun {
        /// The layer.
        what: String,
    },
    /// The store of trees does not work.
    #[error(transparent)]
    Trees(TreeStoreError),
}

impl LayerError {
    /// What to do next.
    pub fn hint(&self) -> String {
        match self {
            Self::Archive(error) => error.hint().into(),
            Self::Unpack(error) => error.hint().into(),
            Self::Image(error) => error.hint().into(),
            Self::NoLayers { image } => format!("pull it: tidemill image pull {image}"),
            Self::Gather(error) => error.hint().into(),
            Self::Look(error) => error.hint(),
            Self::Command(reason) => match &reason.hint {
                Some(hint) => hint.clone(),
                None => "try the command by itself: `tidemill run` with the same image and layers"
                    .into(),
            },
            Self::NotRun { .. } => "run the job".into(),
            Self::Trees(_) => {
                "check that the state directory is writable and its disk is not full".into()
            }
        }
    }
}

impl From<TreeStoreError> for LayerError {
    fn from(error: TreeStoreError) -> Self {
        Self::Trees(error)
    }
}

impl From<UnpackError> for LayerError {
    fn from(error: UnpackError) -> Self {
        Self::Unpack(error)
    }
}

impl From<ImageTreeError> for LayerError {
    fn from(error: ImageTreeError) -> Self {
        Self::Image(error)
    }
}

impl From<GatherError> for LayerError {
    fn from(error: GatherError) -> Self {
        Self::Gather(error)
    }
}
