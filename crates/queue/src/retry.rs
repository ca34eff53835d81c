//! Whether a job is tried again, and when.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidemill_core::event::Outcome;
use tidemill_core::{Attempt, Millis, Reason, ReasonCode};

/// Why an attempt came to no good end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Its runner was lost.
    Lost,
    /// Tidemill or its host could not do its part.
    Platform,
    /// It ran out of memory.
    Memory,
    /// A time limit ended it.
    Timeout,
    /// It ended with this code.
    Exit(i32),
    /// Something that another attempt would not change.
    Other,
}

impl Cause {
    /// The cause that a reason and an outcome tell.
    pub fn of(reason: &Reason, outcome: Option<&Outcome>) -> Self {
        match reason.code {
            ReasonCode::Lost | ReasonCode::Unavailable => Self::Lost,
            ReasonCode::Sandbox
            | ReasonCode::Layer
            | ReasonCode::Internal
            | ReasonCode::Shutdown => Self::Platform,
            ReasonCode::Memory => Self::Memory,
            ReasonCode::Time | ReasonCode::PrepareTime => Self::Timeout,
            ReasonCode::Exit => outcome
                .and_then(|outcome| outcome.exit_code)
                .map_or(Self::Other, Self::Exit),
            _ => Self::Other,
        }
    }
}

/// What a rule is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryOn {
    /// The runner was lost, or the platform could not do its part.
    Infrastructure,
    /// It ran out of memory.
    Memory,
    /// A time limit ended it.
    Timeout,
    /// It ended with one of these codes.
    ExitCodes(BTreeSet<i32>),
    /// It ended with any code but 0.
    AnyExit,
}

impl RetryOn {
    fn covers(&self, cause: Cause) -> bool {
        match (self, cause) {
            (Self::Infrastructure, Cause::Lost | Cause::Platform)
            | (Self::Memory, Cause::Memory)
            | (Self::Timeout, Cause::Timeout)
            | (Self::AnyExit, Cause::Exit(_)) => true,
            (Self::ExitCodes(codes), Cause::Exit(code)) => codes.contains(&code),
            _ => false,
        }
    }
}

/// How long to wait before the next attempt: the first time, doubled each time, up to the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackOff {
    /// The first time.
    pub first: Millis,
    /// The most.
    pub max: Millis,
}

impl BackOff {
    /// The time before the `number`-th repetition, 1 for the first.
    pub fn before(self, number: u32) -> Duration {
        let doublings = number.saturating_sub(1).min(63);
        let millis = self.first.0.saturating_mul(1 << doublings);
        Duration::from_millis(millis.min(self.max.0))
    }
}

/// One rule of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryRule {
    /// What it is about.
    pub on: RetryOn,
    /// How often it allows another attempt.
    pub count: u32,
    /// How long to wait before.
    pub back_off: BackOff,
}

/// When a job is tried again. Nobody who did not ask for it gets a second attempt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// The rules. The first one that is about the cause decides.
    pub rules: Vec<RetryRule>,
}

/// The attempts that a job has used up.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tries {
    /// The newest attempt that has begun; 0 if none has.
    pub last: Attempt,
    /// Attempts that count: all but those that were declined or handed back.
    pub charged: u32,
    /// How many runners were lost while they had it.
    pub lost: u32,
    /// How often each rule of the policy has allowed another attempt.
    pub by_rule: Vec<u32>,
}

/// What is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Another attempt, after a while.
    Again {
        /// How long to wait.
        after: Duration,
        /// Which rule allows it.
        rule: usize,
    },
    /// No rule is about this cause.
    NotAsked,
    /// The rule has allowed as many as it may.
    Exhausted {
        /// How many that were.
        count: u32,
    },
    /// It took too many runners with it, whatever the policy says.
    SetApart,
}

/// Decides what follows an attempt that came to no good end.
pub fn decide(policy: &RetryPolicy, tries: &Tries, cause: Cause, losses_max: u32) -> Verdict {
    let found = policy.rules.iter().position(|rule| rule.on.covers(cause));
    let Some(rule) = found else {
        return Verdict::NotAsked;
    };
    if cause == Cause::Lost && tries.lost.saturating_add(1) >= losses_max {
        return Verdict::SetApart;
    }
    let used = tries.by_rule.get(rule).copied().unwrap_or(0);
    let RetryRule {
        count, back_off, ..
    } = &policy.rules[rule];
    if used >= *count {
        return Verdict::Exhausted { count: *count };
    }
    Verdict::Again {
        after: back_off.before(used + 1),
        rule,
    }
}

impl Tries {
    /// Another attempt by this rule.
    pub(crate) fn use_rule(&mut self, rule: usize) {
        if self.by_rule.len() <= rule {
            self.by_rule.resize(rule + 1, 0);
        }
        self.by_rule[rule] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> RetryPolicy {
        let rule = |on, count| RetryRule {
            on,
            count,
            back_off: BackOff {
                first: Millis(1_000),
                max: Millis(5_000),
            },
        };
        RetryPolicy {
            rules: vec![
                rule(RetryOn::ExitCodes(BTreeSet::from([75])), 2),
                rule(RetryOn::AnyExit, 1),
                rule(RetryOn::Infrastructure, 9),
            ],
        }
    }

    fn again(millis: u64, rule: usize) -> Verdict {
        Verdict::Again {
            after: Duration::from_millis(millis),
            rule,
        }
    }

    #[test]
    fn the_first_rule_about_the_cause_decides() {
        let mut tries = Tries::default();
        let decide = |tries: &Tries, cause| decide(&policy(), tries, cause, 3);
        assert_eq!(decide(&tries, Cause::Exit(75)), again(1_000, 0));
        tries.use_rule(0);
        assert_eq!(decide(&tries, Cause::Exit(75)), again(2_000, 0));
        tries.use_rule(0);
        assert_eq!(
            decide(&tries, Cause::Exit(75)),
            Verdict::Exhausted { count: 2 }
        );
        assert_eq!(decide(&tries, Cause::Exit(1)), again(1_000, 1));
        assert_eq!(decide(&tries, Cause::Memory), Verdict::NotAsked);
        assert_eq!(decide(&tries, Cause::Other), Verdict::NotAsked);
    }

    #[test]
    fn what_takes_runners_with_it_is_set_apart() {
        let mut tries = Tries::default();
        assert_eq!(decide(&policy(), &tries, Cause::Lost, 3), again(1_000, 2));
        tries.lost = 2;
        assert_eq!(decide(&policy(), &tries, Cause::Lost, 3), Verdict::SetApart);
        assert_eq!(
            decide(&policy(), &tries, Cause::Platform, 3),
            again(1_000, 2)
        );
    }

    #[test]
    fn a_back_off_doubles_up_to_its_most() {
        let back_off = policy().rules[0].back_off;
        let seconds: Vec<_> = [1, 2, 3, 4, 90]
            .map(|n| back_off.before(n).as_secs())
            .into();
        assert_eq!(seconds, [1, 2, 4, 5, 5]);
    }
}
