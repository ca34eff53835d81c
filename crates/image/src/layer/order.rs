//! Trees that somebody else builds: who may give files to their owners, where this process may not.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tidemill_core::{Attributes, Digest, Layer};

use super::{LayerError, LayerKey, Surroundings, archive_key, build_layer, layer_key, tar_key};
use crate::oci::{ImageLayers, ImageName};
use crate::plan::PlanError;
use crate::tree_store::TreeStore;

/// What is asked for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Order {
    /// The tree of an archive.
    Archive { path: String },
    /// What an archive has in a directory, with other attributes.
    Dressed {
        path: String,
        strip: Option<String>,
        attributes: Attributes,
    },
    /// The tree of an OCI image.
    Image { layers: ImageLayers },
    /// A tree that is there, with other attributes.
    Tree {
        name: Digest,
        strip: Option<String>,
        attributes: Attributes,
    },
    /// A tree that is there, if it is whole.
    Look { name: Digest },
    /// A tree that is there, as a job of this user sees it that is the caller itself.
    Own {
        tree: Digest,
        user: String,
        accounts: Option<Digest>,
    },
    /// The tree of a layer.
    Layer {
        layer: Layer,
        root: PathBuf,
        state_dir: Option<PathBuf>,
    },
}

impl Order {
    fn text(&self) -> String {
        serde_json::to_string(self).expect("an order has only text and numbers")
    }
}

pub(super) fn of_archive(path: &str) -> String {
    let path = path.to_owned();
    Order::Archive { path }.text()
}

pub(super) fn of_image(layers: &ImageLayers) -> String {
    let layers = layers.clone();
    Order::Image { layers }.text()
}

pub(super) fn of_dressed(path: &str, strip: Option<&str>, attributes: &Attributes) -> String {
    Order::Dressed {
        path: path.to_owned(),
        strip: strip.map(str::to_owned),
        attributes: *attributes,
    }
    .text()
}

pub(super) fn of_tree(name: &Digest, strip: Option<&str>, attributes: &Attributes) -> String {
    Order::Tree {
        name: *name,
        strip: strip.map(str::to_owned),
        attributes: *attributes,
    }
    .text()
}

pub(super) fn of_look(name: &Digest) -> String {
    Order::Look { name: *name }.text()
}

pub(super) fn of_own(tree: &Digest, user: &str, accounts: Option<&Digest>) -> String {
    Order::Own {
        tree: *tree,
        user: user.to_owned(),
        accounts: accounts.copied(),
    }
    .text()
}

pub(super) fn of_layer(layer: &Layer, host: &Surroundings<'_>) -> String {
    Order::Layer {
        layer: layer.clone(),
        root: host.root.to_owned(),
        state_dir: host.state_dir.map(Path::to_owned),
    }
    .text()
}

/// Builds what [`LayerKey::order`](super::LayerKey::order) asks for, in the way in which this store gives
/// files to their owners. Blocks.
///
/// # Errors
/// Why there is no such tree.
pub fn build_order(order: &str, trees: &TreeStore) -> Result<PathBuf, OrderError> {
    let order = serde_json::from_str(order).map_err(OrderError::Read)?;
    let key = match order {
        Order::Archive { path } => archive_key(&path, trees).map(Some),
        Order::Dressed {
            path,
            strip,
            attributes,
        } => tar_key(&path, strip.as_deref(), &attributes, trees).map(Some),
        Order::Image { layers, .. } => {
            let image = ImageName {
                reference: layers.known_as.clone(),
                manifest: layers.manifest,
                platform: None,
            };
            let key = LayerKey::of_image(image, trees);
            Ok(Some(key.with_layers(layers)))
        }
        Order::Tree {
            name,
            strip,
            attributes,
        } => Ok(Some(LayerKey::of_tree(name, strip.as_deref(), &attributes))),
        Order::Look { name } => return trees.find(&name).ok_or(OrderError::NoTree),
        Order::Own {
            tree,
            user,
            accounts,
        } => Ok(Some(LayerKey::of_own(tree, &user, accounts))),
        Order::Layer {
            layer,
            root,
            state_dir,
        } => {
            let host = Surroundings {
                root: &root,
                state_dir: state_dir.as_deref(),
            };
            layer_key(&layer, &host, trees)
        }
    };
    let key = key.map_err(OrderError::Plan)?.ok_or(OrderError::NoTree)?;
    build_layer(&key, trees).map_err(OrderError::Build)
}

/// Why an order was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// It is none.
    #[error("this is not an order for a tree")]
    Read(#[source] serde_json::Error),
    /// What it names has no tree any more.
    #[error("the layer changed while the job waited")]
    NoTree,
    /// What it names cannot be read.
    #[error(transparent)]
    Plan(PlanError),
    /// The tree cannot be built.
    #[error(transparent)]
    Build(LayerError),
}

impl OrderError {
    /// What to do next.
    pub fn hint(&self) -> String {
        match self {
            Self::Read(_) => "run the same version of Tidemill everywhere".into(),
            Self::NoTree => "run the job again".into(),
            Self::Plan(error) => error.hint(),
            Self::Build(error) => error.hint(),
        }
    }
}
