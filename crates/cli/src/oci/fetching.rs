//! What a fetch tells, as the record of a job and the line on a screen have it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidemill_hub::adapter;
use tidemill_oci::{OciDigest, Reference};
use tidemill_registry::{Progress, Watch};
use tidemill_runner::{BuildProgress, BuildWatch};

use crate::clock;

/// How often the record of a job is told how much has come: each time is a write to the disk.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// But always when such a part of all has come since,
const TOLD_STEPS: u64 = 20;
/// and so many bytes at least.
const STEP_MIN: u64 = 64 << 10;

/// Tells how the fetch of an image goes on.
pub(super) fn told_to(watch: &BuildWatch, reference: &Reference) -> Watch {
    let watch = watch.clone();
    let seen = Mutex::new(Seen::new(reference));
    Watch::new(move |progress| {
        // Whoever panicked, all that can be wrong is what is told.
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(progress) = seen.take(progress, Instant::now()) {
            watch.tell(progress);
        }
    })
}

/// What something that is asked of a registry waits for, in one line.
pub(super) fn waits_for(name: &str, progress: &Progress) -> Option<String> {
    match progress {
        Progress::Retrying {
            host, brief, after, ..
        } => {
            let next = clock::time_of_day(adapter::now().plus(*after));
            let next = next.split('.').next().unwrap_or(&next);
            Some(format!(
                "waiting for registry {host}: {brief}, next try at {next}"
            ))
        }
        Progress::Waiting { digest, problem } => {
            let what = if digest.is_some() { "a part of " } else { "" };
            let why = problem.as_ref().map_or_else(String::new, |problem| {
                format!(", which waits for registry {problem}")
            });
            Some(format!(
                "waiting for another process that fetches {what}the image {name}{why}"
            ))
        }
        Progress::Planned { .. } | Progress::Came { .. } => None,
    }
}

/// What has come by now.
#[derive(Debug)]
struct Seen {
    name: String,
    /// What is done while nothing is waited for.
    fetching: String,
    total: u64,
    blobs: HashMap<OciDigest, u64>,
    /// What is waited for, and until when that is true at least.
    waits: Option<(String, Instant)>,
    told: Option<(BuildProgress, Instant)>,
}

impl Seen {
    fn new(reference: &Reference) -> Self {
        let (name, registry) = (reference.to_short(), reference.registry());
        let from = match name.starts_with(registry) {
            true => String::new(),
            false => format!(" from {registry}"),
        };
        Self {
            fetching: format!("fetching the image {name}{from}"),
            name,
            total: 0,
            blobs: HashMap::new(),
            waits: None,
            told: None,
        }
    }

    /// What is to be told of a step, if it is to be told now.
    fn take(&mut self, progress: &Progress, now: Instant) -> Option<BuildProgress> {
        match progress {
            Progress::Planned { bytes, .. } => {
                self.total = *bytes;
                self.waits = None;
            }
            Progress::Came { digest, bytes } => {
                self.blobs.insert(*digest, *bytes);
                // While one blob waits others may come.
                if self.waits.as_ref().is_some_and(|(_, until)| now >= *until) {
                    self.waits = None;
                }
            }
            Progress::Retrying { after, .. } => {
                self.waits = waits_for(&self.name, progress).map(|text| (text, now + *after));
            }
            Progress::Waiting { .. } => {
                let mut text = waits_for(&self.name, progress)?;
                if self.total > 0 {
                    // Its bytes come all the same.
                    text = text.replacen("waiting for another process", "another process", 1);
                    text = text.replacen("that fetches", "fetches", 1);
                }
                self.waits = Some((text, now + Duration::from_secs(3600)));
            }
        }
        self.tell(now)
    }

    /// So many new bytes are told at once: after them nothing may come for a long while.
    const fn step(&self) -> u64 {
        let step = self.total / TOLD_STEPS;
        if step > STEP_MIN { step } else { STEP_MIN }
    }

    fn tell(&mut self, now: Instant) -> Option<BuildProgress> {
        let message = match &self.waits {
            Some((text, _)) => text.clone(),
            None => self.fetching.clone(),
        };
        let came: u64 = self.blobs.values().sum();
        let progress = BuildProgress {
            message,
            current: came.min(self.total),
            total: (self.total > 0).then_some(self.total),
        };
        if let Some((told, at)) = &self.told {
            let is_same = told.message == progress.message && told.total == progress.total;
            let is_little = progress.current - told.current.min(progress.current) < self.step();
            if *told == progress || is_same && is_little && now - *at < TELL_EVERY {
                return None;
            }
        }
        self.told = Some((progress.clone(), now));
        Some(progress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(name: &str) -> Seen {
        Seen::new(&name.parse().expect("a name"))
    }

    fn came(bytes: u64) -> Progress {
        let digest = tidemill_oci::digest_of(b"layer");
        Progress::Came { digest, bytes }
    }

    #[test]
    fn bytes_are_told_now_and_then_and_what_is_waited_for_at_once() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_millis(seconds * 100);
        let mut seen = seen("example.org/app:1");
        let planned = Progress::Planned {
            blobs: 1,
            bytes: 100,
        };
        let first = seen.take(&planned, at(0)).expect("it begins");
        assert_eq!(first.message, "fetching the image example.org/app:1");
        assert_eq!((first.current, first.total), (0, Some(100)));
        assert_eq!(seen.take(&came(10), at(1)), None, "that is too soon");
        let second = seen.take(&came(20), at(11)).expect("it is time");
        assert_eq!(second.current, 20);
        let retrying = Progress::Retrying {
            host: "example.org".into(),
            brief: "429 Too Many Requests".into(),
            problem: "unused".into(),
            after: Duration::from_secs(5),
        };
        let third = seen.take(&retrying, at(12)).expect("that is news");
        assert!(
            third.message.starts_with(
                "waiting for registry example.org: 429 Too Many Requests, next try at "
            ),
            "{}",
            third.message
        );
        let other = seen.take(&came(30), at(23)).expect("it is time");
        assert_eq!((other.message, other.current), (third.message, 30));
        let last = seen.take(&came(40), at(63)).expect("the wait is over");
        assert_eq!(last.message, "fetching the image example.org/app:1");
    }

    #[test]
    fn another_process_is_named_with_what_it_waits_for() {
        let mut seen = seen("example.org/app:1");
        let waiting = |problem: Option<&str>| Progress::Waiting {
            digest: None,
            problem: problem.map(str::to_owned),
        };
        let text = waits_for("app:1", &waiting(None)).expect("it waits");
        assert_eq!(
            text,
            "waiting for another process that fetches the image app:1"
        );
        seen.total = 100;
        let told = seen.take(&waiting(Some("example.org: 503")), Instant::now());
        assert_eq!(
            told.expect("that is news").message,
            "another process fetches the image example.org/app:1, which waits for registry example.org: 503"
        );
        // The other one is gone.
        let planned = Progress::Planned {
            blobs: 1,
            bytes: 100,
        };
        let told = seen.take(&planned, Instant::now());
        assert_eq!(
            told.expect("that is news").message,
            "fetching the image example.org/app:1"
        );
    }

    #[test]
    fn a_registry_that_no_name_shows_is_named() {
        assert_eq!(
            seen("debian:12").fetching,
            "fetching the image debian:12 from docker.io"
        );
    }
}
