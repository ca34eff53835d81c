//! Whether something that failed is tried again, and when. Pure.
//!
//! The wait doubles with each try, as RFC 9110, 10.2.3 and the registries' own documents advise; what a
//! registry asks for with `Retry-After` counts more.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// New bytes that make the count of tries begin anew: a large blob over a bad line gets there.
const PROGRESS_BYTES: u64 = 1 << 20;
/// Tries of a registry that nobody has reached yet: its name may be wrong.
const UNREACHED_TRIES: u32 = 3;
/// The part of a wait that differs from one to the next, so that many do not come back at once.
const SPREAD: u32 = 4;

/// How long a registry is waited for, and how often it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For a connection, with TLS.
    pub connect: Duration,
    /// For the next bytes of an answer, or its beginning.
    pub stall: Duration,
    /// For a whole manifest or token, once it has begun to come.
    pub document: Duration,
    /// How often it is looked at how much of a blob has come,
    pub pace_every: Duration,
    /// and how much that must be at least.
    pub pace_bytes: u64,
    /// Tries in a row that bring nothing.
    pub tries: u32,
    /// The first wait between two tries.
    pub first_wait: Duration,
    /// The longest wait that is chosen here.
    pub longest_wait: Duration,
    /// The longest wait that a registry may ask for.
    pub asked_wait_max: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(15),
            stall: Duration::from_secs(30),
            document: Duration::from_secs(120),
            pace_every: Duration::from_secs(60),
            pace_bytes: 30 << 10,
            tries: 7,
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(30),
            asked_wait_max: Duration::from_secs(120),
        }
    }
}

/// The tries of one request.
#[derive(Debug)]
pub(crate) struct Tries {
    patience: Patience,
    failed: u32,
    /// Bytes that were there when the count began.
    bytes: u64,
    /// What makes this one's waits differ from others'.
    seed: u64,
}

/// What follows a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another try after a while.
    Wait(Duration),
    /// None; so many were made.
    GiveUp { tries: u32 },
}

impl Tries {
    pub(crate) fn new(patience: Patience, what: &impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        Self {
            patience,
            failed: 0,
            bytes: 0,
            seed: hasher.finish(),
        }
    }

    /// A try failed. `bytes` is what is there by now, `asked` the wait that the registry asks for.
    pub(crate) fn failed(
        &mut self,
        bytes: u64,
        asked: Option<Duration>,
        is_unreached: bool,
    ) -> Next {
        if bytes >= self.bytes.saturating_add(PROGRESS_BYTES) {
            self.failed = 0;
        }
        self.bytes = self.bytes.max(bytes);
        self.failed += 1;
        let too_long = asked.is_some_and(|asked| self.is_too_long(asked));
        let most = match is_unreached {
            true => self.patience.tries.min(UNREACHED_TRIES),
            false => self.patience.tries,
        };
        if self.failed >= most || too_long {
            return Next::GiveUp { tries: self.failed };
        }
        Next::Wait(asked.unwrap_or_else(|| self.chosen_wait()))
    }

    /// True for a wait that a registry asks for and does not get.
    pub(crate) fn is_too_long(&self, asked: Duration) -> bool {
        asked > self.patience.asked_wait_max
    }

    fn chosen_wait(&self) -> Duration {
        let doubled = 2_u32.saturating_pow(self.failed - 1);
        let wait = self
            .patience
            .first_wait
            .saturating_mul(doubled)
            .min(self.patience.longest_wait);
        let mut hasher = DefaultHasher::new();
        (self.seed, self.failed).hash(&mut hasher);
        let part = u32::try_from(hasher.finish() % 1000).unwrap_or(0);
        wait.saturating_sub(wait / SPREAD * part / 1000)
    }
}

/// The wait that a `Retry-After` asks for: seconds, or a date, which is compared with the registry's own
/// clock in `Date`.
pub(crate) fn retry_after(value: &str, date: Option<&str>) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let at = |text: &str| jiff::fmt::rfc2822::parse(text).ok();
    let wait = at(value)?
        .timestamp()
        .duration_since(at(date?)?.timestamp());
    Some(wait.try_into().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tries() -> Tries {
        Tries::new(Patience::default(), &"x")
    }

    #[test]
    fn waits_double_and_tries_end() {
        let mut tries = tries();
        for full in [500, 1000, 2000, 4000, 8000, 16_000] {
            let Next::Wait(wait) = tries.failed(0, None, false) else {
                panic!("too early");
            };
            let millis = wait.as_millis();
            assert!(
                millis <= full && millis * 4 >= full * 3,
                "{millis} of {full}"
            );
        }
        assert_eq!(tries.failed(0, None, false), Next::GiveUp { tries: 7 });
    }

    #[test]
    fn whoever_gets_on_may_go_on() {
        let mut tries = tries();
        for step in 1..100 {
            let next = tries.failed(step * PROGRESS_BYTES, None, false);
            assert!(
                matches!(next, Next::Wait(wait) if wait.as_millis() <= 500),
                "{step}"
            );
        }
        for _ in 0..5 {
            assert!(
                matches!(tries.failed(1, None, false), Next::Wait(_)),
                "what was lost is no progress"
            );
        }
        assert!(matches!(tries.failed(1, None, false), Next::GiveUp { .. }));
    }

    #[test]
    fn a_name_that_leads_nowhere_is_not_tried_for_long() {
        let mut tries = tries();
        assert!(matches!(tries.failed(0, None, true), Next::Wait(_)));
        assert!(matches!(tries.failed(0, None, true), Next::Wait(_)));
        assert_eq!(tries.failed(0, None, true), Next::GiveUp { tries: 3 });
    }

    #[test]
    fn what_the_registry_asks_for_counts_within_bounds() {
        let asked = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(
            tries().failed(0, asked(40), false),
            Next::Wait(Duration::from_secs(40))
        );
        assert_eq!(
            tries().failed(0, asked(121), false),
            Next::GiveUp { tries: 1 }
        );
    }

    #[test]
    fn a_date_is_compared_with_the_registrys_clock() {
        let date = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        let wait = |value: &str, date: Option<&str>| retry_after(value, date).map(|w| w.as_secs());
        assert_eq!(wait(" 7 ", None), Some(7));
        assert_eq!(wait("Sun, 06 Nov 1994 08:50:07 GMT", date), Some(30));
        assert_eq!(wait("Sun, 06 Nov 1994 08:00:00 GMT", date), Some(0));
        assert_eq!(wait("Sun, 06 Nov 1994 08:50:07 GMT", None), None);
        assert_eq!(wait("soon", date), None);
    }
}
