//! What the build of a layer tells while it goes on.

use std::fmt;
use std::sync::Arc;

use tidemill_core::{ByteSize, Reason};

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
pub struct BuildWatch {
    tell: Arc<dyn Fn(BuildProgress) + Send + Sync>,
    warn: Arc<dyn Fn(Reason) + Send + Sync>,
}

impl BuildWatch {
    /// Tells a function how far the build is, and warns nobody.
    pub fn new(tell: impl Fn(BuildProgress) + Send + Sync + 'static) -> Self {
        Self {
            tell: Arc::new(tell),
            warn: Arc::new(drop),
        }
    }

    /// The same, with a function that is warned of what is not as it should be, and no failure.
    #[must_use]
    pub fn with_warnings(self, warn: impl Fn(Reason) + Send + Sync + 'static) -> Self {
        Self {
            warn: Arc::new(warn),
            ..self
        }
    }

    /// Tells nobody.
    pub fn nobody() -> Self {
        Self::new(drop)
    }

    /// Tells how far the build is.
    pub fn tell(&self, progress: BuildProgress) {
        (self.tell)(progress);
    }

    /// Warns of what is not as it should be.
    pub fn warn(&self, reason: Reason) {
        (self.warn)(reason);
    }
}

impl fmt::Debug for BuildWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BuildWatch(…)")
    }
}
