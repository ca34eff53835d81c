//! What an end means: from how a sandbox ended to the events that are recorded. Pure.

use tidemill_core::event::Outcome;
use tidemill_core::{
    ByteSize, Event, Grant, Limits, LogTotals, Millis, Reason, ReasonCode, signal_name,
};
use tidemill_dispatch::{Completion, Ending, JobEnd, TimerKind};
use tidemill_sandbox::{Ended, Oom, RefusedCall};

use super::stop::{SET_UP_MAX, StopNote};

/// What came of a program that ran, and what there is to warn of.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) completion: Completion,
    pub(crate) warnings: Vec<Reason>,
}

/// Judges how a program ended. A limit that was reached is the reason if the program ended badly,
/// and a warning if it ended well or because it was made to (`note`); the log's limit is neither.
/// `host_memory` is how many bytes of memory this machine has.
pub(crate) fn judge(
    ended: &Ended,
    limits: &Limits,
    log: LogTotals,
    note: StopNote,
    host_memory: ByteSize,
) -> Verdict {
    let well = ended.exit_code == Some(0);
    let files = ended
        .usage
        .disk_bytes
        .filter(|_| is_in_memory(limits, host_memory));
    let was_ended = note.signalled.is_some() || note.killed;
    let mut reached: Vec<Reason> = [
        ended.oom.as_ref().map(|oom| memory(oom, limits, files)),
        ended.disk_low.then(disk_low),
        ended.disk_full.then(|| disk(limits)),
        ended.shared_memory_full.then(|| shared_memory(limits)),
        (ended.pids_refused > 0 || ended.pids_full).then(|| pids(ended.pids_refused, limits)),
    ]
    .into_iter()
    .flatten()
    .collect();
    let reason = if ended.time_limit {
        // Whoever should have ended it was late.
        Some(ran_too_long(note, limits, None))
    } else if well {
        None
    } else if reached.is_empty() || was_ended {
        Some(plain(ended))
    } else {
        Some(reached.remove(0))
    };
    let mut warnings = reached;
    // Whoever ended the job ended these too: they outlived nothing.
    if ended.killed_processes > 0 && !was_ended {
        warnings.push(left_overs(ended.killed_processes));
    }
    warnings.extend(refused(&ended.refused_calls));
    let outcome = Outcome {
        exit_code: ended.exit_code,
        signal: ended.signal,
        core_dumped: ended.core_dumped,
        killed_processes: ended.killed_processes,
        usage: ended.usage,
        log,
        duration_ms: Millis(ended.usage.wall_ms),
    };
    Verdict {
        completion: Completion { outcome, reason },
        warnings,
    }
}

/// What a program that failed may have failed for, and how to grant it.
const NO_NETWORK: &str = "it looked for a network, and has none but its own loopback; --net host \
                          gives it this machine's";

fn plain(ended: &Ended) -> Reason {
    let reason = without_hint(ended);
    if ended.network_missed {
        reason.with_hint(NO_NETWORK)
    } else {
        reason
    }
}

fn without_hint(ended: &Ended) -> Reason {
    match (ended.exit_code, ended.signal) {
        (Some(code), _) => Reason::new(
            ReasonCode::Exit,
            format!("the program ended with exit code {code}"),
        ),
        (None, Some(signal)) => {
            let core = if ended.core_dumped {
                " and left a core dump"
            } else {
                ""
            };
            let name = signal_name(signal);
            Reason::new(
                ReasonCode::Signal,
                format!("the program was ended by {name}{core}"),
            )
        }
        (None, None) => Reason::new(ReasonCode::Internal, "how the program ended is not known"),
    }
}

/// Files are told of where they are this part of the memory limit or more.
const FILES_PART: u64 = 4;

/// True if the private layer lies in memory. A larger one is in the state directory.
fn is_in_memory(limits: &Limits, host_memory: ByteSize) -> bool {
    limits.disk.is_none_or(|disk| disk.0 <= host_memory.0 / 2)
}

