//! The cases, by what they try.

pub(crate) mod calls;
pub(crate) mod descriptors;
pub(crate) mod disk;
pub(crate) mod host_files;
pub(crate) mod identity;
pub(crate) mod ipc;
pub(crate) mod kernel_memory;
pub(crate) mod lifecycle;
pub(crate) mod memory;
pub(crate) mod mounts;
pub(crate) mod network;
pub(crate) mod output;
pub(crate) mod proc_files;
