//! The hub's core: the ledger's rules over the store, who follows, and the logs.
//!
//! Several hubs may share one state directory, each in its own process: the database is the truth,
//! and each learns from it what the others did. This crate runs no job and never touches a sandbox;
//! it only knows who said that they run one. Start reading at [`Hub`].

pub mod adapter;
pub mod cancels;
pub mod follow;
pub mod hub;
pub mod log_store;
pub mod owner;
pub mod report;
pub mod retention;
pub mod state_dir;
pub mod sweep;

pub use cancels::CancelWish;
pub use follow::Follow;
pub use hub::{Hub, HubConfig, HubError, NewJob};
pub use log_store::{LogView, LogViewError};
pub use report::{Answer, Report};
pub use state_dir::{StateDir, StateDirError};
pub use sweep::{NoRemnants, Remnants, Swept};
