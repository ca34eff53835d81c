//! One file for each command.

pub(crate) mod cancel;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod logs;
pub(crate) mod manual;
pub(crate) mod ps;
pub(crate) mod schema;
pub(crate) mod show;
pub(crate) mod version;
pub(crate) mod wait;
