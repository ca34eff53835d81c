//! Waiting for a condition with a deadline, instead of sleeping and hoping.

use std::thread;
use std::time::{Duration, Instant};

/// How long a condition may take that should hold at once. Generous, because the machine may be
/// busy; what must be quick is asserted by the test itself.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// Asks until there is an answer, and gives it. Panics after `patience` with what was waited for.
pub fn until<T>(what: &str, patience: Duration, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(
            Instant::now() < deadline,
            "waited {patience:?} in vain until {what}"
        );
        thread::sleep(LOOK);
    }
}
