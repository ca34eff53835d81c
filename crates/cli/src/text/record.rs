//! What is known of one execution, as `show` prints it, and how it ended, in one line.

use tidemill_core::{ByteSize, JobSpec, ReasonCode, State, Timestamp, signal_name};
use tidemill_ledger::Snapshot;

use super::{bounds, command_line, grant, table};
use crate::clock;
use crate::ui::{plain, state, time};

/// Characters of a command that are shown.
const COMMAND_CHARS_MAX: usize = 2000;

/// Everything about an execution, a field on each line. `spec` is its job's, if it is known.
pub(crate) fn page(snapshot: &Snapshot, spec: Option<&JobSpec>, now: Timestamp) -> String {
    let mut page = Page::default();
    page.field("id", &snapshot.id.to_string());
    page.optional("name", snapshot.name.as_deref().map(plain));
    let labels: Vec<String> = snapshot
        .labels
        .iter()
        .map(|(key, value)| format!("{}={}", plain(key), plain(value)))
        .collect();
    page.optional("labels", (!labels.is_empty()).then(|| labels.join(" ")));
    page.field(
        "command",
        &command_line(&snapshot.command, COMMAND_CHARS_MAX),
    );
    page.field("state", state(snapshot.state));
    page.optional("at", table::preparing(snapshot));
    if let Some(reason) = &snapshot.reason {
        page.field(
            "reason",
            &format!("{} [{}]", plain(&reason.message), reason.code),
        );
        page.optional("hint", reason.hint.as_deref().map(plain));
    }
    page.optional("exit code", snapshot.exit_code.map(|code| code.to_string()));
    page.optional(
        "signal",
        snapshot.signal.map(|signal| {
            let core = if snapshot.core_dumped {
                " (core dumped)"
            } else {
                ""
            };
            format!("{}{core}", signal_name(signal))
        }),
    );
    page.field("created", &clock::date(snapshot.created_at));
    page.optional("started", snapshot.started_at.map(clock::date));
    page.optional("finished", snapshot.finished_at.map(clock::date));
    page.optional("ran for", table::run_time(snapshot, now).map(time));
    page.optional(
        "attempts",
        (snapshot.attempts != 1).then(|| snapshot.attempts.to_string()),
    );
    page.optional(
        "runner",
        snapshot.runner.as_ref().map(|runner| plain(&runner.0)),
    );
    usage(snapshot, &mut page);
    let log = &snapshot.log;
    let dropped = match log.dropped_bytes {
        0 => String::new(),
        bytes => format!(", {} of it left out by the log limit", ByteSize(bytes)),
    };
    page.field(
        "log",
        &format!(
            "{} ({} stdout, {} stderr){dropped}",
            ByteSize(log.bytes),
            ByteSize(log.stdout_bytes),
            ByteSize(log.stderr_bytes)
        ),
    );
    page.optional(
        "killed",
        (snapshot.killed_processes > 0).then(|| {
            let which = match snapshot.state {
                State::Cancelled | State::TimedOut => "beside the main one",
                _ => "that outlived the main one",
            };
            format!("{} processes {which}", snapshot.killed_processes)
        }),
    );
    page.optional(
        "cancel",
        snapshot.cancel.as_ref().map(|cancel| {
            format!(
                "asked by {} at {}",
                plain(&cancel.by),
                clock::date(cancel.at)
            )
        }),
    );
    for warning in &snapshot.warnings {
        page.field(
            "warning",
            &format!("{} [{}]", plain(&warning.message), warning.code),
        );
    }
    page.field("spec", &snapshot.spec.to_string());
    page.optional("limits", spec.map(bounds::limits));
    page.optional("on cancel", spec.map(bounds::on_cancel));
    for line in grant::lines(&snapshot.grants) {
        page.field("grant", &line);
    }
    page.lines.join("\n")
}

fn usage(snapshot: &Snapshot, page: &mut Page) {
    let Some(usage) = &snapshot.usage else {
        return;
    };
    let millis = |millis: u64| time(std::time::Duration::from_millis(millis));
    page.field(
        "cpu time",
        &format!(
            "{} user, {} system",
            millis(usage.user_ms),
            millis(usage.system_ms)
        ),
    );
    page.optional(
        "peak memory",
        usage
            .peak_memory_bytes
            .map(|bytes| ByteSize(bytes).to_string()),
    );
    page.optional(
        "peak processes",
        usage.peak_pids.map(|pids| pids.to_string()),
    );
    page.optional(
        "disk",
        usage.disk_bytes.map(|bytes| ByteSize(bytes).to_string()),
    );
}

