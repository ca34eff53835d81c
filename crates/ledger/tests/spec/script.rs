//! Scripts: one line is one thing that happens to one execution, and gives one line of effect.
//!
//! ```text
//! wait 2.5                  time passes
//! created                   an event is applied (see `event` for how each is written)
//! ask ann                   ann asks to cancel
//! adopt m1                  m1's execution is taken in
//! report m1 1 started; 2 completed
//! silence                   is its reporter silent for too long?
//! lost allowed|exhausted    its runner is lost, and another attempt is allowed or not
//! say FIELD…                these fields of the snapshot
//! history                   the kept history
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;

use tidemill_core::event::{Outcome, Status};
use tidemill_core::{
    Attempt, ByteSize, Digest, Event, EventRecord, ExecutionId, Grant, LogPiece, LogTotals, Millis,
    Reason, ReasonCode, RunnerId, Stream, Timestamp, Usage,
};
use tidemill_ledger::loss::{self, Retry};
use tidemill_ledger::{Decision, Snapshot, cancel, change, reported};

/// One execution and what is kept of it, in memory.
pub(crate) struct World {
    pub(crate) snapshot: Option<Snapshot>,
    pub(crate) history: Vec<EventRecord>,
    pub(crate) now: Timestamp,
}

/// Runs a script and gives the effects.
pub(crate) fn run(script: &str) -> String {
    let mut world = World::new();
    let mut effects = String::new();
    for line in script.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let effect = format!("{line:<28} {}", world.line(line));
        writeln!(effects, "{}", effect.trim_end()).unwrap();
    }
    effects
}

/// A world after a script of which no line may be refused.
pub(crate) fn after(script: &str) -> World {
    let mut world = World::new();
    for line in script.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let effect = world.line(line);
        assert!(!effect.starts_with("refused"), "{line}: {effect}");
    }
    world
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            snapshot: None,
            history: Vec::new(),
            now: Timestamp(1_000_000_000),
        }
    }

    pub(crate) fn snapshot(&self) -> &Snapshot {
        self.snapshot.as_ref().unwrap()
    }

    pub(crate) fn line(&mut self, line: &str) -> String {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "wait" => {
                let micros = (rest.parse::<f64>().unwrap() * 1e6).round();
                self.now.0 += format!("{micros:.0}").parse::<i64>().unwrap();
                String::new()
            }
            "ask" => {
                let decision = cancel::request(self.snapshot.as_ref(), rest);
                self.decide(decision)
            }
            "adopt" => {
                let by = RunnerId(rest.to_owned());
                let created = event("created");
                let decision = reported::adopt(self.snapshot.as_ref(), &by, self.now, created);
                self.decide(decision)
            }
            "report" => {
                let (by, list) = rest.split_once(' ').unwrap_or((rest, ""));
                let events = report_list(list);
                let by = RunnerId(by.to_owned());
                let decision = reported::report(self.snapshot.as_ref(), &by, self.now, &events);
                self.decide(decision)
            }
            "silence" => match reported::fallen_silent(self.snapshot(), self.now) {
                None => "not yet".to_owned(),
                Some(event) => self.decide(Decision::events(vec![event], ())),
            },
            "lost" => {
                let retry = match rest {
                    "allowed" => Retry::Allowed,
                    _ => Retry::Exhausted,
                };
                let reason = Reason::new(ReasonCode::Lost, "the runner is gone");
                match loss::runner_lost(self.snapshot(), reason, retry) {
                    None => "nothing follows".to_owned(),
                    Some(event) => self.decide(Decision::events(vec![event], ())),
                }
            }
            "say" => self.say(rest),
            "history" => {
                let kinds: Vec<String> = self
                    .history
                    .iter()
                    .map(|record| format!("{}:{}", record.sequence, record.event.kind()))
                    .collect();
                kinds.join(" ")
            }
            _ => self.decide(Decision::events(vec![event(line)], ())),
        }
    }

    /// What a store does in one transaction, on a list in memory.
    pub(crate) fn decide<A: std::fmt::Debug>(&mut self, decision: Decision<A>) -> String {
        let before = self.snapshot.clone();
        let answer = format!("{:?}", decision.answer);
        let answer = if answer == "()" {
            String::new()
        } else {
            answer
        };
        let id = ExecutionId::for_test(1);
        let made = change(
            before.as_ref(),
            id,
            self.now,
            decision.events,
            decision.origin,
        );
        let effect = match made {
            Err(refused) => return format!("refused: {refused}"),
            Ok(None) => "nothing changed".to_owned(),
            Ok(Some(change)) => {
                let recorded: Vec<String> = change
                    .records
                    .iter()
                    .map(|record| format!("{}:{}", record.sequence, record.event.kind()))
                    .collect();
                self.history.extend(change.kept_records().cloned());
                self.history
                    .retain(|record| !change.replaced.contains(&record.sequence));
                let dropped = usize::try_from(change.dropped).unwrap();
                self.history.drain(..dropped);
                let state = change.snapshot.state;
                self.snapshot = Some(change.snapshot);
                format!("{} -> {state}", recorded.join(" "))
            }
        };
        format!("{effect} {answer}").trim().to_owned()
    }

    fn say(&self, fields: &str) -> String {
        let Some(snapshot) = &self.snapshot else {
            return "nothing".to_owned();
        };
        let value = serde_json::to_value(snapshot).unwrap();
        let said: Vec<String> = fields
            .split(' ')
            .map(|field| {
                let found = field
                    .split('.')
                    .try_fold(&value, |value, part| value.get(part));
                found.map_or_else(|| format!("no {field}"), |v| format!("{field}={v}"))
            })
            .collect();
        said.join(" ")
    }
}

