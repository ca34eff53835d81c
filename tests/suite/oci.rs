//! OCI images as roots of jobs: what the config says, what layers become, which digest a tag is held to, and
//! images that are wrong.

mod as_layer;
mod config;
mod damaged;
mod digests;
mod fake;
mod fetched;
mod layers;
mod locked;
mod made;
mod own_layers;
mod refused;
mod removed;
mod together;