#[derive(Debug, Default)]
struct Page {
    lines: Vec<String>,
}

impl Page {
    fn field(&mut self, name: &str, value: &str) {
        self.lines.push(format!("{name:<14}  {value}"));
    }

    fn optional(&mut self, name: &str, value: Option<String>) {
        if let Some(value) = value {
            self.field(name, &value);
        }
    }
}

/// How an execution ended, in one line: `succeeded in 1.2 s, peak memory 34 MiB`.
pub(crate) fn closing(snapshot: &Snapshot) -> String {
    let mut parts = vec![verdict(snapshot)];
    let says_peak = snapshot.reason.as_ref().is_some_and(|reason| {
        reason.code == ReasonCode::Memory && reason.message.contains("(peak ")
    });
    let peak = snapshot.usage.and_then(|usage| usage.peak_memory_bytes);
    if let Some(peak) = peak.filter(|_| !says_peak) {
        parts.push(format!("peak memory {}", ByteSize(peak)));
    }
    if snapshot.log.dropped_bytes > 0 {
        let dropped = ByteSize(snapshot.log.dropped_bytes);
        parts.push(format!("{dropped} of output left out by the log limit"));
    }
    format!("{} ({})", parts.join(", "), table::short_id(snapshot))
}

fn verdict(snapshot: &Snapshot) -> String {
    // The reason of a cancellation or a time limit says itself how the program took it.
    let end = match (snapshot.state, snapshot.exit_code, snapshot.signal) {
        (State::Failed, Some(code), _) => format!(" with exit code {code}"),
        (State::Failed, None, Some(signal)) => {
            let core = if snapshot.core_dumped {
                " (core dumped)"
            } else {
                ""
            };
            format!(" by {}{core}", signal_name(signal))
        }
        _ => String::new(),
    };
    let after = snapshot
        .duration_ms
        .filter(|_| snapshot.started_at.is_some())
        .map(|duration| format!(" after {}", time(duration.as_duration())));
    let why = snapshot
        .reason
        .as_ref()
        .filter(|reason| !tells_nothing_more(reason.code))
        .map(|reason| {
            reason
                .message
                .strip_prefix("cancelled: ")
                .unwrap_or(&reason.message)
        })
        .map(|message| format!(": {}", plain(message)));
    [
        state(snapshot.state).to_owned(),
        end,
        after.unwrap_or_default(),
        why.unwrap_or_default(),
    ]
    .concat()
}

/// True for the reasons that exit code or signal already say.
pub(crate) const fn tells_nothing_more(code: ReasonCode) -> bool {
    matches!(code, ReasonCode::Exit | ReasonCode::Signal)
}

#[cfg(test)]
mod tests {
    use tidemill_core::usage::{LogTotals, Usage};
    use tidemill_core::{Millis, Reason};

    use super::*;
    use crate::testing::snapshot;

    #[test]
    fn the_closing_line_says_what_ended_it() {
        let mut snapshot = snapshot(1, State::Succeeded);
        snapshot.started_at = Some(snapshot.created_at);
        snapshot.duration_ms = Some(Millis(1234));
        snapshot.usage = Some(Usage {
            peak_memory_bytes: Some(34 << 20),
            ..Usage::default()
        });
        assert_eq!(
            closing(&snapshot),
            "succeeded after 1.2 s, peak memory 34 MiB (000000000001)"
        );
        snapshot.state = State::Failed;
        snapshot.exit_code = Some(3);
        snapshot.reason = Some(Reason::new(ReasonCode::Exit, "the program ended with 3"));
        snapshot.log = LogTotals {
            dropped_bytes: 4 << 20,
            ..LogTotals::default()
        };
        assert_eq!(
            closing(&snapshot),
            "failed with exit code 3 after 1.2 s, peak memory 34 MiB, \
             4 MiB of output left out by the log limit (000000000001)"
        );
        snapshot.exit_code = None;
        snapshot.signal = Some(9);
        snapshot.usage = None;
        snapshot.log = LogTotals::default();
        snapshot.reason = Some(Reason::new(
            ReasonCode::Memory,
            "the limit of 64 MiB was reached",
        ));
        assert_eq!(
            closing(&snapshot),
            "failed by SIGKILL after 1.2 s: the limit of 64 MiB was reached (000000000001)"
        );
    }
}
