//! What a probe says in the end: one line, and an exit code that means the same.

use std::fmt;
use std::io;

use crate::attempt::{Answer, attempt};

/// How much of a verdict is shown.
const TEXT_MAX: usize = 1000;

/// What came of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Everything was refused, or is not there.
    Safe(String),
    /// Something was let through.
    Broken(String),
    /// This host has nothing to try it on.
    Absent(String),
}

impl Verdict {
    /// The exit code that says the same.
    pub(crate) const fn code(&self) -> u8 {
        match self {
            Self::Safe(_) => 0,
            Self::Broken(_) => 1,
            Self::Absent(_) => 2,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, text) = match self {
            Self::Safe(text) => ("safe", text),
            Self::Broken(text) => ("broken", text),
            Self::Absent(text) => ("absent", text),
        };
        // Names of files and processes are somebody else's: they must not make a second line.
        let shown = text.chars().take(TEXT_MAX);
        let shown: String = shown
            .map(|c| if c.is_control() { '?' } else { c })
            .collect();
        write!(f, "{word}: {shown}")
    }
}

/// What was found so far.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    holes: Vec<String>,
    held: Vec<String>,
    absent: Vec<String>,
}

impl Findings {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Something that must not be.
    pub(crate) fn hole(&mut self, what: impl Into<String>) {
        self.holes.push(what.into());
    }

    /// Something that was refused.
    pub(crate) fn held(&mut self, what: impl Into<String>) {
        self.held.push(what.into());
    }

    /// Something that this host does not have.
    pub(crate) fn absent(&mut self, what: impl Into<String>) {
        self.absent.push(what.into());
    }

    /// A claim that is a hole if it is true.
    pub(crate) fn unless(&mut self, is_hole: bool, what: impl Into<String>) {
        if is_hole {
            self.hole(what);
        }
    }

    /// Tries something in a child. It holds if it fails, for whatever reason.
    pub(crate) fn attempt(&mut self, what: &str, action: impl FnOnce() -> io::Result<()>) {
        match attempt(action) {
            Answer::Done => self.hole(what),
            Answer::Refused(errno) => self.held(format!("{what}: {}", errno_name(errno))),
            Answer::Killed(signal) => self.held(format!("{what}: signal {signal}")),
            Answer::Silent => self.held(format!("{what}: no answer")),
        }
    }

    /// Tries a call in a child. It holds only if policy refuses it: any other error means that the
    /// kernel looked at its arguments.
    pub(crate) fn barred(&mut self, what: &str, action: impl FnOnce() -> io::Result<()>) {
        match attempt(action) {
            Answer::Done => self.hole(what),
            Answer::Refused(errno) if is_policy(errno) => {
                self.held(format!("{what}: {}", errno_name(errno)));
            }
            Answer::Refused(errno) => {
                self.hole(format!("{what} reaches the kernel ({})", errno_name(errno)));
            }
            Answer::Killed(signal) => self.held(format!("{what}: signal {signal}")),
            Answer::Silent => self.hole(format!("{what} gives no answer")),
        }
    }

    /// The verdict on all of it.
    pub(crate) fn verdict(self) -> Verdict {
        if !self.holes.is_empty() {
            Verdict::Broken(self.holes.join("; "))
        } else if self.held.is_empty() && !self.absent.is_empty() {
            Verdict::Absent(self.absent.join("; "))
        } else {
            Verdict::Safe(self.held.join("; "))
        }
    }
}

/// True for the errors by which a call is refused whatever its arguments are.
pub(crate) const fn is_policy(errno: i32) -> bool {
    matches!(errno, libc::EPERM | libc::ENOSYS | libc::EACCES)
}

/// The name of an error number.
pub(crate) fn errno_name(errno: i32) -> String {
    let known = match errno {
        libc::EPERM => "EPERM",
        libc::ENOENT => "ENOENT",
        libc::ESRCH => "ESRCH",
        libc::EBADF => "EBADF",
        libc::EAGAIN => "EAGAIN",
        libc::ENOMEM => "ENOMEM",
        libc::EACCES => "EACCES",
        libc::EFAULT => "EFAULT",
        libc::EINVAL => "EINVAL",
        libc::EMFILE => "EMFILE",
        libc::EFBIG => "EFBIG",
        libc::ENOSPC => "ENOSPC",
        libc::EROFS => "EROFS",
        libc::ENOSYS => "ENOSYS",
        libc::EDQUOT => "EDQUOT",
        libc::EAFNOSUPPORT => "EAFNOSUPPORT",
        libc::ENETUNREACH => "ENETUNREACH",
        libc::ECONNREFUSED => "ECONNREFUSED",
        _ => return format!("errno {errno}"),
    };
    known.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_hole_outweighs_everything() {
        let mut findings = Findings::new();
        findings.held("a");
        findings.absent("b");
        findings.hole("c\nd");
        let verdict = findings.verdict();
        assert_eq!(
            (verdict.to_string(), verdict.code()),
            ("broken: c?d".to_owned(), 1)
        );
    }

    #[test]
    fn nothing_tried_is_not_safe() {
        let mut findings = Findings::new();
        findings.absent("no such thing");
        assert_eq!(findings.verdict().code(), 2);
    }

    #[test]
    fn an_error_about_arguments_is_no_refusal() {
        let fails_with = |errno| move || Err(io::Error::from_raw_os_error(errno));
        let mut findings = Findings::new();
        findings.barred("refused", fails_with(libc::EPERM));
        findings.attempt("failed", fails_with(libc::EINVAL));
        assert_eq!(findings.verdict().code(), 0);
        let mut findings = Findings::new();
        findings.barred("looked at", fails_with(libc::EINVAL));
        assert_eq!(findings.verdict().code(), 1);
    }
}
