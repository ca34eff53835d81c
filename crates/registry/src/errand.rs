//! What several processes of a machine want at once, and one of them does: the words that they leave each
//! other in the store.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidemill_oci::{Content, ContentError, Errand, Look, OciDigest, Wanted};

use crate::progress::{Progress, Watch};

/// How often it is looked whether another process is done.
pub(crate) const BUSY_WAIT: Duration = Duration::from_millis(50);

/// What is said about an errand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Word {
    /// It goes on, or waits because of this.
    UnderWay { problem: Option<String> },
    /// A name means this image, chosen from an index if there is one. Both are in the store.
    Means {
        manifest: OciDigest,
        index: Option<OciDigest>,
    },
    /// All of it is in the store.
    Done,
    /// It cannot be had.
    Failed { message: String, hint: String },
}

impl Word {
    fn to_text(&self) -> String {
        serde_json::to_string(self).expect("a word is written as JSON")
    }
}

/// Whose turn it is.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Ours.
    Ours(Task),
    /// Somebody else has said how it is.
    Said(Word),
}

/// An errand that this process does. Dropped, it is left to others. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Task(Arc<Mutex<Option<Errand>>>);

impl Task {
    fn new(errand: Errand) -> Self {
        Self(Arc::new(Mutex::new(Some(errand))))
    }

    fn errand(&self) -> MutexGuard<'_, Option<Errand>> {
        // Whoever panicked, the errand is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells those who wait. If they cannot be told, they go on waiting.
    pub(crate) fn tell(&self, word: &Word) {
        if let Some(Err(error)) = self
            .errand()
            .as_ref()
            .map(|errand| errand.tell(&word.to_text()))
        {
            tracing::debug!(%error, "others were not told how far it is");
        }
    }

    /// Says the last word. If it cannot be said, the next of those who wait does it again.
    pub(crate) fn finish(&self, word: &Word) {
        if let Some(Err(error)) = self
            .errand()
            .take()
            .map(|errand| errand.finish(&word.to_text()))
        {
            tracing::debug!(%error, "others were not told how it ended");
        }
    }

    /// Gives it up, whoever else has it still.
    pub(crate) fn give_up(&self) {
        drop(self.errand().take());
    }

    /// Tells those who wait what is tried again, beside who watches here.
    pub(crate) fn watch(&self, watch: &Watch) -> Watch {
        let (task, watch) = (self.clone(), watch.clone());
        let in_trouble = Mutex::new(false);
        Watch::new(move |progress| {
            watch.tell(progress);
            let problem = match progress {
                Progress::Retrying { host, brief, .. } => Some(format!("{host}: {brief}")),
                Progress::Came { .. } => None,
                Progress::Planned { .. } | Progress::Waiting { .. } => return,
            };
            let mut in_trouble = in_trouble.lock().unwrap_or_else(PoisonError::into_inner);
            if problem.is_some() || *in_trouble {
                *in_trouble = problem.is_some();
                task.tell(&Word::UnderWay { problem });
            }
        })
    }
}

/// Waits until an errand is ours, or somebody who was at it has said what it came to. `wanted` is what it was
/// asked for by before. `meanwhile` is called again and again.
///
/// Cancel safe.
pub(crate) async fn turn(
    content: &Content,
    what: &str,
    wanted: Option<Wanted>,
    watch: &Watch,
    mut meanwhile: impl FnMut(),
) -> Result<Turn, ContentError> {
    let mut wanted = match wanted {
        Some(wanted) => wanted,
        None => content.want(what)?,
    };
    let mut told = None;
    loop {
        let word = match wanted.look()? {
            Look::Ours(errand) => return Ok(Turn::Ours(Task::new(errand))),
            Look::Over(word) => {
                if let Ok(word) = serde_json::from_str(&word) {
                    return Ok(Turn::Said(word));
                }
                // Another version of this program has said it.
                wanted = content.want(what)?;
                continue;
            }
            Look::Theirs {
                wanted: again,
                word,
            } => {
                wanted = again;
                word.and_then(|word| serde_json::from_str(&word).ok())
            }
        };
        let problem = match word {
            Some(word @ Word::Means { .. }) => return Ok(Turn::Said(word)),
            Some(Word::UnderWay { problem }) => problem,
            _ => None,
        };
        if told.as_ref() != Some(&problem) {
            watch.tell(&Progress::Waiting {
                digest: None,
                problem: problem.clone(),
            });
            told = Some(problem);
        }
        meanwhile();
        tokio::time::sleep(BUSY_WAIT).await;
    }
}