/// `files` is how much of the memory are files in the private layer.
fn memory(oom: &Oom, limits: &Limits, files: Option<u64>) -> Reason {
    let limit = oom.limit.or(limits.memory);
    let what = limit.map_or_else(
        || "the memory limit was reached".to_owned(),
        |limit| format!("the memory limit of {limit} was reached"),
    );
    let peak = oom
        .peak
        .map_or_else(String::new, |peak| format!(" (peak {peak})"));
    let killed = match (&oom.victim, oom.kills) {
        (Some(victim), 0 | 1) => format!("`{victim}` was killed"),
        (Some(victim), kills) => format!("{kills} processes were killed, `{victim}` first"),
        (None, 0 | 1) => "a process was killed".to_owned(),
        (None, kills) => format!("{kills} processes were killed"),
    };
    let message = format!("{what}{peak} and {killed}");
    let enough = limit.map(|limit| more_than(oom.peak.unwrap_or_default(), limit));
    let raise = raise("memory", enough);
    let hint = match (files, limit) {
        (Some(files), Some(limit)) if files >= limit.0 / FILES_PART => format!(
            "{} of it are files that it wrote, which count as memory; {raise}",
            ByteSize(files)
        ),
        _ => raise,
    };
    Reason::new(ReasonCode::Memory, message).with_hint(hint)
}

fn disk(limits: &Limits) -> Reason {
    let message = limits.disk.map_or_else(
        || "the private disk space was full".to_owned(),
        |limit| format!("the disk limit of {limit} was reached"),
    );
    let enough = limits.disk.map(|limit| more_than(limit, limit));
    Reason::new(ReasonCode::Disk, message).with_hint(raise("disk", enough))
}

fn disk_low() -> Reason {
    let message =
        "the disk of the state directory was almost full, and what the job writes lies on it";
    Reason::new(ReasonCode::Disk, message).with_hint(
        "make room there, or lower the limit with --disk so that its files lie in memory",
    )
}

fn shared_memory(limits: &Limits) -> Reason {
    let size = limits
        .shm
        .or_else(|| limits.memory.map(|memory| ByteSize(memory.0 / 2)));
    let message = size.map_or_else(
        || "/dev/shm was full".to_owned(),
        |size| format!("/dev/shm was full: its limit of {size} was reached"),
    );
    let enough = size.map(|size| more_than(size, size));
    Reason::new(ReasonCode::Shm, message).with_hint(raise("shm", enough))
}

fn pids(refused: u64, limits: &Limits) -> Reason {
    let times = match refused {
        0 => String::new(),
        1 => ": a new one was refused once".to_owned(),
        times => format!(": a new one was refused {times} times"),
    };
    Reason::new(
        ReasonCode::Pids,
        format!("the limit of {} processes was reached{times}", limits.pids),
    )
    .with_hint(raise("pids", Some(limits.pids.saturating_mul(2))))
}

fn raise(limit: &str, to: Option<impl std::fmt::Display>) -> String {
    match to {
        Some(to) => format!("if it needs more, raise the limit, for example with --{limit} {to}"),
        None => format!("if it needs more, set the limit with --{limit}"),
    }
}

/// The limit doubled until it is more than what was seen, written without a space so that it can be
/// given as a flag.
fn more_than(seen: ByteSize, limit: ByteSize) -> String {
    let mut enough = limit.0.max(1).saturating_mul(2);
    while enough <= seen.0 && enough < u64::MAX {
        enough = enough.saturating_mul(2);
    }
    ByteSize(enough).to_string().replace(' ', "")
}

/// The warning that less of a log was kept than its limit allows.
pub(crate) fn log_cut(room: ByteSize, limit: ByteSize) -> Reason {
    let message = format!(
        "only {room} of the log were kept, and not its limit of {limit}: the disk of the state \
         directory is almost full"
    );
    Reason::new(ReasonCode::Log, message)
        .with_hint("make room on that disk, or use another one with --state-dir")
}