/// `1 started; 2 completed`
fn report_list(list: &str) -> Vec<(u64, Event)> {
    list.split(';')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(|item| {
            let (sequence, text) = item.split_once(' ').unwrap();
            (sequence.parse().unwrap(), event(text))
        })
        .collect()
}

/// The event that a line of a script stands for.
pub(crate) fn event(line: &str) -> Event {
    let words: Vec<&str> = line.split(' ').collect();
    let word = |index: usize| words.get(index).copied();
    let reason = |default: ReasonCode| {
        let code = word(1).map_or(default, |name| {
            serde_json::from_value(serde_json::Value::from(name)).unwrap()
        });
        Reason::new(code, format!("because of {code}"))
    };
    match words[0] {
        "created" => Event::Created {
            spec: Digest::of(b"spec"),
            name: Some("tests".to_owned()),
            labels: BTreeMap::from([("team".to_owned(), "core".to_owned())]),
            command: vec!["cargo".to_owned(), "test".to_owned()],
            submitter: Some("ann".to_owned()),
            run: Some("run-7".to_owned()),
            correlation_id: Some("c-1".to_owned()),
        },
        "queued" => Event::Queued {
            ahead: word(1).unwrap_or("0").parse().unwrap(),
        },
        "assigned" => Event::Assigned {
            runner: RunnerId(word(1).unwrap_or("r1").to_owned()),
            attempt: Attempt(word(2).unwrap_or("1").parse().unwrap()),
        },
        "status" => Event::Status {
            status: match word(1) {
                Some("execute") => Status::WaitingToExecute,
                Some("executing") => Status::Executing,
                _ => Status::WaitingForLayers,
            },
        },
        "started" => Event::Started {
            grants: vec![Grant::Stdin],
        },
        "progress" => Event::Progress {
            step: word(1).filter(|step| *step != "-").map(str::to_owned),
            current: word(2).unwrap_or("1").parse().unwrap(),
            total: word(3).map(|total| total.parse().unwrap()),
            message: word(4).map(str::to_owned),
        },
        "step_started" => Event::StepStarted {
            name: word(1).unwrap_or("build").to_owned(),
        },
        "step_completed" => Event::StepCompleted {
            name: word(1).unwrap_or("build").to_owned(),
            ok: word(2) != Some("bad"),
            detail: word(3).map(str::to_owned),
        },
        "diagnostic" => Event::Diagnostic {
            reason: reason(ReasonCode::Pids),
        },
        "log" => Event::Log {
            piece: LogPiece {
                stream: match word(1) {
                    Some("stderr") => Stream::Stderr,
                    _ => Stream::Stdout,
                },
                offset: word(2).unwrap_or("0").parse().unwrap(),
                length: word(3).unwrap_or("1").parse().unwrap(),
            },
            text: "x".to_owned(),
        },
        "artifact_kept" => Event::ArtifactKept {
            name: "binary".to_owned(),
            digest: Digest::of(b"binary"),
            size: ByteSize(6),
        },
        "report_kept" => Event::ReportKept {
            name: "junit".to_owned(),
            digest: Digest::of(b"junit"),
        },
        "cancelling" => Event::Cancelling {
            by: word(1).unwrap_or("ann").to_owned(),
        },
        "paused" => Event::Paused {
            why: word(1).map(str::to_owned),
        },
        "resumed" => Event::Resumed {
            why: word(1).map(str::to_owned),
        },
        "requeued" => Event::Requeued {
            reason: reason(ReasonCode::Lost),
        },
        "completed" => Event::Completed {
            outcome: outcome(0),
        },
        "failed" => Event::Failed {
            reason: reason(ReasonCode::Exit),
            outcome: word(2).map(|code| outcome(code.parse().unwrap())),
        },
        "timed_out" => Event::TimedOut {
            reason: reason(ReasonCode::Time),
            outcome: None,
        },
        "cancelled" => Event::Cancelled {
            reason: word(1).map(|_| reason(ReasonCode::Cancelled)),
            outcome: None,
        },
        "interrupted" => Event::Interrupted {
            reason: reason(ReasonCode::Shutdown),
        },
        other => panic!("`{other}` is no word of a script"),
    }
}

/// How a program ended that ran for 1.5 s.
pub(crate) fn outcome(exit_code: i32) -> Outcome {
    Outcome {
        exit_code: Some(exit_code),
        signal: None,
        core_dumped: false,
        killed_processes: 2,
        usage: Usage {
            wall_ms: 1_500,
            user_ms: 900,
            system_ms: 100,
            peak_memory_bytes: Some(4_096),
            peak_pids: Some(3),
            disk_bytes: Some(10),
        },
        log: LogTotals {
            bytes: 12,
            stdout_bytes: 8,
            stderr_bytes: 4,
            dropped_bytes: 0,
        },
        duration_ms: Millis(1_500),
    }
}
