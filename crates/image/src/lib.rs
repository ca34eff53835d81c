//! From a checked job spec and a view of the caller to the plan of the job's root file system.
//!
//! Reads the host and writes only below the tree store. Never mounts anything, never runs a program
//! and never puts a credential into a plan: what is kept out stands in [`secret`]. Start reading
//! at [`plan`](plan::plan), then the module `stack`, which merges layers without copying them.

pub mod account;
mod archive;
mod beneath;
mod bind;
mod command_layer;
mod copies;
mod device;
mod elf;
mod environment;
mod fit;
mod followed;
#[doc(hidden)]
pub mod fuzzing;
mod glob;
mod host_image;
mod host_view;
mod layer;
mod layer_fault;
mod link_warning;
mod link_xattrs;
mod marks;
mod oci;
mod output_limit;
mod overlay;
mod own_image;
mod placed;
pub mod plan;
mod root_links;
pub mod secret;
mod shared_libs;
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
pub use command_layer::{CommandLayer, build_command};
pub use copies::GatherError;
pub use device::DeviceError;
pub use environment::PATH_DEFAULT;
pub use glob::LOOKED_AT_MAX;
pub use host_view::{
    HostView, HostViewError, ImplicitWorkspaceError, implicit_workspace, written_workspace,
};
pub use layer::{
    LayerError, LayerKey, OrderError, SINGLE_FILES_MAX, archive_key, build_layer, build_order,
    key_at, layer_keys,
};
pub use layer_fault::LayerFault;
pub use link_warning::link_warnings;
pub use oci::{ImageLayer, ImageLayers, ImageName, ImageTreeError, image_tree_names};
pub use output_limit::{COMMAND_BYTES_DEFAULT, Outgrown, OutputLimit};
pub use placed::is_helper;
pub use plan::{HOSTNAME, PlanError, Planned, plan};
pub use sparse::SparseError;
pub use tree_store::{
    Added, Building, CacheBounds, DamagedTree, FileAttributes, Finding, Inventory, NewFile,
    PruneWish, Pruned, PrunedTree, SourceTree, TreeEntry, TreeNote, TreeState, TreeStore,
    TreeStoreError, Verified,
};
pub use unpack::{ArchiveOwners, UnpackError, UnpackLimits};
