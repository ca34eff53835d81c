//! What a pull tells while it goes on.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidemill_oci::OciDigest;

/// A step of a pull. Bytes are those of the stored, mostly compressed form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// The image is known: what is to be fetched, and how much of it there is altogether.
    Planned {
        /// Blobs that are missing.
        blobs: usize,
        /// Bytes of the missing blobs.
        bytes: u64,
    },
    /// So much of a blob is here by now. It may become less, where a download begins anew.
    Came {
        /// The blob.
        digest: OciDigest,
        /// Bytes of it.
        bytes: u64,
    },
    /// Another process of this machine fetches it, and is waited for.
    Waiting {
        /// The blob; none if it is the whole image.
        digest: Option<OciDigest>,
        /// What that one waits for, if it does: a registry, and what is wrong with it.
        problem: Option<String>,
    },
    /// Something went wrong and is tried again.
    Retrying {
        /// Who was asked.
        host: String,
        /// What went wrong, in a few words.
        brief: String,
        /// What went wrong.
        problem: String,
        /// How long is waited before.
        after: Duration,
    },
}

/// Who is told. It is called from several tasks and must not block.
#[derive(Clone)]
pub struct Watch(Arc<dyn Fn(&Progress) + Send + Sync>);

impl Watch {
    /// Tells a function.
    pub fn new(tell: impl Fn(&Progress) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    /// Tells nobody.
    pub fn nobody() -> Self {
        Self::new(|_| {})
    }

    /// Tells a step.
    pub fn tell(&self, progress: &Progress) {
        (self.0)(progress);
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch(…)")
    }
}
