//! What the build of a layer tells while it goes on.

use std::fmt;
use std::sync::Arc;

use tidemill_core::ByteSize;

/// How far a build is, or what it waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildProgress {
    /// What is being done or waited for, for people, without a full stop.
    pub message: String,
    /// Bytes that are done.
    pub current: u64,
    /// Of how many, if that is known.
    pub total: Option<u64>,
}

impl fmt::Display for BuildProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match self.total {
            Some(total) if self.current < total => {
                write!(f, " ({} of {})", ByteSize(self.current), ByteSize(total))
            }
            _ => Ok(()),
        }
    }
}

/// Who is told. It must not block. Cheap to clone.
#[derive(Clone)]
pub struct BuildWatch(Arc<dyn Fn(BuildProgress) + Send + Sync>);

impl BuildWatch {
    /// Tells a function.
    pub fn new(tell: impl Fn(BuildProgress) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    /// Tells nobody.
    pub fn nobody() -> Self {
        Self::new(drop)
    }

    /// Tells how far the build is.
    pub fn tell(&self, progress: BuildProgress) {
        (self.0)(progress);
    }
}

impl fmt::Debug for BuildWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BuildWatch(…)")
    }
}
