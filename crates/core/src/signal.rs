//! The names of signals, by their numbers on Linux (signal(7), x86 and ARM).

use std::borrow::Cow;

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

#[cfg(test)]
mod tests {
    use super::*;

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
