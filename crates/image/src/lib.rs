//! From a checked job spec and a view of the caller to the plan of the job's root file system.
//!
//! Reads the host and writes only below the tree store. Never mounts anything, never runs a program
//! and never puts a credential into a plan: what is kept out stands in [`secret`]. Start reading
//! at [`plan`](plan::plan), then the module `stack`, which merges layers without copying them.

pub mod account;
mod archive;
mod beneath;
mod bind;
mod device;
mod environment;
mod fit;
mod followed;
#[doc(hidden)]
pub mod fuzzing;
mod glob;
mod host_image;
mod host_view;
mod layer;
mod link_warning;
mod overlay;
pub mod plan;
mod root_links;
pub mod secret;
mod skeleton;
mod source;
mod sparse;
mod stack;
mod toolchain;
mod toolchain_table;
mod tree_store;
mod tree_use;
mod unpack;
mod workdir;
mod workspace;

pub use archive::ArchiveError;
pub use bind::BindError;
pub use device::DeviceError;
pub use environment::PATH_DEFAULT;
pub use glob::{GatherError, LOOKED_AT_MAX};
pub use host_image::MACHINE_ID;
pub use host_view::{
    HostView, HostViewError, ImplicitWorkspaceError, implicit_workspace, written_workspace,
};
pub use layer::{LayerError, LayerKey, SINGLE_FILES_MAX, archive_key, build_layer, layer_keys};
pub use link_warning::link_warnings;
pub use plan::{HOSTNAME, PlanError, Planned, plan};
pub use sparse::SparseError;
pub use tree_store::{TreeNote, TreeStore, TreeStoreError};
pub use unpack::{ArchiveOwners, UnpackError, UnpackLimits};
