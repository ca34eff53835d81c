//! Container images: pulled from Debian's own registry, imported from what umoci, skopeo and docker make,
//! broken off and gone on with.

mod imported;
mod killed;
mod line;
mod made;
mod named;
mod pulled;
mod real;
mod registry;
mod signed_in;
