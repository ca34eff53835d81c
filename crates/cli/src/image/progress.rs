//! How far a pull is: a line that comes and goes on a terminal, a few lines elsewhere.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tidemill_core::ByteSize;
use tidemill_oci::OciDigest;
use tidemill_registry::{Progress, Watch};

use crate::ui::{QUIET_FOR, Ui, plain, time};

/// How often the line is drawn anew.
const DRAW_EVERY: Duration = Duration::from_millis(100);

/// What has come by now.
#[derive(Debug)]
struct Seen {
    started: Instant,
    drawn: Instant,
    total: u64,
    blobs: HashMap<OciDigest, u64>,
}

/// Shows people what a pull of this name does.
pub(crate) fn watch(name: &str, ui: &Ui) -> Watch {
    let (name, ui) = (name.to_owned(), ui.clone());
    let now = Instant::now();
    let seen = Mutex::new(Seen {
        started: now,
        drawn: now,
        total: 0,
        blobs: HashMap::new(),
    });
    Watch::new(move |progress| {
        // Whoever panicked, all that can be wrong is a line on the screen.
        let mut seen = seen
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        match progress {
            Progress::Planned { blobs, bytes } => {
                seen.total = *bytes;
                if *blobs > 0 && !ui.is_terminal() {
                    let what = if *blobs == 1 { "blob" } else { "blobs" };
                    ui.note(&format!(
                        "{name}: {blobs} {what} to fetch, {}",
                        ByteSize(*bytes)
                    ));
                }
            }
            Progress::Came { digest, bytes } => {
                seen.blobs.insert(*digest, *bytes);
                draw(&mut seen, &name, &ui);
            }
            Progress::Waiting { digest, problem } => {
                let what = if digest.is_some() {
                    "a part of it"
                } else {
                    "it"
                };
                let why = problem.as_ref().map_or_else(String::new, |problem| {
                    format!(" (that one waits for {})", plain(problem))
                });
                ui.note(&format!(
                    "{name}: another process fetches {what}; waiting for that{why}"
                ));
            }
            Progress::Retrying { problem, after, .. } => {
                let problem = plain(problem);
                ui.note(&format!(
                    "{name}: {problem}; trying again in {}",
                    time(*after)
                ));
            }
        }
    })
}

fn draw(seen: &mut Seen, name: &str, ui: &Ui) {
    let now = Instant::now();
    if now - seen.started < QUIET_FOR || now - seen.drawn < DRAW_EVERY {
        return;
    }
    seen.drawn = now;
    let came: u64 = seen.blobs.values().sum();
    // What was planned does not count what was there in part.
    let came = ByteSize(came.min(seen.total));
    ui.status(&format!(
        "pulling {name}: {came} of {}",
        ByteSize(seen.total)
    ));
}
