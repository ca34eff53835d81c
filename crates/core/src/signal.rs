//! The names of signals, by their numbers on Linux (signal(7), x86 and ARM), and the one that asks a
//! job to end.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const NAMES: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

/// The number of SIGTERM, the polite request to end.
pub const SIGTERM: i32 = 15;
/// The number of SIGKILL.
pub const SIGKILL: i32 = 9;
/// The number of SIGSTOP.
const SIGSTOP: i32 = 19;

/// The name of a signal, for example `SIGSEGV`; `signal 40` for one without a name.
pub fn signal_name(number: i32) -> Cow<'static, str> {
    usize::try_from(number)
        .ok()
        .and_then(|number| NAMES.get(number.checked_sub(1)?))
        .map_or_else(
            || Cow::Owned(format!("signal {number}")),
            |name| Cow::Borrowed(*name),
        )
}

/// The signal that asks a job to end: one of the standard ones that a program can catch. Formats carry
/// its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StopSignal(i32);

impl StopSignal {
    /// Its number.
    pub const fn number(self) -> i32 {
        self.0
    }

    /// True for SIGTERM, which a job gets that names no other.
    pub const fn is_default(&self) -> bool {
        self.0 == SIGTERM
    }

    /// The names of all signals that can be one.
    pub fn names() -> impl Iterator<Item = &'static str> {
        (1..)
            .zip(NAMES)
            .filter(|(number, _)| is_catchable(*number))
            .map(|(_, name)| name)
    }
}

impl Default for StopSignal {
    fn default() -> Self {
        Self(SIGTERM)
    }
}

impl fmt::Display for StopSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&signal_name(self.0))
    }
}

impl FromStr for StopSignal {
    type Err = ParseSignalError;

    /// Reads a name with or without `SIG`, in any case, or a number.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let number = if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
            text.parse()
                .ok()
                .filter(|number| (1..=31).contains(number))
                .ok_or(ParseSignalError::NotStandard)?
        } else {
            number_of(text).ok_or(ParseSignalError::Unknown)?
        };
        if is_catchable(number) {
            Ok(Self(number))
        } else {
            Err(ParseSignalError::NotCatchable {
                name: signal_name(number),
            })
        }
    }
}

impl Serialize for StopSignal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StopSignal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

impl JsonSchema for StopSignal {
    fn schema_name() -> Cow<'static, str> {
        "StopSignal".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": Self::names().collect::<Vec<_>>() })
    }
}

/// Says why a text does not name a signal that can ask a job to end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseSignalError {
    /// There is no signal of this name.
    #[error("not the name of a signal")]
    Unknown,
    /// The number is none of the standard signals.
    #[error("not the number of a standard signal, which are 1 to 31")]
    NotStandard,
    /// No program can catch it.
    #[error("{name}, which no program can catch")]
    NotCatchable {
        /// Its name.
        name: Cow<'static, str>,
    },
}

const fn is_catchable(number: i32) -> bool {
    !matches!(number, SIGKILL | SIGSTOP)
}

/// The number of the signal with a name, written with or without `SIG` and in any case.
fn number_of(text: &str) -> Option<i32> {
    (1..).zip(NAMES).find_map(|(number, name)| {
        let is_it = name.eq_ignore_ascii_case(text) || name[3..].eq_ignore_ascii_case(text);
        is_it.then_some(number)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_signal_is_written_in_many_ways() {
        for text in ["INT", "int", "SIGINT", "SigInt", "2", " 2 "] {
            let signal: StopSignal = text.parse().expect(text);
            assert_eq!((signal.number(), signal.to_string()), (2, "SIGINT".into()));
        }
        assert!(StopSignal::default().is_default());
        for name in StopSignal::names() {
            let signal: StopSignal = name.parse().expect(name);
            assert_eq!(signal.to_string(), name);
            let json = serde_json::to_string(&signal).expect("a text");
            assert_eq!(json, format!("\"{name}\""));
            assert_eq!(
                serde_json::from_str::<StopSignal>(&json).expect("a name"),
                signal
            );
        }
        assert_eq!(StopSignal::names().count(), 29);
    }

    #[test]
    fn what_cannot_ask_a_job_to_end_says_why() {
        let error = |text: &str| text.parse::<StopSignal>().expect_err(text);
        for text in ["", "SIG", "INTT", "-2", "2.0", "SIGRTMIN+3"] {
            assert_eq!(error(text), ParseSignalError::Unknown, "{text}");
        }
        for text in ["0", "32", "64", "99999999999999999999"] {
            assert_eq!(error(text), ParseSignalError::NotStandard, "{text}");
        }
        for (text, name) in [
            ("kill", "SIGKILL"),
            ("9", "SIGKILL"),
            ("SIGSTOP", "SIGSTOP"),
        ] {
            let name = name.into();
            assert_eq!(
                error(text),
                ParseSignalError::NotCatchable { name },
                "{text}"
            );
        }
    }

    #[test]
    fn numbers_have_their_names() {
        assert_eq!(signal_name(SIGKILL), "SIGKILL");
        assert_eq!(signal_name(SIGTERM), "SIGTERM");
        assert_eq!(signal_name(11), "SIGSEGV");
        assert_eq!(signal_name(31), "SIGSYS");
        for number in [-1, 0, 32, 64] {
            assert_eq!(signal_name(number), format!("signal {number}"));
        }
    }
}
