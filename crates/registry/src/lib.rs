//! Pulls container images from registries into a store of blobs: sign-in, resume, retries, and every byte
//! checked before it counts. <https://github.com/opencontainers/distribution-spec/blob/main/spec.md>
//!
//! What an image is, is decided in `tidemill-oci`; nothing here unpacks one. Whether another try makes
//! sense is decided in [`retry`], without a clock. Start reading at [`pull`], then [`client`].

mod address;
mod blob;
mod challenge;
pub mod client;
pub mod credentials;
mod document;
mod errand;
mod helper_program;
pub mod progress;
pub mod pull;
pub mod registry_error;
mod resolver;
pub mod retry;
mod secret;
mod token;

pub use address::AddressError;
pub use client::{Client, ClientError, ClientOptions};
pub use credentials::{Credentials, CredentialsError};
pub use progress::{Progress, Watch};
pub use pull::{Lookup, PullError, Pulled, Resolved};
pub use registry_error::{RegistryError, TransportError};
pub use retry::Patience;