fn left_overs(count: u64) -> Reason {
    let message = if count == 1 {
        "a process was still there when the main one had ended, and was killed".to_owned()
    } else {
        format!("{count} processes were still there when the main one had ended, and were killed")
    };
    Reason::new(ReasonCode::LeftOvers, message)
        .with_hint(
        "end what the job starts, or have it waited for with `\"wait_children\": true` in a job file",
    )
}

/// Calls that are refused only where they make a namespace.
const MAKE_NAMESPACES: [&str; 2] = ["clone", "unshare"];

/// A warning about system calls that policy refused; nothing if there were none.
fn refused(calls: &[RefusedCall]) -> Option<Reason> {
    let texts: Vec<String> = calls
        .iter()
        .map(|call| match call.times {
            1 => call.call.clone(),
            times => format!("{} ({times} times)", call.call),
        })
        .collect();
    let wanted_namespaces = calls
        .iter()
        .any(|call| MAKE_NAMESPACES.contains(&call.call.as_str()));
    let hint = if wanted_namespaces {
        "if it needs user namespaces, as browsers and container tools do, --grant userns gives them; \
         docs/reference/system-calls.md says why they are refused otherwise"
    } else {
        "docs/reference/system-calls.md says why"
    };
    (!texts.is_empty()).then(|| {
        Reason::new(
            ReasonCode::Refused,
            format!("refused by the sandbox's policy: {}", texts.join(", ")),
        )
        .with_hint(hint)
    })
}

/// A warning about walls that this host cannot build; nothing if it has them all.
pub(crate) fn missing_walls(walls: &[Grant]) -> Option<Reason> {
    let texts: Vec<String> = walls
        .iter()
        .filter_map(|wall| match wall {
            Grant::Missing { wall, why } => Some(format!("{wall} ({why})")),
            _ => None,
        })
        .collect();
    (!texts.is_empty()).then(|| {
        let message = format!(
            "the sandbox lacks what this host cannot do: {}",
            texts.join(", ")
        );
        Reason::new(ReasonCode::Weakened, message)
            .with_hint("`tidemill doctor` says what to change")
    })
}

/// What nothing but the kernel or somebody who does not ask ends a process with.
const SIGKILL: i32 = 9;

/// The last event of an attempt.
pub(crate) fn last_event(
    ending: Ending,
    note: StopNote,
    limits: &Limits,
    awaited: Option<&str>,
) -> Event {
    match ending {
        Ending::Completed(Completion {
            outcome,
            reason: Some(reason),
        }) if reason.code == ReasonCode::Time => Event::TimedOut {
            reason,
            outcome: Some(outcome),
        },
        Ending::Completed(completion) => completed(completion),
        Ending::TimedOut { timer, end } => Event::TimedOut {
            reason: match timer {
                TimerKind::Prepare => prepared_late(awaited),
                TimerKind::Run => ran_too_long(note, limits, end.as_ref()),
            },
            outcome: end.and_then(outcome_of),
        },
        Ending::ExecutionError(reason) | Ending::SystemError(reason) => Event::Failed {
            reason,
            outcome: None,
        },
        Ending::HandedBack => Event::Requeued {
            reason: Reason::new(
                ReasonCode::Shutdown,
                "the runner was drained before it started",
            ),
        },
        Ending::Cancelled(None) => Event::Cancelled {
            reason: Some(cancelled("before it started")),
            outcome: None,
        },
        Ending::Cancelled(Some(end)) => match (end, note.describe(limits.grace)) {
            (JobEnd::Ran(completion), Some(how)) => {
                let ended_itself = completion.outcome.signal != Some(SIGKILL);
                let how = note
                    .after_grace_without_main(limits.grace, ended_itself)
                    .unwrap_or(how);
                let reason = cancelled(&with_code(&how, &completion.outcome));
                // Whoever cancels what seems to hang wants to know what it waited for.
                let hint = completion.reason.and_then(|reason| reason.hint);
                Event::Cancelled {
                    reason: Some(Reason { hint, ..reason }),
                    outcome: Some(completion.outcome),
                }
            }
            // It had ended before anything was done to it: it is recorded as what it did.
            (JobEnd::Ran(completion), None) => completed(completion),
            (JobEnd::ExecutionError(reason) | JobEnd::SystemError(reason), how) => {
                let how = how.unwrap_or_else(|| "before it started".to_owned());
                Event::Cancelled {
                    reason: Some(cancelled(&format!("{how} ({})", reason.message))),
                    outcome: None,
                }
            }
        },
        Ending::Dropped(end) => Event::Failed {
            reason: Reason::new(ReasonCode::Shutdown, "the runner was shut down"),
            outcome: end.and_then(outcome_of),
        },
    }
}

fn completed(completion: Completion) -> Event {
    let Completion { outcome, reason } = completion;
    match reason {
        None => Event::Completed { outcome },
        Some(reason) => Event::Failed {
            reason,
            outcome: Some(outcome),
        },
    }
}

fn outcome_of(end: JobEnd) -> Option<Outcome> {
    match end {
        JobEnd::Ran(completion) => Some(completion.outcome),
        JobEnd::ExecutionError(_) | JobEnd::SystemError(_) => None,
    }
}

fn cancelled(how: &str) -> Reason {
    Reason::new(ReasonCode::Cancelled, format!("cancelled: {how}"))
}

fn with_code(how: &str, outcome: &Outcome) -> String {
    match (outcome.exit_code, outcome.signal) {
        (Some(code), _) => format!("{how} (exit code {code})"),
        (None, Some(signal)) => format!("{how} ({})", signal_name(signal)),
        (None, None) => how.to_owned(),
    }
}

fn ran_too_long(note: StopNote, limits: &Limits, end: Option<&JobEnd>) -> Reason {
    // Its own time had not begun.
    if note.set_up_late {
        return Reason::new(
            ReasonCode::PrepareTime,
            format!(
                "its sandbox was not set up after {}, and it was given up before its program ran",
                time(SET_UP_MAX.into())
            ),
        )
        .with_hint("look for a file system or device that does not answer");
    }
    let limit = limits.timeout.unwrap_or_default();
    let message = format!(
        "the time limit of {} for running was reached, and it was killed",
        time(limit)
    );
    let longer = "if it needs longer, raise the limit with --timeout";
    // A program that waits for a network it will never have needs no more time.
    let hint = match end {
        Some(JobEnd::Ran(Completion { reason, .. })) => {
            reason.as_ref().and_then(|reason| reason.hint.as_deref())
        }
        _ => None,
    };
    let hint = hint.map_or_else(|| longer.to_owned(), |hint| format!("{hint}; {longer}"));
    Reason::new(ReasonCode::Time, message).with_hint(hint)
}

/// Its layers were not ready in time; `awaited` is what they waited for, if they told it.
fn prepared_late(awaited: Option<&str>) -> Reason {
    const LATE: &str = "the time limit for preparing was reached before its layers were ready";
    const LONGER: &str = "if they need longer, raise the limit with --prepare-timeout";
    match awaited {
        None => Reason::new(ReasonCode::PrepareTime, LATE).with_hint(LONGER),
        Some(awaited) => Reason::new(ReasonCode::PrepareTime, format!("{LATE}: {awaited}"))
            .with_hint(format!("{LONGER}; what has come so far is kept")),
    }
}

/// A length of time for people: `250 ms`, `1.5 s`, `90 s`.
pub(crate) fn time(time: Millis) -> String {
    let (whole, rest) = (time.0 / 1000, time.0 % 1000);
    match (whole, rest) {
        (0, rest) => format!("{rest} ms"),
        (whole, 0) => format!("{whole} s"),
        (whole, rest) => {
            let decimals = format!("{rest:03}");
            format!("{whole}.{} s", decimals.trim_end_matches('0'))
        }
    }
}

#[cfg(test)]
mod tests;
